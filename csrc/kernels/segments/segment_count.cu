/* segment_count: counts the rows of each segment, where ids are not sorted.
 *
 * An atomic addition for each element of a long row costs more than to put the rows in order first:
 * then each segment is added up as if its rows lay one after another. Lanes of the same id add to
 * its count once.
 *
 * Still wasted: the ids are read twice. */
#include "parts/segment_order.h"

template <typename In, typename Word> __global__ void segment_count(gr_segment_job of)
{
    if (!needs_order(of))
        return;
    for_each_id(of, [&](uint64_t row, unsigned long long id, unsigned peers) {
        if (id < of.segments && is_first_of(peers))
            atomicAdd(of.counts + id, (unsigned)__popc(peers));
        if (id >= of.segments && row < of.rows)
            note_place(&of.state->bad, row);
    });
}
