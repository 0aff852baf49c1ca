/* Where the rows of segments are, and their sums. */
#ifndef GPUREDUCE_KERNEL_SEGMENT_PLACES_H
#define GPUREDUCE_KERNEL_SEGMENT_PLACES_H

#include "segments.h"

/* Where the rows of a segment begin and end: in memory, or in `order`. Both are at most the number
 * of rows. So if offsets or ids change after their check, sums are wrong, but no address is. */
struct Bounds {
    uint64_t begin, end;

    __device__ __forceinline__ Bounds(const gr_segment_job &of, uint64_t first, uint64_t last)
        : end(last < of.rows ? last : of.rows)
    {
        begin = first < end ? first : end;
    }

    /* The bounds of segment k. */
    static __device__ __forceinline__ Bounds segment(const gr_segment_job &of, uint64_t k)
    {
        if (of.by_offsets) {
            const char *at = static_cast<const char *>(of.index.base) + (int64_t)k * of.index.step;
            return Bounds(of, index_from(at, of.index.load),
                          index_from(at + of.index.step, of.index.load));
        }
        if (needs_order(of))
            return Bounds(of, of.ends[k] - of.counts[k], of.ends[k]);
        return Bounds(of, of.offsets[k], of.offsets[k + 1]);
    }
};

/* The number of a row, read from `order`. If ids have changed after their check, it may be any:
 * then the last row's is returned. */
__device__ __forceinline__ uint64_t row_in(const gr_segment_job &of, unsigned number)
{
    return number < of.rows ? number : of.rows - 1;
}

/* How many numbers segments may have. A segment's number is its id. With `by_row` it is its place
 * in `own`, or that of its first row if the ids are sorted: segments without rows take no time. */
__device__ __forceinline__ uint64_t numbers_of(const gr_segment_job &of)
{
    if (of.own && needs_order(of))
        return of.state->claimed >> 32;
    return of.by_row ? of.rows : of.segments;
}

/* The threads that share these segments, and the calling thread's number among them. */
__device__ __forceinline__ uint64_t threads_of(const gr_segment_job &)
{
    return (uint64_t)gridDim.x * blockDim.x;
}

__device__ __forceinline__ uint64_t thread_of(const gr_segment_job &)
{
    return (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

/* A segment and its rows. */
struct Segment {
    uint64_t k;
    Bounds rows;
};

/* The segment that has this number. It has no rows if there is none. */
template <typename Job>
__device__ __forceinline__ Segment segment_numbered(const Job &of, uint64_t number)
{
    Segment none = {0, Bounds(of, 0, 0)};
    if (number >= numbers_of(of))
        return none;
    if (of.own && needs_order(of)) {
        gr_own_segment own = of.own[number];
        return {own.k, Bounds(of, own.begin, own.end)};
    }
    if (!of.by_row)
        return {number, Bounds::segment(of, number)};
    uint64_t id = index_at(of.index, number); /* may be any if ids have changed after their check */
    uint64_t k = id < of.segments ? id : of.segments - 1;
    Bounds rows = Bounds::segment(of, k);
    return rows.begin == number ? Segment{k, rows} : none;
}

/* Searches sorted ids for the first row of a segment, or of a later one if it has none: the lanes
 * of a warp look at 32 rows at once. */
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
    return of.staged ? Bounds(of, first_row(of, k), first_row(of, k + 1)) : Bounds::segment(of, k);
}

/* Whether sums of rows are wanted, and the ids or offsets are right. */
__device__ __forceinline__ bool adds_rows(const gr_segment_job &of)
{
    if (!is_in_rows(of))
        return false;
    stop_if_wrong(of);
    return !of.state->bad;
}

/* The place of column c of segment k in the caller's array of sums. */
__device__ __forceinline__ char *place_in_out(const gr_segment_job &of, uint64_t k, uint64_t c)
{
    return static_cast<char *>(const_cast<void *>(of.out.base)) + (int64_t)k * of.out.row_step +
           column_offset(of.out, c);
}

/* Where the sum of column c of segment k is stored. */
__device__ __forceinline__ char *place_of_sum(const gr_segment_job &of, uint64_t k, uint64_t c)
{
    return of.staged ? of.staged + k * of.sums.bytes : place_in_out(of, k, c);
}

#endif
