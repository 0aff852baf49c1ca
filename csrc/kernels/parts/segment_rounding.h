/* Rounds fixed-point words to a float: the only rounding of such a sum. */
#ifndef GPUREDUCE_KERNEL_SEGMENT_ROUNDING_H
#define GPUREDUCE_KERNEL_SEGMENT_ROUNDING_H

#include "exact/round.h"
#include "segment_words.h"

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

__device__ __forceinline__ void add_scaled(gr_exact *sum, long long value, int exponent)
{
    unsigned k = unsigned(exponent - GR_EXACT_UNIT) / 32,
             shift = unsigned(exponent - GR_EXACT_UNIT) % 32;
    long long rest = value >> (32 - shift);
    sum->digit[k] += (long long)((unsigned long long)value << shift & 0xffffffff);
    sum->digit[k + 1] += rest & 0xffffffff;
    if (k + 2 < GR_EXACT_DIGITS)
        sum->digit[k + 2] += rest >> 32;
}

/* Rounds any number of words and an initial number. */
DEVICE_FUNCTION unsigned long long round_words_of(const uint64_t *word, const gr_word_plan &plan,
                                                  int least, double initial, gr_load type)
{
    gr_exact sum;
    memset(&sum, 0, sizeof sum);
    for (unsigned k = 0; k < plan.words; k++)
        add_scaled(&sum, (long long)word[k], plan.low + least + int(k * plan.width));
    if (plan.flags)
        sum.flags = (uint32_t)word[plan.words];
    Scaled first = scaled(initial);
    sum.flags |= first.flag;
    if (!first.flag) {
        long long size = (long long)first.size;
        add_scaled(&sum, first.is_negative ? -size : size, first.exponent + GR_EXACT_UNIT);
    }
    for (unsigned k = 0; k + 1 < GR_EXACT_DIGITS; k++) {
        sum.digit[k + 1] += sum.digit[k] >> 32;
        sum.digit[k] &= 0xffffffff;
    }
    return gr_round_normalized(&sum, type);
}

#endif
