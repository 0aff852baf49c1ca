/* segment_merge: a warp adds up the sums of a long segment's tasks, for one column. */
#include "parts/segment_rows.h"

template <typename In, typename Acc> __global__ void segment_merge(gr_segment_job of)
{
    uint64_t warps = (uint64_t)gridDim.x * (blockDim.x / 32);
    uint64_t first = ((uint64_t)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    const Acc *partial = static_cast<const Acc *>(of.partial);

    if (!adds_rows(of))
        return;
    unsigned found = of.state->long_segments;
    uint64_t longs = found < of.long_room ? found : of.long_room;
    for (uint64_t i = first; i < longs * of.columns; i += warps) {
        gr_long_segment segment = of.longs[i / of.columns];
        uint64_t c = i % of.columns;
        char *to = place_of_sum(of, segment_of(of, segment.segment), c);
        Acc sum = 0;
        for (uint64_t t = threadIdx.x % 32; t < segment.count; t += 32)
            sum += partial[(segment.first + t) * of.columns + c];
        sum = warp_sum(sum);
        if (threadIdx.x % 32 > 0)
            continue;
        if constexpr (is_proven<Acc>)
            add_to(sum, of.in_place ? element_at<double>(to, 0, of.load) : 0);
        finish_sum(to, of.sums, segment.segment * of.columns + c, sum);
    }
}
