/* An array on a device as DLPack and __cuda_array_interface__ describe it: any strides, any type.
 */
#ifndef GPUREDUCE_ELEMENTS_H
#define GPUREDUCE_ELEMENTS_H

#include "shared/dtypes.h"

/* Kernels read int64 as uint64, which adds up the same; as a float it does not come out the same.
 */
enum { GR_MAX_DIMS = 8, GR_ELEMENTS_I64 = GR_LOAD_COUNT };

typedef struct {
    const void *base;
    int load; /* a gr_load, or GR_ELEMENTS_I64 */
    int dims;
    uint64_t size[GR_MAX_DIMS]; /* slowest first */
    int64_t step[GR_MAX_DIMS];  /* in elements */
    uint64_t first;             /* of a launch that adds up a part of them: its element 0 */
} gr_elements;

#endif
