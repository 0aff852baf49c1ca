/* segment_order_few: segment_count, segment_claim and segment_order in one launch, for few rows.
 *
 * The blocks of a cluster wait for each other in less time than the launch of a kernel takes. So
 * with few rows a single cluster does all three steps. One block would be too slow: counts and
 * places are scattered in memory, and all of them would go through one multiprocessor. Only
 * segments that have rows claim places, in the turn of their first rows: there may be many without.
 *
 * Still wasted: all other multiprocessors. */
#include "parts/segment_order.h"

#include <cooperative_groups.h>

template <typename In, typename Word>
__global__ void __launch_bounds__(512) segment_order_few(gr_segment_job of)
{
    invite_next_kernel();
    wait_for_earlier_kernels();
    cooperative_groups::cluster_group group = cooperative_groups::this_cluster();

    if (!needs_order(of))
        return;
    count_rows(of, of.counts);
    group.sync();
    for_each_id(of, [&](const Ids &ids) {
        for (unsigned j = 0; j < Ids::flight; j++) {
            bool is_first = ids.id[j] < of.segments && of.places[ids.row[j]] == 0;
            unsigned count = is_first ? of.counts[ids.id[j]] : 0;
            unsigned end = claim_places(of, ids.id[j], count);
            if (is_first)
                of.ends[ids.id[j]] = end;
        }
    });
    group.sync();
    put_in_order(of);
}
