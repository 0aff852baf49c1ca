/* Running sums in digits of 32 bits. Only entries are rounded, when they are stored. */
#pragma once

#include "running.h"

/* The digits of a sum that grows. */
struct GrowingDigits {
    long long digit[GR_EXACT_DIGITS] = {};
    int low = GR_EXACT_DIGITS, end = 0; /* the digits that are not 0 lie from `low` to `end` - 1 */
    unsigned flags = 0;

    __device__ __forceinline__ void begin()
    {
        for (int k = low; k < end; k++)
            digit[k] = 0;
        low = GR_EXACT_DIGITS;
        end = 0;
        flags = 0;
    }

    __device__ __forceinline__ void put(int k, long long value)
    {
        if (!value)
            return;
        digit[k] += value;
        low = k < low ? k : low;
        end = k < end ? end : k + 1;
    }

    __device__ __forceinline__ void take_words(const int64_t *words)
    {
        for (int k = 0; k < GR_EXACT_DIGITS; k++)
            put(k, words[k]);
        flags = (unsigned)words[GR_EXACT_DIGITS];
    }

    __device__ __forceinline__ void put_words(int64_t *words) const
    {
        long long carry = 0;
        for (int k = 0; k < GR_EXACT_DIGITS; k++) {
            long long value = digit[k] + carry,
                      kept = k + 1 < GR_EXACT_DIGITS ? value & 0xffffffff : value;
            carry = (value - kept) >> 32;
            words[k] = kept;
        }
        words[GR_EXACT_DIGITS] = flags;
    }

    __device__ __forceinline__ void add(double x)
    {
        unsigned long long bits = (unsigned long long)__double_as_longlong(x);
        int field = int(bits >> 52 & 0x7ff), place = field ? field - 1 : 0;
        long long size = (long long)((bits & 0xfffffffffffff) | (field ? 1ull << 52 : 0));
        if (field == 0x7ff)
            flags |= special_flag(x);
        else
            for (unsigned i = 0; i < 3; i++) {
                long long part = digit_of(size, (unsigned)place % 32, i);
                if (place / 32 + (int)i < GR_EXACT_DIGITS)
                    put(place / 32 + (int)i, x < 0 ? -part : part);
            }
    }

    __device__ __forceinline__ unsigned long long rounded(gr_load type) const
    {
        HighestDigits highest;
        for (int k = low; k < end; k++)
            highest.give(k, digit[k]);
        return highest.rounded(flags, type);
    }
};

/* Adds the elements of walk `w` of a line. Calls use(i) after each of them. */
template <typename In, typename Use>
__device__ __forceinline__ void walk(const Line<In> &line, size_t w, GrowingDigits *sum, Use use)
{
    size_t begin = w * line.of.walk, end = begin + line.of.walk;
    size_t next = next_beginning(line.of, begin);
    for (size_t i = begin; i < end && i < line.length; i++) {
        if (i == next) {
            sum->begin();
            next = next_beginning(line.of, i + 1);
        }
        sum->add(double(typename Strided<In>::Wide(line.element(i))));
        use(i);
    }
}

/* By a warp: replaces a word of each walk of a line by the sum of that word before the walk. */
__device__ __forceinline__ void sum_before_walks(const gr_running_lines &of, int64_t *word,
                                                 size_t apart, size_t walks, bool are_flags)
{
    unsigned lane = threadIdx.x % 32;
    auto join = [&](const Run<long long> &run, const Run<long long> &next) {
        Run<long long> both = joined(run, next);
        if (are_flags && !next.begins)
            both.sum = run.sum | next.sum;
        return both;
    };
    Run<long long> carry = {0, false};
    for (size_t first = 0; first < walks; first += 32) {
        size_t w = first + lane, begin = w * of.walk;
        Run<long long> run = {0, false};
        if (w < walks)
            run = {word[w * apart], begins_within(of, begin, begin + of.walk)};
        for (unsigned lanes = 1; lanes < 32; lanes *= 2) {
            Run<long long> below = from_lane_below(run, lanes);
            if (lane >= lanes)
                run = join(below, run);
        }
        Run<long long> before = from_lane_below(run, 1);
        if (w < walks)
            word[w * apart] = lane > 0 ? join(carry, before).sum : carry.sum;
        carry = join(carry, {__shfl_sync(0xffffffffu, run.sum, 31),
                             __shfl_sync(0xffffffffu, (int)run.begins, 31) != 0});
    }
}

/* How many walks of a strip have elements up to the end of its last unproven tile. */
__device__ __forceinline__ size_t needed_walks(const gr_running_lines &of,
                                               const gr_running_memory &memory, size_t strip)
{
    size_t rows = of.in_tile / of.width, end = memory.again_end[strip] * rows;
    return ((end < of.n ? end : of.n) + of.walk - 1) / of.walk;
}

/* Whether any tile that has elements of walk `w` has an entry that is not proven. */
__device__ __forceinline__ bool is_again(const gr_running_lines &of,
                                         const gr_running_memory &memory, size_t w, size_t strip)
{
    size_t rows = of.in_tile / of.width, begin = w * of.walk, end = begin + of.walk;
    for (size_t t = begin / rows; t * rows < end && t < of.tiles; t++)
        if (memory.again[t * of.strips + strip])
            return true;
    return false;
}
