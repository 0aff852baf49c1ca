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
 * With `of_squares`, this also holds for their squares, which are below 2^(2 top). `usable`: there
 * is such a test. There is none for float64 elements, nor for squares of float32. */
template <typename T, bool of_squares = false> struct Sizes {
    static constexpr bool usable = std::is_same<T, float>::value && !of_squares;
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

/* The same for floats of two bytes with `fraction` bits of mantissa. Each word has the bits of two
 * elements, without their signs. */
template <typename T, int fraction, bool of_squares> struct SizesOfHalves {
    static constexpr bool usable = true;
    static constexpr unsigned few = 1 << 16;
    unsigned largest = 0, smallest = ~0u; /* minus 1: of a zero, the largest number */

    __device__ __forceinline__ void take_two(unsigned word)
    {
        word &= 0x7fff7fff;
        largest = largest_halves(largest, word);
        smallest = smallest_less_one(word, smallest);
    }

    __device__ __forceinline__ void take(T x)
    {
        unsigned short bits;
        memcpy(&bits, &x, sizeof bits);
        take_two(bits); /* the other half is a zero, which changes nothing */
    }

    __device__ __forceinline__ void take(const Pack<T> &pack)
    {
        for (unsigned word : pack.word)
            take_two(word);
    }

    __device__ __forceinline__ void take(const SizesOfHalves &more)
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
        if (count == 1)
            return true;
        int k = 32 - __clz(count), top = int(larger_half(largest) >> fraction) + 1;
        int least = int((0xffff - larger_half(~smallest)) >> fraction) - fraction;
        return (of_squares ? 2 * (top - least) : top - least) + k <= 53;
    }

    static __device__ __forceinline__ unsigned larger_half(unsigned word)
    {
        return word >> 16 > word % 0x10000 ? word >> 16 : word % 0x10000;
    }
};

template <bool of_squares>
struct Sizes<__nv_bfloat16, of_squares> : SizesOfHalves<__nv_bfloat16, 7, of_squares> {
};
template <> struct Sizes<__half, true> : SizesOfHalves<__half, 10, true> {
};

template <> struct Sizes<__half, false> {
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
