/* Sums of long segments, or of their parts, by a block: kernels segment_tasks and segment_few. */
#ifndef GPUREDUCE_KERNEL_SEGMENT_BLOCKS_H
#define GPUREDUCE_KERNEL_SEGMENT_BLOCKS_H

#include "segment_rows.h"

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

/* Adds up some rows for `columns` columns, the thread's own of which is `c`. */
template <typename In, typename Acc>
__device__ __forceinline__ Acc sum_by_block(const gr_segment_job &of, const Bounds &rows,
                                            unsigned columns, uint64_t c)
{
    const char *column = static_cast<const char *>(of.values.base) + column_offset(of.values, c);
    Part part = {column,
                 rows.begin,
                 c < of.columns ? rows.end : rows.begin,
                 threadIdx.x / columns,
                 blockDim.x / columns,
                 needs_order(of)};
    Sizes<In> sizes;
    return block_sums(sum_of_rows<Acc, Acc>(of, part, sizes), shared_array<Acc>(), columns);
}

/* Stores the sums of segment k, which the first `columns` threads have: of columns `c`. */
template <typename In, typename Acc>
__device__ __forceinline__ void put_by_block(const gr_segment_job &of, uint64_t k,
                                             const Bounds &rows, unsigned columns, uint64_t c,
                                             Acc sum)
{
    char *to = place_in_out(of, k, c);
    bool has_sum = threadIdx.x < columns && c < of.columns;
    if constexpr (is_proven<Acc>)
        if (has_sum && of.in_place)
            add_to(sum, begin_of(of, to, c));
    bool is_put = !has_sum || is_segment_put<In, Acc>(of, to, c, sum);
    if (is_proven<Acc> && __syncthreads_or(!is_put))
        for (unsigned t = 0; t < columns; t++)
            if (__syncthreads_or(threadIdx.x == t && !is_put))
                add_segment_again_by_block(of, k, c - threadIdx.x % columns + t, rows);
    __syncthreads(); /* the next sums take the same shared memory */
}

#endif
