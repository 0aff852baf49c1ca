/* atomic_block: one `atomicAdd` per block.
 *
 * atomic_thread queued once per element. Here each block first adds up its own part, as in
 * warp_shfl, and queues once; the grid only fills the card, so the queue is short and no second
 * launch is needed.
 *
 * Still wasted: reproducibility. Blocks arrive in any order, so floats may differ in the last bits
 * from run to run. */
#include "parts/common.h"

template <typename In, typename Acc> __global__ void atomic_block(In in, Acc *out, size_t n)
{
    size_t grid_stride = (size_t)gridDim.x * blockDim.x;

    Acc sum = 0;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += grid_stride)
        sum += Acc(in[i]);

    sum = block_sum(sum);
    if (threadIdx.x == 0)
        atomicAdd(out, sum);
}
