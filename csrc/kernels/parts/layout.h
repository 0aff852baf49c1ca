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

/* Calls use(x, y) for the elements of a group from `begin` on, every `step`-th; y is that of the
 * other array of products, or x. Several loads are in flight. */
template <typename T, typename Use>
__device__ __forceinline__ void each_strided(const gr_layout &of, const Place &first, size_t begin,
                                             size_t end, size_t step, Use use)
{
    constexpr unsigned flight = 8;
    const gr_layout_dim &dim = of.dim[of.kept];
    const char *x_at = static_cast<const char *>(of.base) + first.in;
    const char *y_at = reinterpret_cast<const char *>(of.mask) + first.mask;
    bool has_factors = of.term == GR_TERM_PRODUCT;
    MOSTLY_ONCE
    for (size_t i = begin; i < end; i += flight * step) {
        T x[flight], y[flight];
        for (unsigned j = 0; j < flight; j++) {
            int64_t at = int64_t(i + j * step);
            x[j] = y[j] = T{};
            if (i + j * step < end) {
                x[j] = *reinterpret_cast<const T *>(x_at + at * dim.in);
                y[j] = has_factors ? *reinterpret_cast<const T *>(y_at + at * dim.mask) : x[j];
            }
        }
        for (unsigned j = 0; j < flight; j++)
            if (i + j * step < end)
                use(x[j], y[j]);
    }
}

/* The same for any layout. The elements are floats. */
template <typename Use>
__device__ __forceinline__ void each_term(const gr_layout &of, const Place &first, size_t begin,
                                          size_t end, size_t step, Use use)
{
    bool has_factors = of.term == GR_TERM_PRODUCT;
    if (of.reduced == 1 && (has_factors || !of.mask))
        switch (of.load) {
        case GR_LOAD_f16: return each_strided<__half>(of, first, begin, end, step, use);
        case GR_LOAD_bf16: return each_strided<__nv_bfloat16>(of, first, begin, end, step, use);
        case GR_LOAD_f32: return each_strided<float>(of, first, begin, end, step, use);
        case GR_LOAD_f64: return each_strided<double>(of, first, begin, end, step, use);
        default: break;
        }
    MOSTLY_ONCE
    for (size_t i = begin; i < end; i += step) {
        Place at(of.dim + of.kept, of.reduced, i);
        double x = of_layout<double>(of, first.in + at.in), y = x;
        if (has_factors)
            y = element_at<double>(of.mask + first.mask + at.mask, 0, of.load);
        else if (of.mask && !of.mask[first.mask + at.mask])
            continue;
        use(x, y);
    }
}

#endif
