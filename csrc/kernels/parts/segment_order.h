/* Ids of rows that are put in order. */
#ifndef GPUREDUCE_KERNEL_SEGMENT_ORDER_H
#define GPUREDUCE_KERNEL_SEGMENT_ORDER_H

#include "segments.h"

/* Calls use(row, id, peers) for all rows, by all lanes of each warp. `peers` are the lanes that
 * have the same id. Lanes without a row have an id that is out of range. */
template <typename Use>
__device__ __forceinline__ void for_each_id(const gr_segment_job &of, Use use)
{
    uint64_t threads = (uint64_t)gridDim.x * blockDim.x;
    uint64_t first = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (uint64_t row = first; row - threadIdx.x % 32 < of.rows; row += threads) {
        bool is_there = row < of.rows;
        unsigned long long id = is_there ? index_at(of.index, row) : ~0ull;
        use(row, id, __match_any_sync(0xffffffffu, id));
    }
}

/* Sets a block's counts of all segments to zero. */
__device__ __forceinline__ void clear_counts(const gr_segment_job &of, unsigned *counts)
{
    for (uint64_t k = threadIdx.x; k < of.segments; k += blockDim.x)
        counts[k] = 0;
    __syncthreads();
}

/* Whether this lane is the first of some. */
__device__ __forceinline__ bool is_first_of(unsigned lanes)
{
    return (lanes & ((1u << threadIdx.x % 32) - 1)) == 0;
}

#endif
