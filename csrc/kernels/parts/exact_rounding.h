/* Rounds exact sums, which are given digit by digit: the only rounding of such a sum. */
#pragma once

#include "common.h"
#include "exact/exact.h"
#include "exact/round.h"

/* The flag for an inf or nan. */
__device__ __forceinline__ unsigned special_flag(double x)
{
    return x != x ? GR_EXACT_NAN : x > 0 ? GR_EXACT_PLUS_INF : GR_EXACT_MINUS_INF;
}

/* Stores the low bytes. */
__device__ __forceinline__ void store_bits(void *to, unsigned long long bits, unsigned bytes)
{
    switch (bytes) {
    case 1: *static_cast<uint8_t *>(to) = (uint8_t)bits; break;
    case 2: *static_cast<uint16_t *>(to) = (uint16_t)bits; break;
    case 4: *static_cast<unsigned *>(to) = (unsigned)bits; break;
    default: *static_cast<unsigned long long *>(to) = bits;
    }
}

/* An integer spans at most three digits. Returns digit number `which`: 0, 1 or 2. */
__device__ __forceinline__ long long digit_of(long long value, unsigned shift, unsigned which)
{
    long long rest = value >> (32 - shift);
    return which == 0   ? (long long)((unsigned long long)value << shift & 0xffffffff)
           : which == 1 ? rest & 0xffffffff
           : which == 2 ? rest >> 32
                        : 0;
}

/* Rounds total 2^exponent to a format. */
__device__ __forceinline__ unsigned long long round_total(__int128 total, int exponent,
                                                          gr_format format)
{
    unsigned __int128 size = total < 0 ? -(unsigned __int128)total : (unsigned __int128)total;
    unsigned long long upper = (unsigned long long)(size >> 64);
    int bits = upper ? 64 + gr_bit_length(upper) : gr_bit_length((unsigned long long)size);
    int drop = bits > 63 ? bits - 63 : 0;
    bool more = (size & (((unsigned __int128)1 << drop) - 1)) != 0;
    return gr_round_bits((unsigned long long)(size >> drop) | more, exponent + drop, total < 0,
                         format);
}

/* The highest digits of a sum. Digits are given from the lowest one on, as any integers, and are
 * carried to values of -2^31 to 2^31 - 1. Then the highest digit that is not zero has the sign of
 * the sum. What lies below some digit has the sign of its own highest digit that is not zero. */
struct HighestDigits {
    long long carry = 0;     /* to digit `next` */
    int next = 0, at = 0;    /* `at`: the highest digit that is not zero */
    int digit[3] = {};       /* that one, and the two below it */
    int below[2] = {};       /* the two below `next` */
    int rest = 0, under = 0; /* the signs of what is below `digit` and below `below` */

    static __device__ __forceinline__ int sign(int x)
    {
        return (x > 0) - (x < 0);
    }

    __device__ __forceinline__ void give_next(long long total)
    {
        long long value = total + carry;
        int low = (int)(unsigned)(unsigned long long)value;
        carry = (value - low) >> 32;
        if (low) {
            digit[0] = low;
            digit[1] = below[0];
            digit[2] = below[1];
            rest = under;
            at = next;
        }
        under = below[1] ? sign(below[1]) : under;
        below[1] = below[0];
        below[0] = low;
        next++;
    }

    /* Gives digit k. The first call may give any digit, and each later call the next one. */
    __device__ __forceinline__ void give(int k, long long total)
    {
        if (next == 0)
            next = k;
        give_next(total);
    }

    /* The bits of the sum, rounded once. */
    __device__ __forceinline__ unsigned long long rounded(unsigned flags, gr_load type)
    {
        gr_format format = gr_format_of(type);
        if (flags)
            return gr_round_flags(flags, format);
        while (carry)
            give_next(0);
        __int128 base = (__int128)1 << 32, total = (digit[0] * base + digit[1]) * base + digit[2];
        return round_total(4 * total + rest, 32 * (at - 2) + GR_EXACT_UNIT - 2, format);
    }
};
