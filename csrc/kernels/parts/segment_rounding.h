/* Rounds fixed-point words to a float: the only rounding of such a sum. */
#ifndef GPUREDUCE_KERNEL_SEGMENT_ROUNDING_H
#define GPUREDUCE_KERNEL_SEGMENT_ROUNDING_H

#include "exact_levels.h"
#include "segment_words.h"

/* Calls give(k, digit) for the digits of a sum in words, and of an initial number, from the lowest
 * one on. */
template <typename Give>
__device__ __forceinline__ void each_digit_of(const uint64_t *word, const gr_word_plan &plan,
                                              int least, const Scaled &initial, Give give)
{
    long long size = initial.is_negative ? -(long long)initial.size : (long long)initial.size;
    int low = plan.low + least - GR_EXACT_UNIT, from = initial.exponent / 32;
    int next = (size && initial.exponent < low ? initial.exponent : low) / 32;
    __int128 rest = 0; /* in units of digit `next`: below 2^96 */
    auto give_next = [&] {
        long long more = digit_of(size, unsigned(initial.exponent) % 32, unsigned(next - from));
        give(next++, (long long)(unsigned)rest + more);
        rest >>= 32;
    };
    MOSTLY_ONCE
    for (unsigned k = 0; k < plan.words; k++) {
        int position = low + int(k * plan.width);
        while (32 * (next + 1) <= position)
            give_next();
        __int128 unit = (__int128)1 << (position - 32 * next);
        rest += (long long)word[k * plan.word_step] * unit;
    }
    while ((rest != 0 && rest != -1) || (size && next < from + 3))
        give_next();
    if (rest)
        give(next, (long long)-1);
}

/* Rounds any number of words and an initial number. */
DEVICE_FUNCTION unsigned long long round_words_of(const uint64_t *word, const gr_word_plan &plan,
                                                  int least, double initial, gr_load type)
{
    Scaled first = scaled(initial);
    HighestDigits highest;
    if (first.flag)
        first.size = 0;
    each_digit_of(word, plan, least, first,
                  [&](int k, long long digit) { highest.give(k, digit); });
    unsigned flags = plan.flags ? (unsigned)word[plan.words * plan.word_step] : 0;
    return highest.rounded(flags | first.flag, type);
}

/* Stores the digits of a part of a sum. The word of integers has their sum, of which unsigned ones
 * need all 64 bits. Takes no job: its address would make threads copy the kernel's parameters. */
DEVICE_FUNCTION void store_digits_of(void *to, DigitsHead head, const uint64_t *word,
                                     gr_word_plan plan, int least, gr_load load)
{
    SumDigits digits(NULL, static_cast<int64_t *>(to) + GR_WORDS_HEAD + GR_WORDS_FLAGS);
    bool is_signed = load == GR_LOAD_i8 || load == GR_LOAD_i16 || load == GR_LOAD_i32;
    unsigned flags = plan.flags ? (unsigned)word[plan.words * plan.word_step] : 0;
    uint64_t half[2] = {word[0] & 0xffffffff,
                        is_signed ? (uint64_t)((long long)word[0] >> 32) : word[0] >> 32};
    if (!gr_is_float(load)) {
        word = half;
        plan.words = 2;
        plan.width = 32;
        plan.word_step = 1;
        plan.low = least = 0;
    }
    each_digit_of(word, plan, least, scaled(0.0),
                  [&](int k, long long digit) { digits.give(k, digit); });
    digits.finish(to, head, flags);
}

#endif
