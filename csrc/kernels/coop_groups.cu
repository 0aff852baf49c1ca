/* coop_groups: `warp_shfl` written with cooperative groups.
 *
 * warp_shfl computed lanes and masks by hand. A tile is a named group of threads: it knows its rank
 * and size, and `reduce` picks the best instructions for the type and the GPU.
 *
 * Still wasted: the same as in warp_shfl. Only readability has improved. */
#include "parts/common.h"

#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

namespace cg = cooperative_groups;

template <typename In, typename Acc> __global__ void coop_groups(In in, Acc *out, size_t n)
{
    Acc *partial = shared_array<Acc>();
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<32> warp = cg::tiled_partition<32>(block);
    size_t grid_stride = (size_t)gridDim.x * block.size();

    Acc sum = 0;
    for (size_t i = (size_t)blockIdx.x * block.size() + block.thread_rank(); i < n;
         i += grid_stride)
        sum += Acc(in[i]);

    sum = cg::reduce(warp, sum, cg::plus<Acc>());
    if (warp.thread_rank() == 0)
        partial[warp.meta_group_rank()] = sum;
    block.sync();

    if (warp.meta_group_rank() == 0) {
        sum = warp.thread_rank() < warp.meta_group_size() ? partial[warp.thread_rank()] : Acc(0);
        sum = cg::reduce(warp, sum, cg::plus<Acc>());
        if (warp.thread_rank() == 0)
            out[blockIdx.x] = sum;
    }
}
