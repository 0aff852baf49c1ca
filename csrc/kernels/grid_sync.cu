/* grid_sync: one cooperative launch with a barrier over the whole grid.
 *
 * last_block finds the last block by a ticket. A cooperative launch guarantees that all blocks are
 * on the GPU at the same time, so a grid barrier can wait for all of them. Then the first block
 * adds up the partials.
 *
 * Still wasted: every block waits, and the whole grid must be resident on the GPU. */
#include "parts/common.h"

#include <cooperative_groups.h>

template <typename In, typename Acc> __global__ void grid_sync(In in, Acc *out, size_t n, Acc *work)
{
    unsigned tid = threadIdx.x;
    size_t grid_stride = (size_t)gridDim.x * blockDim.x;

    Acc sum = 0;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + tid; i < n; i += grid_stride)
        sum += Acc(in[i]);
    sum = block_sum(sum);
    if (tid == 0)
        work[blockIdx.x] = sum;

    cooperative_groups::this_grid().sync();
    if (blockIdx.x > 0)
        return;

    sum = 0;
    for (unsigned block = tid; block < gridDim.x; block += blockDim.x)
        sum += work[block];
    sum = block_sum(sum);
    if (tid == 0)
        *out = sum;
}
