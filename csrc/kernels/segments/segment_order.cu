/* segment_order: puts the numbers of the rows in order, segment by segment.
 *
 * The rows of a segment take its places in any order: sums that are rounded once do not depend on
 * it. With few segments, each block counts its rows, and claims places for all of them at once.
 *
 * Still wasted: a number is stored where no other one of its warp is. */
#include "parts/segment_order.h"

template <typename In, typename Word> __global__ void segment_order(gr_segment_job of)
{
    unsigned *next = of.orders_in_shared ? shared_array<unsigned>() : of.ends;

    if (!needs_order(of) || of.state->bad)
        return;
    if (of.orders_in_shared) {
        clear_counts(of, next);
        for_each_id(of, [&](uint64_t, unsigned long long id, unsigned peers) {
            if (id < of.segments && is_first_of(peers))
                atomicAdd(next + id, (unsigned)__popc(peers));
        });
        __syncthreads();
        for (uint64_t k = threadIdx.x; k < of.segments; k += blockDim.x)
            if (next[k])
                next[k] = atomicAdd(of.ends + k, next[k]);
        __syncthreads();
    }
    for_each_id(of, [&](uint64_t row, unsigned long long id, unsigned peers) {
        unsigned lane = threadIdx.x % 32, first = 0;
        bool is_there = id < of.segments; /* ids may have changed since they were counted */
        if (is_there && is_first_of(peers))
            first = atomicAdd(next + id, (unsigned)__popc(peers));
        first = __shfl_sync(0xffffffffu, first, __ffs((int)peers) - 1);
        uint64_t place = first + (unsigned)__popc(peers & ((1u << lane) - 1));
        if (is_there && place < of.rows)
            of.order[place] = (unsigned)row;
    });
}
