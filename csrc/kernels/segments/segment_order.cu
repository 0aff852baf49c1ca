/* segment_order: puts the numbers of the rows in order, segment by segment.
 *
 * The rows of a segment take its places in any order. Sums that are rounded once do not depend on
 * it. */
#include "parts/segment_order.h"

template <typename In, typename Word> __global__ void segment_order(gr_segment_job of)
{
    if (!needs_order(of) || of.state->bad)
        return;
    for_each_id(of, [&](uint64_t row, unsigned long long id, unsigned peers) {
        unsigned lane = threadIdx.x % 32, first = 0;
        bool is_there = id < of.segments; /* ids may have changed since they were counted */
        if (is_there && is_first_of(peers))
            first = atomicAdd(of.ends + id, (unsigned)__popc(peers));
        first = __shfl_sync(0xffffffffu, first, __ffs((int)peers) - 1);
        uint64_t place = first + (unsigned)__popc(peers & ((1u << lane) - 1));
        if (is_there && place < of.rows)
            of.order[place] = (unsigned)row;
    });
}
