/* How threads deposit floats without rounding, and how deposits become digits.
 *
 * Digits: a number is the sum of digit[k] 2^(32 k - 1074), where each digit is a signed 64-bit
 * integer. Every float is a multiple of 2^-1074. The word after the digits holds flags, as in
 * exact/exact.h. Each block has such words in shared memory. A digit's total stays below 2^62: most
 * is added when bins are full, and more frequent additions are limited (exact_extract.h).
 *
 * Deposit<T> is a thread's state. `add` takes a flight of packs, of which the warp has `count`. At
 * the end warps store their sums in shared memory (`leave`). After a barrier the first warp adds
 * them up: `merge` returns a digit per lane, and its number k. This also happens after `rounds`
 * flights, and `clear` then empties the bins. Urgent sums go directly to the block's words. All
 * sums lie in the `words` words from first_word on. Threads with several flights may `prepare`
 * before the first. */
#pragma once

#include "exact/device_layout.h"
#include "exact_rounding.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

constexpr unsigned exact_digits = GR_EXACT_DIGITS, exact_words = GR_EXACT_WORDS;

template <typename T> struct Deposit;

/* At the start of shared memory: the sums that warps store, and the block's words. */
struct Gathering {
    static constexpr unsigned nowhere = ~0u;
    long long value[GR_EXACT_INTEGERS];
    unsigned low;     /* float64: the first digit that warps keep; `nowhere`: unset */
    unsigned is_used; /* whether the words are in use, which is rare */
    unsigned long long word[GR_EXACT_WORDS];
};

static_assert(sizeof(Gathering) == GR_EXACT_HEADER_WORDS * 8, "device_layout.h says the same");

__device__ __forceinline__ Gathering *gathering()
{
    return shared_array<Gathering>();
}

/* The shared memory after it. */
template <typename T> __device__ __forceinline__ T *deposit_memory()
{
    return reinterpret_cast<T *>(gathering() + 1);
}

/* The number of packs of a flight that the warp has. Missing packs are not waited for. */
__device__ __forceinline__ unsigned count_of(size_t first, size_t block, size_t end,
                                             unsigned flight)
{
    size_t of_warp = first - threadIdx.x % 32;
    unsigned count = 0;
    for (unsigned k = 0; k < flight; k++)
        count += of_warp + k * block < end;
    return count;
}

__device__ __forceinline__ void clear_words()
{
    for (unsigned k = threadIdx.x; k < exact_words; k += blockDim.x)
        gathering()->word[k] = 0;
    if (threadIdx.x == 0) {
        gathering()->low = Gathering::nowhere;
        gathering()->is_used = 0;
    }
}

/* Adds to a word. Any thread may call this. */
__device__ __forceinline__ void add_digit(unsigned k, long long digit)
{
    if (digit == 0)
        return;
    atomicAdd(&gathering()->word[k], (unsigned long long)digit);
    atomicExch(&gathering()->is_used, 1u);
}

/* Adds value 2^(position - 1074). */
__device__ __forceinline__ void add_integer(long long value, unsigned position)
{
    for (unsigned i = 0; i < 3; i++)
        add_digit(position / 32 + i, digit_of(value, position % 32, i));
}

__device__ __forceinline__ void add_flags(unsigned flags)
{
    if (flags == 0)
        return;
    atomicOr(&gathering()->word[exact_digits], (unsigned long long)flags);
    atomicExch(&gathering()->is_used, 1u);
}

__device__ __forceinline__ double power_of_two(int exponent)
{
    return __hiloint2double((exponent + 1023) << 20, 0);
}

/* The sum over a warp, in all its lanes. */
__device__ __forceinline__ long long warp_total(long long value)
{
    for (unsigned offset = 16; offset > 0; offset /= 2)
        value += __shfl_xor_sync(0xffffffffu, value, offset);
    return value;
}

/* Returns the value of the lane `lanes` below this one, or 0 if there is none. */
__device__ __forceinline__ long long from_below(long long value, unsigned lanes)
{
    long long found = __shfl_up_sync(0xffffffffu, value, lanes);
    return threadIdx.x % 32 < lanes ? 0 : found;
}

/* Converts integers to digits, in a warp. `low` of lane k starts k digits above lane 0's, plus its
 * shift. `high` starts one digit further up, plus its shift. Lane k gets digit k. */
__device__ __forceinline__ long long spread(long long low, unsigned low_shift, long long high = 0,
                                            unsigned high_shift = 0)
{
    long long digit = digit_of(low, low_shift, 0);
    digit += from_below(digit_of(low, low_shift, 1) + digit_of(high, high_shift, 0), 1);
    digit += from_below(digit_of(low, low_shift, 2) + digit_of(high, high_shift, 1), 2);
    return digit + from_below(digit_of(high, high_shift, 2), 3);
}

