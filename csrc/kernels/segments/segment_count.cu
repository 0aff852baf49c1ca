/* segment_count: counts the rows of each segment, where ids are not sorted.
 *
 * An atomic addition for each element of a long row costs more than to put the rows in order first:
 * then each segment is added up as if its rows lay one after another. Lanes of the same id add to
 * its count once. With few segments, each block counts in shared memory first: otherwise all would
 * queue for a few addresses.
 *
 * Still wasted: the ids are read twice. */
#include "parts/segment_order.h"

template <typename In, typename Word> __global__ void segment_count(gr_segment_job of)
{
    unsigned *counts = of.orders_in_shared ? shared_array<unsigned>() : of.counts;

    if (!needs_order(of))
        return;
    if (of.orders_in_shared)
        clear_counts(of, counts);
    for_each_id(of, [&](uint64_t row, unsigned long long id, unsigned peers) {
        if (id < of.segments && is_first_of(peers))
            atomicAdd(counts + id, (unsigned)__popc(peers));
        if (id >= of.segments && row < of.rows)
            note_place(&of.state->bad, row);
    });
    if (!of.orders_in_shared)
        return;
    __syncthreads();
    for (uint64_t k = threadIdx.x; k < of.segments; k += blockDim.x)
        if (counts[k])
            atomicAdd(of.counts + k, counts[k]);
}
