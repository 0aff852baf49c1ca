/* Counting the rows of each segment, to put the row numbers in order. */
#ifndef GPUREDUCE_KERNEL_SEGMENT_ORDER_H
#define GPUREDUCE_KERNEL_SEGMENT_ORDER_H

#include "segments.h"

/* The ids of some rows: a few per lane. */
struct Ids {
    static constexpr unsigned flight = 4;
    uint64_t row[flight];
    unsigned long long id[flight]; /* out of range for lanes without a row */
};

/* Calls use(ids) for all rows, by all lanes of each warp. */
template <typename Use>
__device__ __forceinline__ void for_each_id(const gr_segment_job &of, Use use)
{
    uint64_t threads = (uint64_t)gridDim.x * blockDim.x;
    uint64_t first = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (; first - threadIdx.x % 32 < of.rows; first += Ids::flight * threads) {
        Ids ids;
        for (unsigned j = 0; j < Ids::flight; j++) {
            ids.row[j] = first + j * threads;
            ids.id[j] = ids.row[j] < of.rows ? index_at(of.index, ids.row[j]) : ~0ull;
        }
        use(ids);
    }
}

/* A mask of the lanes of a warp that have this lane's id. If no two neighbours have the same id, it
 * is this lane alone: comparing all lanes takes longer than an addition by each lane. */
__device__ __forceinline__ unsigned peers_of(unsigned long long id)
{
    unsigned lane = threadIdx.x % 32;
    unsigned long long before = __shfl_up_sync(0xffffffffu, id, 1);
    if (__any_sync(0xffffffffu, lane > 0 && id == before))
        return __match_any_sync(0xffffffffu, id);
    return 1u << lane;
}

/* Counts rows: for all lanes of the same id, one lane adds their number to the segment's counter.
 * The counter's value before the addition is the place of the first of these rows, and the others
 * get the places after it. */
__device__ __forceinline__ void take_places(const gr_segment_job &of, unsigned *counter,
                                            const Ids &ids, unsigned (&place)[Ids::flight])
{
    unsigned before_lane = (1u << threadIdx.x % 32) - 1, peers[Ids::flight];
    for (unsigned j = 0; j < Ids::flight; j++) {
        peers[j] = peers_of(ids.id[j]);
        place[j] = 0;
        if (ids.id[j] < of.segments && (peers[j] & before_lane) == 0)
            place[j] = atomicAdd(counter + ids.id[j], (unsigned)__popc(peers[j]));
    }
    for (unsigned j = 0; j < Ids::flight; j++) {
        unsigned first = __shfl_sync(0xffffffffu, place[j], __ffs((int)peers[j]) - 1);
        place[j] = first + (unsigned)__popc(peers[j] & before_lane);
    }
}

/* Sets a block's counts of all segments to zero. */
__device__ __forceinline__ void clear_counts(const gr_segment_job &of, unsigned *counts)
{
    for (uint64_t k = threadIdx.x; k < of.segments; k += blockDim.x)
        counts[k] = 0;
    __syncthreads();
}

/* Counts the rows of each segment, and notes the first id that is out of range. */
__device__ __forceinline__ void count_rows(const gr_segment_job &of, unsigned *counts)
{
    for_each_id(of, [&](const Ids &ids) {
        unsigned place[Ids::flight];
        take_places(of, counts, ids, place);
        for (unsigned j = 0; j < Ids::flight; j++) {
            if (!of.orders_in_shared && ids.row[j] < of.rows)
                of.places[ids.row[j]] = place[j];
            if (ids.id[j] >= of.segments && ids.row[j] < of.rows)
                note_place(&of.state->bad, ids.row[j]);
        }
    });
}

/* Claims places for the `count` rows of each lane's segment `k`: a warp claims them by one
 * addition. With `by_row`, a segment that has rows also gets a number. Returns the end of the
 * places. */
__device__ __forceinline__ unsigned claim_places(const gr_segment_job &of, uint64_t k,
                                                 unsigned count)
{
    unsigned lane = threadIdx.x % 32, upto = count, has_rows;
    unsigned long long begin = 0;
    for (unsigned offset = 1; offset < 32; offset *= 2) {
        unsigned other = __shfl_up_sync(0xffffffffu, upto, offset);
        upto += lane >= offset ? other : 0;
    }
    has_rows = __ballot_sync(0xffffffffu, count > 0);
    if (lane == 31)
        begin = atomicAdd(reinterpret_cast<unsigned long long *>(&of.state->claimed),
                          (unsigned long long)__popc(has_rows) << 32 | upto);
    begin = __shfl_sync(0xffffffffu, begin, 31);
    unsigned end = (unsigned)begin + upto;
    if (of.own && count > 0)
        of.own[(begin >> 32) + (unsigned)__popc(has_rows & ((1u << lane) - 1))] = {k, end - count,
                                                                                   end};
    return end;
}

/* Stores the numbers of some rows. If ids have changed since they were counted, a place may be any
 * number: rows whose place is out of range are dropped. */
__device__ __forceinline__ void put_rows(const gr_segment_job &of, const Ids &ids,
                                         const unsigned (&place)[Ids::flight])
{
    for (unsigned j = 0; j < Ids::flight; j++)
        if (ids.id[j] < of.segments && place[j] < of.rows)
            of.order[place[j]] = (unsigned)ids.row[j];
}

/* Stores the numbers of all rows, by the places that count_rows() has noted. */
__device__ __forceinline__ void put_in_order(const gr_segment_job &of)
{
    for_each_id(of, [&](const Ids &ids) {
        unsigned place[Ids::flight];
        for (unsigned j = 0; j < Ids::flight; j++)
            place[j] = ids.id[j] < of.segments ? of.ends[ids.id[j]] - 1 - of.places[ids.row[j]] : 0;
        put_rows(of, ids, place);
    });
}

#endif
