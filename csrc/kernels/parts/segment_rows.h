/* Rows of segments whose rows lie one after another. */
#ifndef GPUREDUCE_KERNEL_SEGMENT_ROWS_H
#define GPUREDUCE_KERNEL_SEGMENT_ROWS_H

#include "segments.h"

/* Where the rows of a segment begin and end: in memory, or in their order. They are rows of the
 * values whatever is in memory: offsets and ids that change after their check make wrong sums, and
 * no wrong addresses. */
struct Bounds {
    uint64_t begin, end;

    __device__ __forceinline__ Bounds(const gr_segment_job &of, uint64_t first, uint64_t last)
        : end(last < of.rows ? last : of.rows)
    {
        begin = first < end ? first : end;
    }

    /* Those of segment k. */
    __device__ __forceinline__ Bounds(const gr_segment_job &of, uint64_t k)
        : Bounds(of,
                 of.by_offsets     ? index_at(of.index, k)
                 : needs_order(of) ? of.ends[k] - of.counts[k]
                                   : of.offsets[k],
                 of.by_offsets     ? index_at(of.index, k + 1)
                 : needs_order(of) ? of.ends[k]
                                   : of.offsets[k + 1])
    {
    }

    static __device__ __forceinline__ Bounds if_any(const gr_segment_job &of, uint64_t k)
    {
        return k < of.segments ? Bounds(of, k) : Bounds(of, 0, 0);
    }
};

/* The first row of a segment, or of those after it, of sorted ids: searched by a warp. */
__device__ __forceinline__ uint64_t first_row(const gr_segment_job &of, uint64_t segment)
{
    uint64_t begin = 0, end = of.rows;
    while (begin < end) {
        uint64_t step = (end - begin + 31) / 32, at = begin + threadIdx.x % 32 * step;
        bool is_before = at < end && index_at(of.index, at) < segment;
        unsigned before = (unsigned)__popc(__ballot_sync(0xffffffffu, is_before));
        if (before == 0)
            return begin;
        end = begin + before * step < end ? begin + before * step : end;
        begin += (before - 1) * step + 1;
    }
    return begin;
}

/* The rows of segment k. Called by all lanes of a warp. */
__device__ __forceinline__ Bounds rows_of(const gr_segment_job &of, uint64_t k)
{
    return of.staged ? Bounds(of, first_row(of, k), first_row(of, k + 1)) : Bounds(of, k);
}

/* Whether sums of rows are wanted, and the ids or offsets are right. */
__device__ __forceinline__ bool adds_rows(const gr_segment_job &of)
{
    return is_in_rows(of) && !of.state->bad;
}

/* A row's number, as the order has it. It is that of a row whatever is in memory. */
__device__ __forceinline__ uint64_t row_in(const gr_segment_job &of, unsigned number)
{
    return number < of.rows ? number : of.rows - 1;
}

template <typename Sum, typename Acc, typename In, typename Piece, unsigned count>
__device__ __forceinline__ void add_to_part(Sum &sum, Sizes<In> &sizes, const Piece (&piece)[count])
{
    if constexpr (is_short<Acc, Sum>)
        for (unsigned k = 0; k < count; k++)
            add_short<Acc>(sum, sizes, piece[k]);
    else
        add_pieces_to<In>(sum, piece);
}

/* Rows begin to end of column c, as the lanes of a group read them: lane `member` of `members`. */
struct Part {
    uint64_t c, begin, end;
    unsigned member, members;
};

/* Adds numbers that lie `step` bytes apart, one at a time. */
template <typename Sum, typename Acc, typename In>
__device__ __forceinline__ Sum sum_of_elements(const Part &part, const char *column, int64_t step,
                                               Sizes<In> &sizes)
{
    constexpr unsigned flight = 8;
    const char *at = column + (int64_t)part.member * step;
    int64_t apart = (int64_t)part.members * step;
    Sum sum = 0;
    for (uint64_t row = part.begin + part.member; row < part.end;
         row += flight * part.members, at += flight * apart) {
        In value[flight];
        for (unsigned k = 0; k < flight; k++) {
            value[k] = In{};
            if (row + k * part.members < part.end)
                value[k] = *reinterpret_cast<const In *>(at + k * apart);
        }
        add_to_part<Sum, Acc>(sum, sizes, value);
    }
    return sum;
}

