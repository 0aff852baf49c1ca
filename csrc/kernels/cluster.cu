/* cluster: blocks that read each other's shared memory.
 *
 * Before Hopper (compute capability 9.0) blocks could combine their sums only through global
 * memory. The blocks of a cluster run at the same time, have their own barrier, and can read each
 * other's shared memory. The first block of each cluster reads the other blocks' sums from there,
 * so one value per cluster is left instead of one per block.
 *
 * Still wasted: cluster sums still need a second launch, or the host. */
#include "parts/common.h"

#include <cooperative_groups.h>

template <typename In, typename Acc> __global__ void cluster(In in, Acc *out, size_t n)
{
    cooperative_groups::cluster_group group = cooperative_groups::this_cluster();
    Acc *partial = shared_array<Acc>();
    unsigned tid = threadIdx.x;
    size_t grid_stride = (size_t)gridDim.x * blockDim.x;

    Acc sum = 0;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + tid; i < n; i += grid_stride)
        sum += Acc(in[i]);
    sum = block_sum(sum);
    if (tid == 0)
        partial[0] = sum;

    group.sync();
    if (group.block_rank() == 0 && tid < 32) {
        sum = tid < group.num_blocks() ? *group.map_shared_rank(partial, tid) : Acc(0);
        sum = warp_sum(sum);
        if (tid == 0)
            out[blockIdx.x / group.num_blocks()] = sum;
    }
    group.sync(); /* no block may leave while its shared memory is still being read */
}
