/* The exponents of values. */
#ifndef GPUREDUCE_KERNEL_SEGMENT_EXTREMES_H
#define GPUREDUCE_KERNEL_SEGMENT_EXTREMES_H

#include "segment_words.h"

__device__ __forceinline__ void merge_maximum(unsigned *to, unsigned value)
{
    value = largest_in_warp(value);
    if (threadIdx.x % 32 == 0 && value)
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

/* T: float, or double. */
template <typename T> struct Extremes {
    static constexpr unsigned special = sizeof(T) == 4 ? 0xff : 0x7ff,
                              digits = sizeof(T) == 4 ? 24 : 53;
    unsigned largest = 0, low = ~0u, specials = 0;

    /* Most values have no bit below the lowest so far, which their exponent shows. */
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

    /* As in gr_segment_state. */
    __device__ __forceinline__ void leave(gr_segment_state *state) const
    {
        merge_maximum(&state->high, (largest ? largest - 1 : 0) + digits);
        merge_maximum(&state->low, ~low);
        merge_maximum(&state->specials, specials);
    }
};

#endif
