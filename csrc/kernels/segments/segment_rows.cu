/* segment_rows: some lanes of a warp add up a segment whose rows lie one after another.
 *
 * A segment of a few rows takes a lane per column, and a longer one up to a warp, whose lanes read
 * neighbouring elements. Segments that are much longer are cut into tasks, which segment_tasks
 * adds up: otherwise one warp would still work when all others have finished.
 *
 * Still wasted: lanes, where the segments of a warp differ in length. */
#include "parts/segment_rows.h"

/* Cuts the long segments of a warp's groups into tasks. Called by all lanes. There is room for them
 * unless offsets have changed after their check. */
__device__ __forceinline__ void put_tasks(const gr_segment_job &of, bool is_long, uint64_t k,
                                          const Bounds &rows)
{
    gr_segment_state *state = of.state;
    unsigned member = threadIdx.x % of.lanes;
    unsigned long long count = (rows.end - rows.begin + of.task_rows - 1) / of.task_rows, first = 0;
    if (!__any_sync(0xffffffffu, is_long))
        return;
    if (is_long && member == 0) {
        first = atomicAdd(reinterpret_cast<unsigned long long *>(&state->tasks), count);
        unsigned place = atomicAdd(&state->long_segments, 1u);
        if (place < of.long_room)
            of.longs[place] = {k, first, first + count <= of.task_room ? count : 0};
    }
    first = __shfl_sync(0xffffffffu, first, int(threadIdx.x % 32 - member));
    for (uint64_t i = member; is_long && i < count && first + i < of.task_room; i += of.lanes) {
        uint64_t begin = rows.begin + i * of.task_rows;
        uint64_t end = begin + of.task_rows < rows.end ? begin + of.task_rows : rows.end;
        of.task[first + i] = {k, begin, end};
    }
}

template <typename In, typename Acc>
__global__ void __launch_bounds__(256, 3) segment_rows(gr_segment_job of)
{
    unsigned lanes = of.lanes, columns = column_lanes(of.columns);
    unsigned member = threadIdx.x % lanes, lane_row = member / columns;
    uint64_t groups = (uint64_t)gridDim.x * blockDim.x / lanes;
    uint64_t first = ((uint64_t)blockIdx.x * blockDim.x + threadIdx.x) / lanes;
    uint64_t of_warp = first - threadIdx.x % 32 / lanes; /* the group of the warp's first lane */

    if (!adds_rows(of))
        return;
    for (uint64_t tile = (uint64_t)blockIdx.y * columns; tile < of.columns;
         tile += (uint64_t)gridDim.y * columns) {
        uint64_t c = tile + member % columns;
        Bounds next = Bounds::if_any(of, first); /* loaded early: no turn waits for them */
        for (uint64_t turn = of_warp; turn < of.segments; turn += groups) {
            uint64_t k = turn + threadIdx.x % 32 / lanes;
            Bounds rows = next;
            next = Bounds::if_any(of, k + groups);
            bool is_long = rows.end - rows.begin > of.long_rows;
            uint64_t end = is_long || c >= of.columns ? rows.begin : rows.end;
            Part part = {c, rows.begin, end, lane_row, lanes / columns};
            bool stores = lane_row == 0 && !is_long && k < of.segments && c < of.columns;
            if (!put_short_segment<In, Acc>(of, part, lanes, columns, k, stores)) {
                Sizes<In> sizes;
                Acc sum = sum_of_lanes(sum_of_rows<Acc, Acc>(of, part, sizes), lanes, columns);
                if (stores)
                    put_segment<Acc>(of, k, c, sum);
            }
            if (tile == 0)
                put_tasks(of, is_long, k, rows);
        }
    }
}
