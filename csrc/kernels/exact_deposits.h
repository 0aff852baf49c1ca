/* How threads deposit floats without rounding, and how that becomes digits.
 *
 * Digits: a number is the sum of digit[k] 2^(32 k - 1074), each digit a signed 64-bit integer, for
 * every float is a multiple of 2^-1074. The word after them holds flags, as in exact/exact.h. A
 * digit gets less than 2^32 at a time, so 2^31 additions cannot overflow it.
 *
 * Deposit<T> is what a thread has: `add` takes a flight of packs, of which the warp has `count`,
 * and `empty` is called after so many rounds. At the end all threads of the block call `finish`,
 * and then the first warp `merge`: it makes words of what they left in the gathering. Sums made on
 * the way go to `sum`: all blocks' totals, or a single block's own words. */
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
    unsigned long long word[GR_EXACT_WORDS + 1]; /* of an even number of words in all */
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

/* How many packs of a flight the warp has: nothing waits for those that are not there. */
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
}

/* An integer is at most three digits: the first, the second or the third one. */
__device__ __forceinline__ long long digit_of(long long value, unsigned shift, unsigned which)
{
    long long rest = value >> (32 - shift);
    return which == 0   ? (long long)((unsigned long long)value << shift & 0xffffffff)
           : which == 1 ? rest & 0xffffffff
           : which == 2 ? rest >> 32
                        : 0;
}

/* Adds value 2^(position - 1074). */
__device__ __forceinline__ void add_integer(unsigned long long *sum, long long value,
                                            unsigned position)
{
    for (unsigned i = 0; i < 3; i++) {
        long long digit = digit_of(value, position % 32, i);
        if (digit)
            atomicAdd(&sum[position / 32 + i], (unsigned long long)digit);
    }
}

__device__ __forceinline__ void add_flags(unsigned long long *sum, unsigned flags)
{
    if (flags)
        atomicOr(&sum[exact_digits], (unsigned long long)flags);
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

/* The sum over a warp, in all its lanes. */
__device__ __forceinline__ long long warp_total(long long value)
{
    for (unsigned offset = 16; offset > 0; offset /= 2)
        value += __shfl_xor_sync(0xffffffffu, value, offset);
    return value;
}

/* Adds the first warp's integers, one a lane, each position `step` above that of the lane before,
 * to the block's words: each lane one digit, so that none is added to twice. At most six integers
 * share a digit if step is 16, and three if it is 32. */
template <unsigned step, unsigned integers>
__device__ __forceinline__ void merge_in_steps(unsigned position)
{
    constexpr unsigned sharing = 96 / step;
    unsigned k = position / 32 + threadIdx.x;
    int above = 32 * (int)threadIdx.x - 64 - (int)(position % 32); /* digit k - 2 above integer 0 */
    int first = (above + (int)step - 1) / (int)step;
    long long digit = 0;
    if (threadIdx.x > integers * step / 32 + 2)
        return;
    for (int i = first; i < first + (int)sharing; i++)
        if (i >= 0 && i < (int)integers) {
            unsigned at = position + step * (unsigned)i;
            digit += digit_of(gathering()->value[i], at % 32, k - at / 32);
        }
    gathering()->word[k] += (unsigned long long)digit;
}

/* Adds this block's words to the others'. The last block writes the totals out, and leaves them
 * zero. As in finish_in_last_block, only the first warp is left, and nobody waits at a barrier. */
template <typename Deposits>
__device__ __forceinline__ void finish_digits(Deposits &deposit, unsigned long long *out,
                                              unsigned long long *totals, unsigned *ticket)
{
    constexpr unsigned flight = (exact_words + 31) / 32;
    unsigned long long word[flight];
    unsigned drawn = 0;

    __syncthreads();
    if (threadIdx.x >= 32)
        return;
    deposit.merge();
    __syncwarp();
    for (unsigned i = 0; i < flight; i++) {
        unsigned k = threadIdx.x + 32 * i;
        word[i] = k < exact_words ? gathering()->word[k] : 0;
    }
    if (gridDim.x > 1) {
        for (unsigned i = 0; i < flight; i++) {
            unsigned k = threadIdx.x + 32 * i;
            if (word[i] != 0 && k < exact_digits)
                atomicAdd(&totals[k], word[i]);
            else if (word[i] != 0)
                atomicOr(&totals[k], word[i]);
        }
        __syncwarp();
        if (threadIdx.x == 0)
            drawn = draw_ticket(ticket, gridDim.x - 1);
        __syncwarp();
        if (__shfl_sync(0xffffffffu, drawn, 0) != gridDim.x - 1)
            return;
        for (unsigned i = 0; i < flight; i++) {
            unsigned k = threadIdx.x + 32 * i;
            word[i] = k < exact_words ? load_fresh(&totals[k]) : 0;
        }
        for (unsigned i = 0; i < flight; i++)
            if (threadIdx.x + 32 * i < exact_words)
                totals[threadIdx.x + 32 * i] = 0;
    }
    for (unsigned i = 0; i < flight; i++)
        if (threadIdx.x + 32 * i < exact_words)
            out[threadIdx.x + 32 * i] = word[i];
}

#include "exact_bins.h"
#include "exact_extract.h"

#endif
