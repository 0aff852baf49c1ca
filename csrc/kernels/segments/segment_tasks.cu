/* segment_tasks: a block adds up a part of a long segment, for some columns.
 *
 * This keeps all blocks busy, even if one segment has most of the rows. The last block to finish a
 * part of a segment adds up the sums of all its parts.
 *
 * Still wasted: another launch, which seldom has anything to do. */
#include "parts/segment_rows.h"

/* Adds up over a block, where thread t has column t % `columns`: the first threads get the sums.
 */
template <typename Acc>
__device__ __forceinline__ Acc block_sums(Acc sum, Acc *shared, unsigned columns)
{
    unsigned lane = threadIdx.x % 32;
    sum = sum_of_lanes(sum, 32, columns);
    if (lane < columns)
        shared[threadIdx.x / 32 * columns + lane] = sum;
    __syncthreads();
    if (threadIdx.x < columns)
        for (unsigned w = 1; w < blockDim.x / 32; w++)
            sum += shared[w * columns + lane];
    return sum;
}

template <typename In, typename Acc>
__global__ void __launch_bounds__(256, 4) segment_tasks(const __grid_constant__ gr_segment_job of)
{
    invite_next_kernel();
    wait_for_earlier_kernels();
    unsigned columns = column_lanes(of.columns), member = threadIdx.x / columns;
    uint64_t tiles = (of.columns + columns - 1) / columns;
    Acc *shared = shared_array<Acc>(), *partial = static_cast<Acc *>(of.partial);
    if (!adds_rows(of))
        return;
    uint64_t tasks = of.state->tasks < of.task_room ? of.state->tasks : of.task_room;
    for (uint64_t unit = blockIdx.x; unit < tasks * tiles; unit += gridDim.x) {
        uint64_t t = unit / tiles, tile = unit % tiles, c = tile * columns + threadIdx.x % columns;
        uint64_t place = of.task[t].segment;
        Bounds rows(of, of.task[t].begin, of.task[t].end);
        const char *column =
            static_cast<const char *>(of.values.base) + column_offset(of.values, c);
        Part part = {column, rows.begin,           c < of.columns ? rows.end : rows.begin,
                     member, blockDim.x / columns, needs_order(of)};
        Sizes<In> sizes;
        Acc sum = block_sums(sum_of_rows<Acc, Acc>(of, part, sizes), shared, columns);
        bool has_sum = threadIdx.x < columns && c < of.columns;
        if (has_sum)
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
        sum = block_sums(sum, shared, columns);
        uint64_t k = segment_of(of, whole.segment);
        char *to = place_in_out(of, k, c);
        if constexpr (is_proven<Acc>)
            if (has_sum && of.in_place)
                add_to(sum, begin_of(of, to, c));
        bool is_put = !has_sum || is_segment_put<In, Acc>(of, to, c, sum);
        if (is_proven<Acc> && __syncthreads_or(!is_put))
            for (unsigned t = 0; t < columns; t++)
                if (__syncthreads_or(threadIdx.x == t && !is_put))
                    add_segment_again_by_block(of, k, tile * columns + t);
        __syncthreads(); /* the next part's sums take the same shared memory */
    }
}
