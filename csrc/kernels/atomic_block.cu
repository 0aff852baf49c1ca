/* atomic_block: one `atomicAdd` per block.
 *
 * atomic_thread performed one atomic per element, all on one address. Here each block first adds up
 * its own part, as in warp_shfl, and performs one atomic. The grid only fills the GPU, so few
 * atomics wait and no second launch is needed.
 *
 * Still wasted: reproducibility. Blocks finish in any order, so the last bits of floats may differ
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
