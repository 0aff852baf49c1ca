/* Elements of arrays with any dimensions, steps and types. */
#ifndef GPUREDUCE_KERNEL_LAYOUT_H
#define GPUREDUCE_KERNEL_LAYOUT_H

#include "accumulate.h"
#include "elements.h"

/* The distance of entry `i` of some dimensions from the first entry. */
struct Place {
    int64_t in, mask, out;

    __device__ __forceinline__ Place(const gr_layout_dim *dim, int dims, size_t i)
        : in(0), mask(0), out(0)
    {
        MOSTLY_ONCE
        for (int d = dims - 1; d >= 0; d--) {
            int64_t at = d > 0 ? int64_t(i % dim[d].size) : int64_t(i);
            if (d > 0)
                i /= dim[d].size;
            in += at * dim[d].in;
            mask += at * dim[d].mask;
            out += at * dim[d].out;
        }
    }
};

/* The element at a distance of so many bytes from the first, converted to what is added to Acc. */
template <typename Acc>
__device__ __forceinline__ typename Addend<Acc>::type of_layout(const gr_layout &of,
                                                                int64_t distance)
{
    const void *address = static_cast<const char *>(of.base) + distance;
    return element_at<typename Addend<Acc>::type>(address, 0, of.load);
}

/* The same of the other array of products. */
__device__ __forceinline__ double factor_of_layout(const gr_layout &of, int64_t distance)
{
    return element_at<double>(of.mask + distance, 0, of.load);
}

#endif
