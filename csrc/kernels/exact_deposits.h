/* How threads deposit floats without rounding, and how that becomes digits.
 *
 * Digits: a number is the sum of digit[k] 2^(32 k - 1074), each digit a signed 64-bit integer, for
 * every float is a multiple of 2^-1074. The word after them holds flags, as in exact/exact.h. A
 * digit gets less than 2^32 at a time, so 2^31 additions cannot overflow it.
 *
 * Deposit<T> is what a thread has: `add` takes a flight of packs, `empty` is called after so many
 * rounds, and `finish` at the end, both by all threads of the block; `gathered` is the
 * block's digit k after that. */
#ifndef GPUREDUCE_EXACT_DEPOSITS_H
#define GPUREDUCE_EXACT_DEPOSITS_H

#include "common.h"
#include "engine/exact_layout.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

constexpr unsigned exact_digits = GR_EXACT_DIGITS, exact_words = GR_EXACT_WORDS;

template <typename T> struct Deposit;

/* A block's last deposits on their way to digits: integers value[i] 2^(position[i] - 1074), and
 * words as they are. At the start of shared memory. */
struct Gathering {
    long long value[GR_EXACT_INTEGERS];
    unsigned position[GR_EXACT_INTEGERS];
    unsigned long long word[GR_EXACT_WORDS];
    unsigned long long emptied; /* whether there were deposits before the last */
};

static_assert(sizeof(Gathering) == GR_EXACT_HEADER_WORDS * 8, "exact_layout.h says the same");

__device__ __forceinline__ Gathering *gathering()
{
    return shared_array<Gathering>();
}

/* Shared memory behind it. */
template <typename T> __device__ __forceinline__ T *deposit_memory()
{
    return reinterpret_cast<T *>(gathering() + 1);
}

__device__ __forceinline__ void clear_words()
{
    for (unsigned k = threadIdx.x; k < exact_words; k += blockDim.x)
        gathering()->word[k] = 0;
    if (threadIdx.x == 0)
        gathering()->emptied = 0;
}

/* An integer is at most three digits: the first, the second or the third one. */
__device__ __forceinline__ long long digit_of(long long value, unsigned shift, unsigned which)
{
    long long rest = value >> (32 - shift);
    return which == 0   ? (long long)((unsigned long long)value << shift & 0xffffffff)
           : which == 1 ? rest & 0xffffffff
                        : rest >> 32;
}

/* Deposits before the last go to all blocks' digits, which are zero between launches. */
__device__ __forceinline__ void add_integer(unsigned long long *totals, long long value,
                                            unsigned position)
{
    for (unsigned i = 0; i < 3; i++) {
        long long digit = digit_of(value, position % 32, i);
        if (digit)
            atomicAdd(&totals[position / 32 + i], (unsigned long long)digit);
    }
    atomicOr(&gathering()->emptied, 1ull);
}

__device__ __forceinline__ void gather(unsigned i, long long value, int position)
{
    gathering()->value[i] = value;
    gathering()->position[i] = (unsigned)position;
}

__device__ __forceinline__ void gather_flags(unsigned flags)
{
    if (flags)
        atomicOr(&gathering()->word[exact_digits], (unsigned long long)flags);
}

/* The flag for an inf or nan. */
__device__ __forceinline__ unsigned special_flag(double x)
{
    return x != x ? GR_EXACT_NAN : x > 0 ? GR_EXACT_PLUS_INF : GR_EXACT_MINUS_INF;
}

__device__ __forceinline__ double power_of_two(int exponent)
{
    return __hiloint2double((exponent + 1023) << 20, 0);
}

/* What integer i has for digit k. */
__device__ __forceinline__ unsigned long long gathered_digit(unsigned i, unsigned k)
{
    unsigned position = gathering()->position[i], which = k - position / 32;
    return which < 3 ? (unsigned long long)digit_of(gathering()->value[i], position % 32, which)
                     : 0;
}

/* Adds this block's words to the others'. The last block writes them out, and leaves them zero. */
template <typename Deposits>
__device__ __forceinline__ void finish_digits(const Deposits &deposit, unsigned long long *out,
                                              unsigned long long *totals, unsigned *ticket)
{
    bool is_last = false;
    __syncthreads();
    bool alone = gridDim.x == 1 && !gathering()->emptied;
    for (unsigned k = threadIdx.x; k < exact_words; k += blockDim.x) {
        unsigned long long word = gathering()->word[k];
        if (k < exact_digits)
            word += deposit.gathered(k);
        if (alone)
            out[k] = word;
        else if (word != 0 && k < exact_digits)
            atomicAdd(&totals[k], word);
        else if (word != 0)
            atomicOr(&totals[k], word);
    }
    if (alone)
        return;
    __syncthreads();
    if (threadIdx.x == 0)
        is_last = draw_ticket(ticket, gridDim.x - 1) == gridDim.x - 1;
    if (!__syncthreads_or(is_last))
        return;
    for (unsigned k = threadIdx.x; k < exact_words; k += blockDim.x) {
        out[k] = load_fresh(&totals[k]);
        totals[k] = 0;
    }
}

#include "exact_bins.h"
#include "exact_extract.h"

#endif
