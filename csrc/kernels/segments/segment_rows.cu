/* segment_rows: some lanes of a warp add up a segment whose rows lie one after another.
 *
 * A segment of a few rows takes a lane per column, and a longer one up to a warp, whose lanes read
 * neighbouring elements. Segments that are much longer are cut into tasks, which segment_tasks
 * adds up: otherwise one warp would still work when all others have finished.
 *
 * Still wasted: lanes, where the segments of a warp differ in length. */
#include "parts/segment_rows.h"

template <typename In, typename Acc>
__global__ void __launch_bounds__(256, 3) segment_rows(gr_segment_job of)
{
    if (!adds_rows(of))
        return;
    for_each_segment(of, of.lanes, of.columns, 1, [&](const Part &part, const Target &target) {
        put_sums<In, Acc>(of, part, target, [&](auto &sum, Sizes<In> &sizes) {
            sum = sum_of_rows<std::decay_t<decltype(sum)>, Acc>(of, part, sizes);
        });
    });
}
