/* one_cluster: a single cluster of eight blocks adds up everything.
 *
 * one_block leaves all multiprocessors but one idle. The blocks of a cluster work on eight of them
 * and meet without going through global memory: each leaves its sum in its own shared memory, and
 * the first block reads the eight from there. That is quicker than a ticket.
 *
 * Wasted: all multiprocessors but eight. Good for some hundred KiB. */
#include "common.h"

#include <cooperative_groups.h>

template <typename In, typename Acc> __global__ void one_cluster(In in, Acc *out, size_t n)
{
    constexpr unsigned flight = 8;
    cooperative_groups::cluster_group group = cooperative_groups::this_cluster();
    Acc *partial = shared_array<Acc>();
    Packed<In> packed(in, n);
    size_t id = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    size_t grid_stride = (size_t)gridDim.x * blockDim.x;

    wait_for_earlier_kernels();
    Acc sum = loose_ends<Acc>(in, n, packed, id);
    for (size_t i = id; i < packed.packs; i += flight * grid_stride) {
        decltype(packed[0]) pack[flight];
        for (unsigned k = 0; k < flight; k++)
            pack[k] = packed.or_zero(i + k * grid_stride, packed.packs);
        for (unsigned k = 0; k < flight; k++)
            sum += sum_of<Acc>(pack[k]);
    }

    sum = block_sum(sum);
    if (threadIdx.x == 0)
        partial[0] = sum;
    group.sync();
    if (group.block_rank() == 0 && threadIdx.x < 32) {
        sum = threadIdx.x < group.num_blocks() ? *group.map_shared_rank(partial, threadIdx.x)
                                               : Acc(0);
        sum = warp_sum(sum);
        if (threadIdx.x == 0)
            *out = sum;
    }
    group.sync(); /* no block may leave while its shared memory is still being read */
}
