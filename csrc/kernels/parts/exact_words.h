/* A block's digits (exact_deposits.h), filled by single elements and rounded on the device. */
#ifndef GPUREDUCE_KERNEL_EXACT_WORDS_H
#define GPUREDUCE_KERNEL_EXACT_WORDS_H

#include "exact/round.h"
#include "exact_deposits.h"

__device__ __forceinline__ void deposit(double x)
{
    unsigned upper = (unsigned)__double2hiint(x) & 0x7fffffff, field = upper >> 20;
    if (upper >= 0x7ff00000)
        return add_flags(special_flag(x));
    long long fraction = __double_as_longlong(x) & 0xfffffffffffff;
    long long size = fraction | (long long)(field ? 1 : 0) << 52;
    add_integer(x < 0 ? -size : size, field ? field - 1 : 0);
}

/* Carries in the block's digits, so that each but the last is below 2^32. */
__device__ __forceinline__ void carry_digits(unsigned long long *word)
{
    for (unsigned k = 0; k + 1 < exact_digits; k++) {
        word[k + 1] += (unsigned long long)((long long)word[k] >> 32);
        word[k] &= 0xffffffff;
    }
}

DEVICE_FUNCTION unsigned long long round_words(gr_load type)
{
    gr_exact sum;
    carry_digits(gathering()->word);
    for (unsigned k = 0; k < exact_digits; k++)
        sum.digit[k] = (int64_t)gathering()->word[k];
    sum.flags = (uint32_t)gathering()->word[exact_digits];
    return gr_round_normalized(&sum, type);
}

#endif