/* The same of neighbours in memory, by packs. */
template <typename Sum, typename Acc, typename In>
__device__ __forceinline__ Sum sum_of_packs(const Part &part, const In *in, Sizes<In> &sizes)
{
    constexpr unsigned flight = 4;
    Packed<const In *> packed(in, part.end - part.begin);
    Sum sum = 0;
    for (uint64_t i = part.member; i < packed.packs; i += flight * part.members) {
        Pack<In> pack[flight];
        for (unsigned k = 0; k < flight; k++)
            pack[k] = packed.or_zero(i + k * part.members, packed.packs);
        add_to_part<Sum, Acc>(sum, sizes, pack);
    }
    for (uint64_t i = part.member; i < packed.head + packed.tail; i += part.members)
        add_short<Acc>(sum, sizes,
                       i < packed.head ? in[i] : in[i + packed.packs * Pack<In>::count]);
    return sum;
}

/* The same of rows that have been put in order. */
template <typename Acc, typename In>
__device__ __forceinline__ Acc sum_in_order(const gr_segment_job &of, const Part &part,
                                            const char *column)
{
    constexpr unsigned flight = 8;
    uint64_t i = part.begin + part.member;
    unsigned next[flight]; /* numbers of rows, loaded before they are needed */
    auto look_up = [&] {
        for (unsigned k = 0; k < flight; k++)
            next[k] = i + k * part.members < part.end ? of.order[i + k * part.members] : 0;
    };
    Acc sum = 0;
    look_up();
    while (i < part.end) {
        In value[flight];
        for (unsigned k = 0; k < flight; k++) {
            value[k] = In{};
            if (i + k * part.members < part.end)
                value[k] = *reinterpret_cast<const In *>(column + (int64_t)row_in(of, next[k]) *
                                                                      of.values.row_step);
        }
        i += flight * part.members;
        look_up();
        add_pieces_to<In>(sum, value);
    }
    return sum;
}

/* A lane's part of a sum. `sizes` tell whether it is exact, if it is short. */
template <typename Sum, typename Acc, typename In>
__device__ __forceinline__ Sum sum_of_rows(const gr_segment_job &of, const Part &part,
                                           Sizes<In> &sizes)
{
    int64_t step = of.values.row_step;
    const char *column =
        static_cast<const char *>(of.values.base) + column_offset(of.values, part.c);
    const char *first = column + (int64_t)part.begin * step;
    if (part.begin >= part.end)
        return Sum(0);
    if constexpr (!is_short<Acc, Sum>)
        if (needs_order(of))
            return sum_in_order<Acc, In>(of, part, column);
    if (of.columns == 1 && step == (int64_t)sizeof(In) && part.members > 1)
        return sum_of_packs<Sum, Acc>(part, reinterpret_cast<const In *>(first), sizes);
    return sum_of_elements<Sum, Acc>(part, first, step, sizes);
}

/* Where the sum of column c of segment k is stored. */
__device__ __forceinline__ char *place_of_sum(const gr_segment_job &of, uint64_t k, uint64_t c)
{
    if (of.staged)
        return of.staged + k * of.sums.bytes;
    return static_cast<char *>(const_cast<void *>(of.out.base)) + (int64_t)k * of.out.row_step +
           column_offset(of.out, c);
}

/* Rounds and stores the sum of column c of segment k. */
template <typename Acc, typename Sum>
__device__ __forceinline__ void put_segment(const gr_segment_job &of, uint64_t k, uint64_t c,
                                            Sum sum)
{
    char *to = place_of_sum(of, k, c);
    if constexpr (is_short<Acc, Sum>) {
        double rounded;
        if (round_short(of.sums, sum, &rounded))
            return store_sum(to, of.sums, rounded);
    }
    finish_sum(to, of.sums, k * of.columns + c, Acc(sum));
}

/* The sum over the lanes of a group that have the same column: the first `columns` lanes get it. */
template <typename Acc>
__device__ __forceinline__ Acc sum_of_lanes(Acc sum, unsigned lanes, unsigned columns)
{
    for (unsigned offset = lanes / 2; offset >= columns; offset /= 2)
        sum += __shfl_down_sync(0xffffffffu, sum, offset);
    return sum;
}

/* Adds up and stores the segments of a warp by short sums. Returns false, in all lanes, if one of
 * these might round. */
template <typename In, typename Acc>
__device__ __forceinline__ bool put_short_segment(const gr_segment_job &of, const Part &part,
                                                  unsigned lanes, unsigned columns, uint64_t k,
                                                  bool stores)
{
    using Short = ShortSum<Acc, In>;
    if constexpr (!is_short<Acc, Short>) {
        return false;
    } else {
        Sizes<In> sizes;
        unsigned most = largest_in_warp((unsigned)(part.end - part.begin));
        if (most > sizes.few || needs_order(of))
            return false;
        Short sum = sum_of_rows<Short, Acc>(of, part, sizes);
        if (!sizes.allow_in_warp(most))
            return false;
        sum = sum_of_lanes(sum, lanes, columns);
        if (stores)
            put_segment<Acc>(of, k, part.c, sum);
        return true;
    }
}

#endif