/* Moves the sums to the words, which hold far more. Called by all threads of the block. */
template <typename Deposits> __device__ __forceinline__ void start_anew(Deposits &deposit)
{
    deposit.leave();
    __syncthreads();
    if (threadIdx.x < 32) {
        unsigned k;
        long long digit = deposit.merge(k);
        add_digit(k, digit);
    }
    __syncthreads();
    deposit.clear();
}

/* Returns word k after a carry, less than 2^33: every word but the topmost passes its upper half to
 * the next. Each flag gets 16 bits, enough to count blocks. */
__device__ __forceinline__ long long carried(unsigned k, unsigned first, unsigned top)
{
    const unsigned long long *word = gathering()->word;
    if (k == exact_digits)
        return (long long)((word[k] & 1) | (word[k] & 2) << 15 | (word[k] & 4) << 30);
    long long low = k < top ? (long long)(unsigned)word[k] : (long long)word[k];
    return low + (k > first ? (long long)word[k - 1] >> 32 : 0);
}

/* Converts the counted flags back: a flag is set if its count is not 0. */
__device__ __forceinline__ long long flags_of(long long counted)
{
    return ((counted & 0xffff) != 0) | ((counted >> 16 & 0xffff) != 0) << 1 |
           (counted >> 32 != 0) << 2;
}

static_assert((GR_EXACT_NAN | GR_EXACT_PLUS_INF | GR_EXACT_MINUS_INF) == 7, "three flags");

/* Adds this block's digits to the totals and counts the blocks, by one atomic per word, whose upper
 * 14 bits are the count. The last block to add to a word writes its sum to `out` and resets the
 * word to zero. No block waits for another, and no word for another. A block adds less than 2^35 to
 * each word, so the sum of 2^14 blocks fits below the count. (float16's topmost word may get more,
 * from 2^33 elements on. As nothing carries out of it, it is the sum itself in units of 2^14, and
 * 2^46 elements fit.) As in finish_in_last_block, only the first warp continues. */
template <typename Deposits>
__device__ __forceinline__ void finish_digits(Deposits &deposit, unsigned long long *out,
                                              unsigned long long *totals)
{
    constexpr unsigned first = Deposits::first_word, words = Deposits::words + 1;
    constexpr unsigned flight = (words + 31) / 32, bits = 64 - GR_EXACT_COUNT_BITS;
    unsigned long long mine[flight], before[flight];
    bool is_last = false;
    unsigned k;
    auto word_of = [](unsigned i) {
        unsigned which = threadIdx.x + 32 * i;
        return which < words - 1 ? first + which : exact_digits;
    };

    deposit.leave();
    __syncthreads();
    if (threadIdx.x >= 32)
        return;
    long long digit = deposit.merge(k);
    __syncwarp();
    bool is_used = gathering()->is_used != 0;
    for (unsigned i = 0; i < flight; i++) {
        unsigned word = word_of(i);
        bool is_mine = word < exact_digits && word == k;
        mine[i] = (is_mine ? (unsigned long long)digit : 0) + (1ull << bits);
    }
    if (is_used)
        for (unsigned i = 0; i < flight; i++)
            mine[i] += (unsigned long long)carried(word_of(i), first, first + words - 2);
    /* A loop of its own: shared-memory reads are not moved ahead of an atomic. */
    for (unsigned i = 0; i < flight; i++) {
        before[i] = 0;
        if (gridDim.x > 1 && threadIdx.x + 32 * i < words)
            before[i] = atomicAdd(&totals[word_of(i)], mine[i]);
    }
    for (unsigned i = 0; i < flight; i++) {
        unsigned which = threadIdx.x + 32 * i, word = word_of(i);
        unsigned long long sum = before[i] + mine[i];
        long long total = (long long)(sum << GR_EXACT_COUNT_BITS) >> GR_EXACT_COUNT_BITS;
        if (which < words && (sum - (unsigned long long)total) >> bits == gridDim.x) {
            if (gridDim.x > 1)
                atomicAdd(&totals[word], 0 - sum); /* the old value is unused: no wait */
            out[word] = (unsigned long long)(word == exact_digits ? flags_of(total) : total);
            is_last |= word == exact_digits;
        }
    }
    if (__any_sync(0xffffffffu, is_last))
        for (unsigned word = threadIdx.x; word < exact_digits; word += 32)
            if (word - first >= words - 1)
                out[word] = 0;
}

#include "exact_bins.h"
#include "exact_extract.h"
