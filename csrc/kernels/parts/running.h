/* Running sums: the lines that they run along, and the sums that blocks publish for other blocks.
 */
#pragma once

#include "matrix.h"
#include "shared/running.h"

/* The sum of some neighbouring elements. `begins`: sums begin anew at one of them, and this is the
 * sum from the last such element on. */
template <typename Acc> struct Run {
    Acc sum;
    bool begins;

    /* Appends the sum of the neighbours that follow. */
    __device__ __forceinline__ void append(const Run &next)
    {
        if (next.begins)
            sum = next.sum;
        else
            sum += next.sum;
        begins |= next.begins;
    }
};

template <typename Acc>
__device__ __forceinline__ Run<Acc> joined(Run<Acc> run, const Run<Acc> &next)
{
    run.append(next);
    return run;
}

template <typename Acc>
__device__ __forceinline__ Run<Acc> from_lane_below(const Run<Acc> &run, unsigned lanes)
{
    return {__shfl_up_sync(0xffffffffu, run.sum, lanes),
            __shfl_up_sync(0xffffffffu, (int)run.begins, lanes) != 0};
}

/* A sum that other blocks wait for. Each of its words has its own mark, so no fence is needed. The
 * block that writes it has drawn an earlier ticket, so it already runs. */
template <typename Acc> struct Told {
    using Word = std::conditional_t<sizeof(Acc) == sizeof(unsigned), unsigned, unsigned long long>;
    static constexpr unsigned words = sizeof(Acc) / sizeof(Word);
    Marked<Word> word[words];

    __device__ __forceinline__ void tell(const Acc &sum)
    {
        Word bits[words];
        memcpy(bits, &sum, sizeof bits);
        for (unsigned k = 0; k < words; k++)
            put_marked(&word[k], bits[k]);
    }

    __device__ __forceinline__ bool is_told(Acc *sum) const
    {
        Word bits[words];
        unsigned marks = ~0u;
        for (unsigned k = 0; k < words; k++)
            marks &= get_marked(&word[k], bits[k]);
        memcpy(sum, bits, sizeof bits);
        return marks != 0;
    }

    __device__ __forceinline__ Acc wait() const
    {
        Acc sum;
        while (!is_told(&sum))
            __nanosleep(20);
        return sum;
    }
};

/* Where a line's elements and entries lie, and where its sums begin anew. */
template <typename T> struct Line {
    const gr_running_lines &of;
    const T *in;
    char *to;
    bool is_there;
    size_t length;

    __device__ __forceinline__ Line(const gr_running_lines &of, void *entries, unsigned strip,
                                    unsigned column)
        : of(of)
    {
        unsigned outer = of.across == 1 ? strip : strip / of.across;
        uint64_t per_strip = uint64_t(of.width) * (of.turns ? of.turns : 1);
        uint64_t c = (strip - outer * of.across) * per_strip + column;
        uint64_t left = c < of.columns ? (of.columns - c + of.width - 1) / of.width : 0;
        is_there = left > 0;
        length = !left ? 0 : left < of.turns ? left * of.period : of.n;
        in = static_cast<const T *>(of.in) + outer * of.outer_step + int64_t(c) * of.column_step;
        to = static_cast<char *>(entries) + outer * of.to_outer_step +
             int64_t(c) * of.to_column_step;
    }

    __device__ __forceinline__ T element(size_t i) const
    {
        size_t turn = of.turns ? i / of.period : 0;
        return in[int64_t(i - turn * of.period) * of.step +
                  int64_t(turn * of.width) * of.column_step];
    }

    __device__ __forceinline__ void *entry(size_t i) const
    {
        size_t turn = of.turns ? i / of.period : 0;
        return to + int64_t(i - turn * of.period) * of.to_step +
               int64_t(turn * of.width) * of.to_column_step;
    }
};

template <typename T>
__device__ __forceinline__ void store_zero(const Line<T> &line, const gr_sums &of)
{
    if (line.is_there)
        store_bits(line.to - line.of.to_step, 0, of.bytes);
}

/* The number of offsets below `i`. */
__device__ __forceinline__ uint64_t offsets_below(const gr_running_lines &of, size_t i)
{
    uint64_t low = 0, high = of.offsets;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        bool is_below = size_t(of.offset[middle]) < i;
        low = is_below ? middle + 1 : low;
        high = is_below ? high : middle;
    }
    return low;
}

/* The first element, from element `i` on, at which sums begin anew. SIZE_MAX: there is none. */
__device__ __forceinline__ size_t next_beginning(const gr_running_lines &of, size_t i)
{
    if (of.offset) {
        uint64_t k = offsets_below(of, i);
        return k < of.offsets ? size_t(of.offset[k]) : SIZE_MAX;
    }
    if (of.period >= of.n)
        return i ? SIZE_MAX : 0;
    size_t past = i % of.period;
    return past ? i + of.period - past : i;
}

/* Whether sums begin anew within elements `first` to `end` - 1. */
__device__ __forceinline__ bool begins_within(const gr_running_lines &of, size_t first, size_t end)
{
    return next_beginning(of, first) < end;
}
