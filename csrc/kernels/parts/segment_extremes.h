/* The exponents of values. */
#ifndef GPUREDUCE_KERNEL_SEGMENT_EXTREMES_H
#define GPUREDUCE_KERNEL_SEGMENT_EXTREMES_H

#include "segment_words.h"

__device__ __forceinline__ void merge_maximum(unsigned *to, unsigned value)
{
    for (unsigned offset = 16; offset > 0; offset /= 2) {
        unsigned other = __shfl_xor_sync(0xffffffffu, value, offset);
        value = other > value ? other : value;
    }
    if (threadIdx.x % 32 == 0 && value)
        atomicMax(to, value);
}

struct Extremes {
    unsigned high = 0, low = 0, specials = 0; /* as in gr_segment_state */

    template <typename In> __device__ __forceinline__ void add(In x)
    {
        Scaled s = scaled(x);
        unsigned top = unsigned(s.exponent + 64 - __clzll((long long)s.size));
        unsigned bottom = ~unsigned(s.exponent + __ffsll((long long)s.size) - 1);
        if (s.flag)
            specials = 1;
        else if (s.size) {
            high = top > high ? top : high;
            low = bottom > low ? bottom : low;
        }
    }
};

#endif
