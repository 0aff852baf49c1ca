/* Rows of segments whose rows lie one after another. */
#ifndef GPUREDUCE_KERNEL_SEGMENT_ROWS_H
#define GPUREDUCE_KERNEL_SEGMENT_ROWS_H

#include "segments.h"

/* Where the rows of segment k begin and end. */
struct Bounds {
    uint64_t begin, end;

    __device__ __forceinline__ Bounds(uint64_t begin, uint64_t end) : begin(begin), end(end) {}

    __device__ __forceinline__ Bounds(const gr_segment_job &of, uint64_t k)
        : begin(of.by_offsets ? index_at(of.index, k) : of.offsets[k]),
          end(of.by_offsets ? index_at(of.index, k + 1) : of.offsets[k + 1])
    {
    }
};

/* Whether sums of rows are wanted, and the ids or offsets are right. */
__device__ __forceinline__ bool adds_rows(const gr_segment_job &of)
{
    return is_in_rows(of) && !of.state->bad;
}

/* The sum of column c over rows begin, begin + step, ... below end. */
template <typename In, typename Acc>
__device__ __forceinline__ Acc sum_of_rows(const gr_segment_job &of, uint64_t c, uint64_t begin,
                                           uint64_t end, uint64_t step)
{
    constexpr unsigned flight = 8;
    const char *at = static_cast<const char *>(of.values.base) + column_offset(of.values, c) +
                     (int64_t)begin * of.values.row_step;
    int64_t apart = (int64_t)step * of.values.row_step;
    Acc sum = 0;
    for (uint64_t row = begin; row < end; row += flight * step, at += flight * apart) {
        In value[flight];
        for (unsigned k = 0; k < flight; k++) {
            value[k] = In{};
            if (row + k * step < end)
                value[k] = *reinterpret_cast<const In *>(at + k * apart);
        }
        for (unsigned k = 0; k < flight; k++)
            if (row + k * step < end)
                add_to(sum, value[k]);
    }
    return sum;
}

/* Rounds and stores the sum of column c of segment k. */
template <typename Acc>
__device__ __forceinline__ void put_segment(const gr_segment_job &of, uint64_t k, uint64_t c,
                                            Acc sum)
{
    char *to = static_cast<char *>(const_cast<void *>(of.out.base)) + (int64_t)k * of.out.row_step +
               column_offset(of.out, c);
    finish_sum(to, of.sums, k * of.columns + c, sum);
}

/* The sum over the lanes of a group that have the same column: the first `columns` lanes get it. */
template <typename Acc>
__device__ __forceinline__ Acc sum_of_lanes(Acc sum, unsigned lanes, unsigned columns)
{
    for (unsigned offset = lanes / 2; offset >= columns; offset /= 2)
        sum += __shfl_down_sync(0xffffffffu, sum, offset);
    return sum;
}

#endif
