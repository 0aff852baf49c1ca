/* Sums of segments whose rows lie one after another, or whose row numbers do in `order`. */
#ifndef GPUREDUCE_KERNEL_SEGMENT_ROWS_H
#define GPUREDUCE_KERNEL_SEGMENT_ROWS_H

#include "segment_again.h"

/* Adds elements or packs. A short sum (ShortSum in accumulate.h) also notes their sizes. */
template <typename Sum, typename Acc, typename In, typename Piece, unsigned count>
__device__ __forceinline__ void add_to_part(Sum &sum, Sizes<In> &sizes, const Piece (&piece)[count])
{
    if constexpr (is_short<Acc, Sum>)
        for (unsigned k = 0; k < count; k++)
            add_short<Acc>(sum, sizes, piece[k]);
    else
        add_pieces_to<In>(sum, piece);
}

/* The rows of a segment that one lane reads: every `members`-th, from the `member`-th on. */
struct Part {
    const char *column; /* the lane's column in the first row of the values */
    uint64_t begin, end;
    unsigned member, members;
    bool in_order; /* `begin` and `end` are places in the order of the rows */
};

/* Adds numbers that lie `step` bytes apart, one at a time. */
template <typename Sum, typename Acc, typename In>
__device__ __forceinline__ Sum sum_of_elements(const Part &part, const char *first, int64_t step,
                                               Sizes<In> &sizes)
{
    constexpr unsigned flight = 8;
    const char *at = first + (int64_t)part.member * step;
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

/* The same for neighbours in memory, by loads of packs. */
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

/* The same for rows whose numbers lie one after another in `order`. */
template <typename Acc, typename In>
__device__ __forceinline__ Acc sum_in_order(const gr_segment_job &of, const Part &part)
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
                value[k] = *reinterpret_cast<const In *>(
                    part.column + (int64_t)row_in(of, next[k]) * of.values.row_step);
        }
        i += flight * part.members;
        look_up();
        add_pieces_to<In>(sum, value);
    }
    return sum;
}

/* Adds up a lane's part of a sum. `sizes` tell in the end whether a short sum is exact. */
template <typename Sum, typename Acc, typename In>
__device__ __forceinline__ Sum sum_of_rows(const gr_segment_job &of, const Part &part,
                                           Sizes<In> &sizes)
{
    int64_t step = of.values.row_step;
    const char *first = part.column + (int64_t)part.begin * step;
    if (part.begin >= part.end)
        return Sum(0);
    if constexpr (!is_short<Acc, Sum>)
        if (part.in_order)
            return sum_in_order<Acc, In>(of, part);
    if (of.columns == 1 && step == (int64_t)sizeof(In) && part.members > 1)
        return sum_of_packs<Sum, Acc>(part, reinterpret_cast<const In *>(first), sizes);
    return sum_of_elements<Sum, Acc>(part, first, step, sizes);
}

/* Rounds and stores a sum. Its number is that of its segment times the columns, plus its column.
 * Returns false if the rounding is not proven. */
template <typename In, typename Acc, typename Sum>
__device__ __forceinline__ bool is_segment_put(const gr_segment_job &of, char *to, uint64_t number,
                                               Sum sum)
{
    if constexpr (is_short<Acc, Sum>) {
        double rounded;
        if (round_short(of.sums, sum, &rounded)) {
            store_usual<In>(to, of.sums, rounded);
            return true;
        }
    }
    if constexpr (is_proven<Acc>)
        return store_proven(to, of.sums, number, Acc(sum));
    finish_sum(to, of.sums, number, Acc(sum));
    return true;
}

/* Adds up over the lanes of a group that have the same columns. The group's first `with_own` lanes
 * get the sums: one for each lane with columns of its own. */
template <typename Acc>
__device__ __forceinline__ Acc sum_of_lanes(Acc sum, unsigned lanes, unsigned with_own)
{
    for (unsigned offset = lanes / 2; offset >= with_own; offset /= 2)
        sum += __shfl_down_sync(0xffffffffu, sum, offset);
    return sum;
}

/* Where a lane stores the sum of a segment, and which lanes have parts of it. */
struct Target {
    char *to;          /* the address for the lane's first column */
    uint64_t number;   /* of that sum: see is_segment_put() */
    bool stores;       /* whether this lane stores a sum */
    unsigned lanes;    /* of a group, which adds up one segment */
    unsigned with_own; /* lanes of a group with columns of their own; others have other rows */

    /* The job's sums, of which the one with this number lies at `to`. */
    template <typename Acc>
    __device__ __forceinline__ Sums<Acc> sums(const gr_segment_job &of) const
    {
        Sums<Acc> found = {of.sums};
        found.of.unproven = NULL; /* it returns which sums are unproven */
        found.of.base = (void *)((uintptr_t)to - number * of.sums.bytes);
        return found;
    }
};

/* Cuts the long segments of a warp's groups into tasks. Called by all lanes. There is room for all
 * tasks unless offsets have changed after their check: then some are dropped. */
