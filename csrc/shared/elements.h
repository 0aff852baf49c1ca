/* An array on a device, as DLPack and __cuda_array_interface__ describe it: with any strides and
 * element type. */
#ifndef GPUREDUCE_ELEMENTS_H
#define GPUREDUCE_ELEMENTS_H

#include "shared/dtypes.h"
#include "shared/host_device.h"

/* GR_ELEMENTS_I64 marks int64 elements. Integer sums read int64 as uint64, with the same result,
 * but a conversion to float has to distinguish them. */
enum { GR_MAX_DIMS = 8, GR_ELEMENTS_I64 = GR_LOAD_COUNT };

/* Whether elements are integers of 64 bits, which float64 does not hold. */
GR_HOST_DEVICE int gr_is_wide_integer(int load)
{
    return load == GR_LOAD_u64 || load == GR_ELEMENTS_I64;
}

typedef struct {
    const void *base;
    int load; /* a gr_load, or GR_ELEMENTS_I64 */
    int dims;
    uint64_t size[GR_MAX_DIMS]; /* the slowest-varying dimension first */
    int64_t step[GR_MAX_DIMS];  /* in elements */
    uint64_t first;             /* the index at which a launch over a part of them starts */
} gr_elements;

#endif
