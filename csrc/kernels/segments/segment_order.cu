/* segment_order: puts the numbers of the rows in order, segment by segment.
 *
 * This is the last step of the counting sort that segment_count begins. The rows of a segment may
 * take its places in any order, because sums that are rounded once do not depend on it. With few
 * segments, each block counts its rows once more, and claims places for all of them at once.
 *
 * Still wasted: the stores of a warp are scattered: 4 bytes may take a sector of 32. */
#include "parts/segment_order.h"

template <typename In, typename Word> __global__ void segment_order(gr_segment_job of)
{
    invite_next_kernel();
    wait_for_earlier_kernels();
    unsigned *next = shared_array<unsigned>(), place[Ids::flight];

    if (!needs_order(of) || of.state->bad)
        return;
    if (!of.orders_in_shared) {
        put_in_order(of);
        return;
    }
    clear_counts(of, next);
    for_each_id(of, [&](const Ids &ids) { take_places(of, next, ids, place); });
    __syncthreads();
    for (uint64_t k = threadIdx.x; k < of.segments; k += blockDim.x)
        if (next[k])
            next[k] = atomicAdd(of.ends + k, next[k]);
    __syncthreads();
    for_each_id(of, [&](const Ids &ids) {
        take_places(of, next, ids, place);
        put_rows(of, ids, place);
    });
}
