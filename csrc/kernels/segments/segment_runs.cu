/* segment_runs: a warp adds up runs of equal ids while it checks that they are sorted.
 *
 * All warps have equally many rows, however long the segments are, and read ids and values once, in
 * strips of 256 rows. An id may still turn out to be unsorted or out of range. So the sums are
 * stored in a buffer (`staged`), and segment_put copies them to the caller's array.
 *
 * Still wasted: a scan over the lanes for each strip in which a run ends. */
#include "parts/segment_runs.h"

template <typename In, typename Acc>
__global__ void __launch_bounds__(256, 2) segment_runs(gr_segment_job of)
{
    invite_next_kernel();
    wait_for_earlier_kernels();
    constexpr int step = Strip<In>::rows;
    uint64_t warp = ((uint64_t)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    uint64_t begin = warp * of.task_rows, row = begin + threadIdx.x % 32 * Strip<In>::each;
    Layout layout = layout_of<In>(of);

    if (begin >= of.rows)
        return;
    int left = int(of.rows - begin < of.task_rows ? of.rows - begin : of.task_rows);
    int lane_left = left - int(threadIdx.x % 32 * Strip<In>::each), looks = 8;
    Strip<In> next;
    load_strip(of, layout, row, lane_left, next);
    unsigned long long before = begin ? index_at(of.index, begin - 1) : 0;
    OpenRun<In, Acc> open = {__shfl_sync(0xffffffffu, next.id[0], 0), true, false, 0, {}, Acc(0)};
    for (bool is_begin = true; left > 0; is_begin = false) {
        Strip<In> strip = next;
        uint64_t here = row;
        row += step;
        left -= step;
        lane_left -= step;
        if (left > 0)
            load_strip(of, layout, row, lane_left, next);
        if (--looks == 0 && is_unsorted_before(of, here)) /* looked up every eight strips */
            return;
        looks = looks ? looks : 8;
        if (!is_begin && is_all(strip, open.id)) {
            open.add(strip);
            continue;
        }
        unsigned long long last = strip.id[strip.each - 1];
        unsigned long long id = __shfl_up_sync(0xffffffffu, last, 1);
        id = threadIdx.x % 32 ? id : before;
        if (is_wrong(of, here, strip, id))
            return;
        if (is_begin && threadIdx.x % 32 == 0)
            id = open.id; /* no run ends in front of these rows */
        before = __shfl_sync(0xffffffffu, last, 31);
        if (before == open.id)
            open.add(strip);
        else
            add_strip(of, warp, strip, id, open);
    }
    Acc sum = open.total();
    if (threadIdx.x % 32 == 0) {
        put_end_of_rows(of, warp, 1, open.id, sum);
        if (open.is_first)
            put_end_of_rows(of, warp, 0, open.id, Acc(0));
    }
}
