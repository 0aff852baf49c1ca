/* segment_order_few: segment_count, segment_claim and segment_order in one launch, for few rows.
 *
 * A block waits for its threads in less time than the launch of a kernel takes. So with few rows
 * one block does all three steps. It claims places for the segments that have rows, in the turn of
 * their first rows, as there may be many segments without any.
 *
 * Still wasted: all other multiprocessors. */
#include "parts/segment_order.h"

template <typename In, typename Word>
__global__ void __launch_bounds__(1024) segment_order_few(gr_segment_job of)
{
    unsigned *next = shared_array<unsigned>();

    if (!needs_order(of))
        return;
    if (threadIdx.x == 0)
        *next = 0;
    count_rows(of, of.counts);
    __syncthreads();
    for_each_id(of, [&](const Ids &ids) {
        for (unsigned j = 0; j < Ids::flight; j++) {
            bool is_first = ids.id[j] < of.segments && of.places[ids.row[j]] == 0;
            unsigned count = is_first ? of.counts[ids.id[j]] : 0;
            unsigned begin = claim_places(next, count);
            if (is_first)
                of.ends[ids.id[j]] = begin + count;
        }
    });
    __syncthreads();
    put_in_order(of);
}
