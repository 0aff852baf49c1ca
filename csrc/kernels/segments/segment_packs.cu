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
    if (adds_rows(of))
        add_by_packs<In, Acc>(of);
}
