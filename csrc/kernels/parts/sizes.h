/* When float64 sums of floats are exact. */
#pragma once

#include "common.h"
#include "shared/matrix.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

/* The sizes of some elements, which tell whether float64 sums of them are exact.
 *
 * Let each element be a multiple of 2^unit and smaller than 2^top. Then the sum of any 2^k of them
 * is a multiple of 2^unit and smaller than 2^(top + k). It is a float64 if top + k - unit <= 53.
 * inf and nan may count as any size: sums with them are not finite, and are never taken as proven.
 *
 * `usable`: there is such a test. There is none for float64 elements. */
template <typename T> struct Sizes {
    static constexpr bool usable = std::is_same<T, float>::value;
    static constexpr unsigned few = 1 << 11; /* sums of up to this number are often exact */
    float largest = 0;
    unsigned smallest = ~0u; /* twice the element's bits, minus 1: of a zero, the largest number */

    __device__ __forceinline__ void take(T x)
    {
        float value = float(x);
        unsigned size = __float_as_uint(value) * 2 - 1;
        largest = fmaxf(largest, fabsf(value));
        smallest = size < smallest ? size : smallest;
    }

    __device__ __forceinline__ void take(const Pack<T> &pack)
    {
        T element[Pack<T>::count];
        memcpy(element, &pack, sizeof element);
        for (unsigned k = 0; k < Pack<T>::count; k++)
            take(element[k]);
    }

    __device__ __forceinline__ void take(const Sizes &more)
    {
        largest = fmaxf(largest, more.largest);
        smallest = more.smallest < smallest ? more.smallest : smallest;
    }

    /* Whether sums of up to `count` elements of all lanes of the warp are exact. */
    __device__ __forceinline__ bool allow_in_warp(unsigned count)
    {
        largest = __uint_as_float(largest_in_warp(__float_as_uint(largest)));
        smallest = smallest_in_warp(smallest);
        return allow(count);
    }

    /* Whether sums of up to `count` elements are exact. */
    __device__ __forceinline__ bool allow(unsigned count) const
    {
        if (count == 1)
            return true;
        int k = 32 - __clz(count), top = int(__float_as_uint(largest) >> 23) + 1;
        int least = int(smallest >> 24); /* the exponent of the smallest; 0: it is subnormal */
        return top + k - (least + 1 - 24) <= 53;
    }
};

/* The same for bfloat16. Each word has the bits of two elements, without their signs. */
template <> struct Sizes<__nv_bfloat16> {
    static constexpr bool usable = true;
    static constexpr unsigned few = 1 << 16;
    static constexpr int fraction = 7;
    unsigned largest = 0, smallest = ~0u; /* minus 1: of a zero, the largest number */

    __device__ __forceinline__ void take_two(unsigned word)
    {
        word &= 0x7fff7fff;
        largest = largest_halves(largest, word);
        smallest = smallest_less_one(word, smallest);
    }

    __device__ __forceinline__ void take(__nv_bfloat16 x)
    {
        unsigned short bits;
        memcpy(&bits, &x, sizeof bits);
        take_two(bits); /* the other half is a zero, which changes nothing */
    }

    __device__ __forceinline__ void take(const Pack<__nv_bfloat16> &pack)
    {
        for (unsigned word : pack.word)
            take_two(word);
    }

    __device__ __forceinline__ void take(const Sizes &more)
    {
        largest = largest_halves(largest, more.largest);
        smallest = ~largest_halves(~smallest, ~more.smallest);
    }

    __device__ __forceinline__ bool allow_in_warp(unsigned count)
    {
        largest = largest_in_warp(larger_half(largest));
        smallest = ~largest_in_warp(larger_half(~smallest));
        return allow(count);
    }

    __device__ __forceinline__ bool allow(unsigned count) const
    {
        return count == 1 || span() + 32 - __clz(count) <= 53;
    }

    /* Whether sums of up to `count` squares are exact. These are multiples of 2^(2 unit). */
    __device__ __forceinline__ bool allow_squares(unsigned count) const
    {
        return 2 * span() + 32 - __clz(count) <= 53;
    }

    /* top - unit */
    __device__ __forceinline__ int span() const
    {
        int top = int(larger_half(largest) >> fraction) + 1;
        return top - (int((0xffff - larger_half(~smallest)) >> fraction) - fraction);
    }

    static __device__ __forceinline__ unsigned larger_half(unsigned word)
    {
        return word >> 16 > word % 0x10000 ? word >> 16 : word % 0x10000;
    }
};

/* Sums of float16 need no test but their number of elements. */
template <> struct Sizes<__half> {
    static constexpr bool usable = true;
    static constexpr unsigned few = GR_SHORT_F16;

    __device__ __forceinline__ void take(__half) {}

    __device__ __forceinline__ void take(const Pack<__half> &) {}

    __device__ __forceinline__ void take(const Sizes &) {}

    __device__ __forceinline__ bool allow_in_warp(unsigned count) const
    {
        return allow(count);
    }

    __device__ __forceinline__ bool allow(unsigned count) const
    {
        return count <= few;
    }
};
