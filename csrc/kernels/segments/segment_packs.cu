/* segment_packs: as segment_rows, for rows that consist of packs of 16 bytes.
 *
 * A lane loads a pack at once, and adds up its columns. So a lane looks up a segment's rows only
 * once for all these columns. A few lanes load a whole row, and the other lanes of the warp
 * load other rows.
 *
 * Still wasted: registers, for the sums of a pack's columns. */
#include "parts/segment_packs.h"

template <typename In, typename Acc>
__global__ void __launch_bounds__(256, 2) segment_packs(const __grid_constant__ gr_segment_job of)
{
    invite_next_kernel();
    wait_for_earlier_kernels();
    constexpr unsigned width = Pack<In>::count;
    using Short = ShortSum<Acc, In>;
    if (!adds_rows(of))
        return;
    auto put_whole = [&](uint64_t k, const Bounds &rows, bool stores) {
        return put_pairs<In, Acc>(of, k, rows, stores);
    };
    auto add = [&](const Part &part, const Target &target) {
        bool is_put;
        if (!is_short<Acc, Short> || !put_packs<Short, In, Acc>(of, part, target, &is_put))
            put_packs<Acc, In, Acc>(of, part, target, &is_put);
        return is_put;
    };
    for_each_segment<Acc>(of, of.lanes, of.columns / width, width, put_whole, add);
}
