/* Rounds fixed-point words to a float: the only rounding of such a sum. */
#ifndef GPUREDUCE_KERNEL_SEGMENT_ROUNDING_H
#define GPUREDUCE_KERNEL_SEGMENT_ROUNDING_H

#include "exact_digits.h"
#include "exact_rounding.h"
#include "segment_words.h"

/* Calls use(bits, k) for words k from 0 to the last but one, where bits are the `width` lowest bits
 * of word k with the carries of those below it. Returns the last word with its carries: the sum is
 * that and all bits, each times its power of two. `negates`: of the negated words. */
template <typename Use>
__device__ __forceinline__ __int128 each_digit(const uint64_t *word, const gr_word_plan &plan,
                                               bool negates, Use use)
{
    unsigned last = plan.words - 1;
    __int128 rest = 0;
    MOSTLY_ONCE
    for (unsigned k = 0; k <= last; k++) {
        __int128 value = (long long)word[k * plan.word_step];
        rest = (k ? rest >> plan.width : 0) + (negates ? -value : value);
        if (k < last)
            use((unsigned long long)rest & ((1ull << plan.width) - 1), k);
    }
    return rest;
}

/* The highest bits of a number, which is given from its lowest bits on. */
struct HighestBits {
    unsigned __int128 bits = 0; /* 127 of them. The lowest is 1 if any bit that left is 1 */
    unsigned given = 0;

    __device__ __forceinline__ void give(unsigned __int128 more, unsigned count)
    {
        bool left = (bits & (((unsigned __int128)1 << count) - 1)) != 0;
        bits = bits >> count | more << (127 - count) | left;
        given += count;
    }
};

/* Rounds any number of words. */
DEVICE_FUNCTION unsigned long long round_words_of(const uint64_t *word, const gr_word_plan &plan,
                                                  int least, gr_format format)
{
    unsigned flags = plan.flags ? (unsigned)word[plan.words * plan.word_step] : 0, used = 0;
    if (flags)
        return gr_round_flags(flags, format);
    auto find = [&](unsigned long long bits, unsigned k) { used = bits ? k + 1 : used; };
    __int128 last = each_digit(word, plan, false, find);
    bool is_negative = last < 0;
    if (is_negative) {
        used = 0;
        last = each_digit(word, plan, true, find);
    }
    if (last)
        used = plan.words - 1;
    HighestBits highest;
    each_digit(word, plan, is_negative, [&](unsigned long long bits, unsigned k) {
        if (k < used)
            highest.give(bits, plan.width);
    });
    unsigned long long top = (unsigned long long)last; /* below 2^63, and carries */
    if (top)
        highest.give(top, (unsigned)gr_bit_length(top));
    __int128 total = (__int128)highest.bits;
    return round_total(is_negative ? -total : total, plan.low + least + (int)highest.given - 127,
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

/* The sum that any number of words has, in digits that are not normalized. */
__device__ __forceinline__ void add_words(gr_exact *sum, const uint64_t *word,
                                          const gr_word_plan &plan, int least)
{
    memset(sum, 0, sizeof *sum);
    for (unsigned k = 0; k < plan.words; k++)
        add_scaled(sum, (long long)word[k * plan.word_step],
                   plan.low + least + int(k * plan.width));
    if (plan.flags)
        sum->flags = (uint32_t)word[plan.words * plan.word_step];
}

__device__ __forceinline__ void carry_digits(gr_exact *sum)
{
    for (unsigned k = 0; k + 1 < GR_EXACT_DIGITS; k++) {
        sum->digit[k + 1] += sum->digit[k] >> 32;
        sum->digit[k] &= 0xffffffff;
    }
}

/* Rounds any number of words and an initial number. */
DEVICE_FUNCTION unsigned long long round_with_initial(const uint64_t *word,
                                                      const gr_word_plan &plan, int least,
                                                      double initial, gr_load type)
{
    gr_exact sum;
    add_words(&sum, word, plan, least);
    Scaled first = scaled(initial);
    sum.flags |= first.flag;
    if (!first.flag) {
        long long size = (long long)first.size;
        add_scaled(&sum, first.is_negative ? -size : size, first.exponent + GR_EXACT_UNIT);
    }
    carry_digits(&sum);
    return gr_round_normalized(&sum, type);
}

/* Stores the digits of a part of a sum. The word of integers has their sum, of which unsigned ones
 * need all 64 bits. Takes no job: its address would make threads copy the kernel's parameters. */
DEVICE_FUNCTION void store_digits_of(void *to, DigitsHead head, const uint64_t *word,
                                     const gr_word_plan &plan, int least, gr_load load)
{
    gr_exact sum;
    if (gr_is_float(load)) {
        add_words(&sum, word, plan, least);
    } else {
        bool is_signed = load == GR_LOAD_i8 || load == GR_LOAD_i16 || load == GR_LOAD_i32;
        memset(&sum, 0, sizeof sum);
        add_scaled(&sum, (long long)(word[0] & 0xffffffff), 0);
        add_scaled(&sum, is_signed ? (long long)word[0] >> 32 : (long long)(word[0] >> 32), 32);
    }
    carry_digits(&sum);
    int64_t *digit = store_head(to, head, sum.flags);
    for (unsigned k = 0; k < GR_EXACT_DIGITS; k++)
        digit[k] = sum.flags ? 0 : sum.digit[k];
}

#endif
