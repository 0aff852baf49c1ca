/* The kernels that are compiled for each strategy. */
#ifndef GPUREDUCE_COMPILED_KERNELS_H
#define GPUREDUCE_COMPILED_KERNELS_H

#include "shared/dtypes.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One compiled kernel. `block` is 0, or the block size that it was compiled for. */
typedef struct {
    gr_load load;
    gr_acc acc;
    unsigned block;
    const void *entry;
    /* What gr_resident_blocks found out, per block size. */
    uint64_t resident[32];
} gr_kernel;

enum { GR_MAX_KERNELS = 96 };

typedef struct {
    int count;
    int last; /* that was asked for: mostly the next one, too */
    gr_kernel kernel[GR_MAX_KERNELS];
} gr_kernel_list;

/* Lists the kernels: once, before all else and on one thread, while the module is loaded. False: no
 * memory. */
bool gr_list_kernels(void);

/* Whether a strategy has kernels of ours. */
bool gr_has_kernels(int strategy);

/* The kernel for a pair and a block size, or NULL. */
gr_kernel *gr_find_kernel(int strategy, gr_load load, gr_acc acc, unsigned block);

#ifdef __cplusplus
}
#endif
#endif
