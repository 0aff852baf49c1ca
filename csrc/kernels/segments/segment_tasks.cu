/* segment_tasks: a block adds up a part of a long segment.
 *
 * So all blocks have something to do, even if one segment has most of the rows.
 *
 * Still wasted: another launch, for segment_merge. */
#include "parts/segment_rows.h"

template <typename In, typename Acc>
__global__ void __launch_bounds__(256, 4) segment_tasks(gr_segment_job of)
{
    unsigned columns = column_lanes(of.columns), warps = blockDim.x / 32;
    unsigned lane = threadIdx.x % 32;
    bool in_order = needs_order(of);
    Acc *shared = shared_array<Acc>(), *partial = static_cast<Acc *>(of.partial);

    if (!adds_rows(of))
        return;
    uint64_t tasks = of.state->tasks < of.task_room ? of.state->tasks : of.task_room;
    for (uint64_t tile = (uint64_t)blockIdx.y * columns; tile < of.columns;
         tile += (uint64_t)gridDim.y * columns) {
        uint64_t c = tile + threadIdx.x % columns;
        const char *column =
            static_cast<const char *>(of.values.base) + column_offset(of.values, c);
        for (uint64_t t = blockIdx.x; t < tasks; t += gridDim.x) {
            Bounds rows(of, of.task[t].begin, of.task[t].end);
            uint64_t end = c < of.columns ? rows.end : rows.begin;
            Part part = {column,  rows.begin, end, threadIdx.x / columns, blockDim.x / columns,
                         in_order};
            Sizes<In> sizes;
            Acc sum = sum_of_lanes(sum_of_rows<Acc, Acc>(of, part, sizes), 32, columns);
            if (lane < columns)
                shared[threadIdx.x / 32 * columns + lane] = sum;
            __syncthreads();
            if (threadIdx.x < columns && c < of.columns) {
                for (unsigned w = 1; w < warps; w++)
                    sum += shared[w * columns + lane];
                partial[t * of.columns + c] = sum;
            }
            __syncthreads(); /* the next task's sums take the same shared memory */
        }
    }
}
