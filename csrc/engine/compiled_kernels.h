/* The kernels that are compiled for each strategy. */
#ifndef GPUREDUCE_COMPILED_KERNELS_H
#define GPUREDUCE_COMPILED_KERNELS_H

#include "shared/dtypes.h"
#include "shared/c_linkage.h"

#include <stdbool.h>

GR_C_BEGIN

/* One compiled kernel. `block` is the block size that it was compiled for, or 0 for any. */
typedef struct {
    gr_load load;
    gr_acc acc;
    unsigned block;
    const void *entry;
    uint64_t large_shared; /* a bit per device: gr_allow_shared() has permitted it there */
    /* Results that gr_resident_blocks() caches, per block size. */
    uint64_t resident[32];
} gr_kernel;

enum { GR_MAX_KERNELS = 96 };

typedef struct {
    int count;
    int last; /* index of the kernel found last, where the next search starts */
    gr_kernel kernel[GR_MAX_KERNELS];
} gr_kernel_list;

/* Lists the kernels. Called once, on one thread, while the module is loaded and before any other
 * function. Returns false if there is no memory. */
bool gr_list_kernels(void);

/* List kernels of a strategy that gr_add_strategy() added: all kernels that `fill` lists, or one.
 * Return false if there is no room. The caller serializes calls, but sums of the strategy may be
 * running. */
bool gr_add_kernels(int strategy, void (*fill)(gr_kernel_list *list));
bool gr_add_kernel(int strategy, const gr_kernel *kernel);

/* Whether a strategy has kernels of this package, or of a user. */
bool gr_has_kernels(int strategy);

/* Returns the kernel for a pair and a block size, or NULL. */
gr_kernel *gr_find_kernel(int strategy, gr_load load, gr_acc acc, unsigned block);

GR_C_END
#endif
