/* segment_rows: some lanes of a warp add up a segment whose rows lie one after another.
 *
 * All segments get the same number of lanes, which depends on their mean length: one per column if
 * they have few rows, and up to a warp if they have many. Neighbouring lanes read neighbouring
 * elements. Segments that are much longer are cut into tasks for segment_tasks: otherwise one warp
 * would still work after all others have finished.
 *
 * Still wasted: lanes wait for the longest segment of their warp. */
#include "parts/segment_rows.h"

template <typename In, typename Acc>
__global__ void __launch_bounds__(256, 3) segment_rows(const __grid_constant__ gr_segment_job of)
{
    invite_next_kernel();
    wait_for_earlier_kernels();
    if (!adds_rows(of))
        return;
    for_each_segment<Acc>(
        of, of.lanes, of.columns, 1, PutNoWhole(), [&](const Part &part, const Target &target) {
            return put_sums<In, Acc>(of, part, target, [&](auto &sum, Sizes<In> &sizes) {
                sum = sum_of_rows<std::decay_t<decltype(sum)>, Acc>(of, part, sizes);
            });
        });
}