__device__ __forceinline__ void put_tasks(const gr_segment_job &of, unsigned lanes, bool is_long,
                                          uint64_t number, const Bounds &rows)
{
    gr_segment_state *state = of.state;
    unsigned member = threadIdx.x % lanes, place = 0;
    unsigned long long count = (rows.end - rows.begin + of.task_rows - 1) / of.task_rows, first = 0;
    if (blockIdx.y != 0 || !__any_sync(0xffffffffu, is_long))
        return;
    if (is_long && member == 0) {
        first = atomicAdd(reinterpret_cast<unsigned long long *>(&state->tasks), count);
        place = atomicAdd(&state->long_segments, 1u);
        if (place < of.long_room)
            of.longs[place] = {number, first, first + count <= of.task_room ? count : 0};
    }
    first = __shfl_sync(0xffffffffu, first, int(threadIdx.x % 32 - member));
    place = __shfl_sync(0xffffffffu, place, int(threadIdx.x % 32 - member));
    for (uint64_t i = member; is_long && i < count && first + i < of.task_room; i += lanes) {
        uint64_t begin = rows.begin + i * of.task_rows;
        uint64_t end = begin + of.task_rows < rows.end ? begin + of.task_rows : rows.end;
        of.task[first + i] = {place, begin, end};
    }
}

/* Calls add(part, target) for all segments, each in a group of `lanes` lanes. A row has `pieces`
 * pieces of `width` columns, and each call is for one piece of the lane's rows. Long segments
 * become tasks: their parts have no rows and are not stored. All lanes of a warp call add equally
 * often. If it returns false, sums are marked as unproven, and are added up again in the end.
 * Before that, put_whole(k, rows, stores) may store all columns of a warp's segments, and return
 * true. */
template <typename Acc, typename Job, typename PutWhole, typename Add>
__device__ __forceinline__ void for_each_segment(const Job &of, unsigned lanes, uint64_t pieces,
                                                 unsigned width, PutWhole put_whole, Add add)
{
    unsigned bits = __ffs((int)lanes) - 1; /* a shift takes fewer instructions than a division */
    uint64_t groups = threads_of(of) >> bits, first = thread_of(of) >> bits;
    unsigned piece_bits = column_lane_bits(pieces), with_own = 1u << piece_bits;
    unsigned member = threadIdx.x & (lanes - 1), lane_row = member >> piece_bits;
    uint64_t of_warp = first - (threadIdx.x % 32 >> bits); /* of the warp's first lane */
    bool in_order = needs_order(of), is_all_put = true;

    Segment next = segment_numbered(of, first); /* loaded a turn early */
    for (uint64_t turn = of_warp; turn < numbers_of(of); turn += groups) {
        uint64_t number = turn + (threadIdx.x % 32 >> bits);
        uint64_t k = next.k;
        Bounds rows = next.rows;
        next = segment_numbered(of, number + groups);
        bool is_long = rows.end - rows.begin > of.long_rows;
        bool is_there = of.in_place ? rows.begin < rows.end : number < numbers_of(of);
        bool is_put = put_whole(k, rows, is_there && !is_long);
        for (uint64_t tile = (uint64_t)blockIdx.y * with_own; tile < pieces && !is_put;
             tile += (uint64_t)gridDim.y * with_own) {
            uint64_t piece = tile + member % with_own, c = piece < pieces ? piece * width : 0;
            bool adds = !is_long && piece < pieces;
            const char *column =
                static_cast<const char *>(of.values.base) + column_offset(of.values, c);
            Part part = {column,   rows.begin,          adds ? rows.end : rows.begin,
                         lane_row, lanes >> piece_bits, in_order};
            is_all_put &= add(part, Target{place_in_out(of, k, c), number * of.columns + c,
                                           adds && lane_row == 0 && is_there, lanes, with_own});
        }
        put_tasks(of, lanes, is_long, number, rows);
    }
    if constexpr (is_proven<Acc>)
        if (__any_sync(0xffffffffu, !is_all_put))
            add_marked_again(of, 32 >> bits);
}

/* For for_each_segment(), if a lane has one column. */
struct PutNoWhole {
    __device__ __forceinline__ bool operator()(uint64_t, const Bounds &, bool) const
    {
        return false;
    }
};

/* Adds up and stores the segments of a warp: as short sums, if all of these are exact. Calls
 * add(sum, sizes), which adds the rows of this lane. `sizes` tell whether a short sum is exact.
 * Returns false if this lane has marked a sum as unproven. */
template <typename In, typename Acc, typename Add>
__device__ __forceinline__ bool put_sums(const gr_segment_job &of, const Part &part,
                                         const Target &target, Add add)
{
    auto put = [&](auto sum) {
        sum = sum_of_lanes(sum, target.lanes, target.with_own);
        bool is_put = !target.stores || is_segment_put<In, Acc>(of, target.to, target.number, sum);
        if (!is_put)
            mark_unproven(of.sums, target.number);
        return is_put;
    };
    using Short = ShortSum<Acc, In>;
    Sizes<In> sizes;
    auto add_held = [&](auto &sum) {
        if (of.in_place && target.stores)
            add_short<Acc>(sum, sizes, *reinterpret_cast<const In *>(target.to));
    };
    Acc sum = 0;
    if constexpr (is_short<Acc, Short>) {
        Short few = 0;
        unsigned most = largest_in_warp((unsigned)(part.end - part.begin)) + (of.in_place != 0);
        if (most <= sizes.few && !part.in_order) {
            add(few, sizes);
            add_held(few);
            if (sizes.allow_in_warp(most))
                return put(few);
        }
    }
    add(sum, sizes);
    add_held(sum);
    return put(sum);
}

#endif
