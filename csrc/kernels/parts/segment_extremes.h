/* The exponents of values. */
#ifndef GPUREDUCE_KERNEL_SEGMENT_EXTREMES_H
#define GPUREDUCE_KERNEL_SEGMENT_EXTREMES_H

#include "segment_words.h"

/* Most warps find that the maximum is large enough: reading it takes less time than waiting for an
 * atomic operation. */
__device__ __forceinline__ void merge_maximum(unsigned *to, unsigned value)
{
    value = largest_in_warp(value);
    if (threadIdx.x % 32 == 0 && value > load_current(to))
        atomicMax(to, value);
}

/* The biased exponent of a float: 0 for subnormals, `special` for inf and nan. */
__device__ __forceinline__ unsigned exponent_field(float x)
{
    return __float_as_uint(x) >> 23 & 0xff;
}

__device__ __forceinline__ unsigned exponent_field(double x)
{
    return (unsigned)__double2hiint(x) >> 20 & 0x7ff;
}

/* T: float, or double. Integers have no exponents. */
template <typename T> struct Extremes {
    static constexpr unsigned special = sizeof(T) == 4 ? 0xff : 0x7ff,
                              digits = sizeof(T) == 4 ? 24 : 53;
    unsigned largest = 0, low = ~0u, specials = 0;

    /* Most exponents show that a value has no bit below the lowest one so far. */
    __device__ __forceinline__ void add(T x)
    {
        unsigned field = exponent_field(x);
        if (field == special) {
            specials = 1;
            return;
        }
        largest = field > largest ? field : largest;
        if (field <= low)
            add_low(x);
    }

    __device__ __forceinline__ void add_low(T x)
    {
        Scaled s = scaled(x);
        unsigned lowest = unsigned(s.exponent + __ffsll((long long)s.size) - 1);
        if (s.size && lowest < low)
            low = lowest;
    }

    __device__ __forceinline__ void leave(gr_extremes *to) const
    {
        merge_maximum(&to->high, (largest ? largest - 1 : 0) + digits);
        merge_maximum(&to->low, ~low);
        merge_maximum(&to->specials, specials);
    }
};

/* The extremes of all values: found by the kernels that add up, if a sample made the plan. */
template <typename In> struct Seen {
    static constexpr bool is_float = !std::is_integral<In>::value;
    using Float = std::conditional_t<std::is_same<In, double>::value, double, float>;
    Extremes<Float> extremes;

    __device__ __forceinline__ void add(In x)
    {
        if constexpr (is_float)
            extremes.add(Float(x));
    }

    __device__ __forceinline__ void add_if(bool is_there, In x)
    {
        if (is_there)
            add(x);
    }

    /* Called by all lanes of a warp. */
    __device__ __forceinline__ void leave(const gr_segment_job &of) const
    {
        if (is_float && of.sampled > 1 && of.attempt == 0)
            extremes.leave(&of.state->seen);
    }
};

#endif
