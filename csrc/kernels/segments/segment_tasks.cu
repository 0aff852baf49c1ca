/* segment_tasks: a block adds up a part of a long segment, for some columns.
 *
 * This keeps all blocks busy, even if one segment has most of the rows. The last block to finish a
 * part of a segment adds up the sums of all its parts.
 *
 * Still wasted: another launch, which seldom has anything to do. */
#include "parts/segment_blocks.h"

template <typename In, typename Acc>
__global__ void __launch_bounds__(256, 4) segment_tasks(const __grid_constant__ gr_segment_job of)
{
    invite_next_kernel();
    wait_for_earlier_kernels();
    unsigned columns = column_lanes(of.columns), member = threadIdx.x / columns;
    uint64_t tiles = (of.columns + columns - 1) / columns;
    Acc *partial = static_cast<Acc *>(of.partial);
    if (!adds_rows(of))
        return;
    uint64_t tasks = of.state->tasks < of.task_room ? of.state->tasks : of.task_room;
    for (uint64_t unit = blockIdx.x; unit < tasks * tiles; unit += gridDim.x) {
        uint64_t t = unit / tiles, tile = unit % tiles, c = tile * columns + threadIdx.x % columns;
        uint64_t place = of.task[t].segment;
        Bounds rows(of, of.task[t].begin, of.task[t].end);
        Acc sum = sum_by_block<In, Acc>(of, rows, columns, c);
        if (threadIdx.x < columns && c < of.columns)
            partial[t * of.columns + c] = sum;
        if (place >= of.long_room) /* offsets have changed after their check */
            continue;
        gr_long_segment whole = of.longs[place];
        __threadfence(); /* makes the sum visible before it is counted */
        __syncthreads();
        bool is_last =
            threadIdx.x == 0 && atomicAdd(of.arrived + place * tiles + tile, 1u) + 1 == whole.count;
        if (!__syncthreads_or(is_last))
            continue;
        __threadfence();
        sum = 0;
        for (uint64_t i = member; c < of.columns && i < whole.count; i += blockDim.x / columns)
            sum += partial[(whole.first + i) * of.columns + c];
        sum = block_sums(sum, shared_array<Acc>(), columns);
        Segment segment = segment_numbered(of, whole.segment);
        put_by_block<In>(of, segment.k, segment.rows, columns, c, sum);
    }
}
