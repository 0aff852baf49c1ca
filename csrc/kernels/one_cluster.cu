/* one_cluster: a single cluster of eight blocks adds up everything.
 *
 * one_block leaves all multiprocessors but one idle. The blocks of a cluster use eight of them (or
 * sixteen, if the GPU supports it) and combine their sums without global memory: each block stores
 * its sum in the shared memory of the first, which adds them up. That is faster than a ticket. The
 * first block must be running before others write to its shared memory. A split barrier ensures
 * this: all threads arrive before they load, and wait after, which costs nothing.
 *
 * Wasted: all multiprocessors but eight. Good for some hundred KiB. */
#include "parts/common.h"

#include <cooperative_groups.h>

template <typename In, typename Acc>
__global__ void __launch_bounds__(1024, 1) one_cluster(In in, Acc *out, size_t n)
{
    constexpr unsigned flight = 8;
    cooperative_groups::cluster_group group = cooperative_groups::this_cluster();
    Acc *partial = shared_array<Acc>() + blockDim.x / 32; /* in block 0: a sum per block */
    Packed<In> packed(in, n);
    size_t id = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    size_t grid_stride = (size_t)gridDim.x * blockDim.x;

    group.barrier_arrive();
    packed.settled();
    invite_next_kernel();
    wait_for_earlier_kernels();
    decltype(packed[0]) pack[flight];
    for (unsigned k = 0; k < flight; k++)
        pack[k] = packed.or_zero(id + k * grid_stride, packed.packs);
    LooseEnds<Acc, In> ends(in, n, packed, id);
    Acc sum = 0;
    for (unsigned k = 0; k < flight; k++)
        sum += sum_of<Acc>(pack[k]);
    for (size_t i = id + flight * grid_stride; i < packed.packs; i += flight * grid_stride) {
        for (unsigned k = 0; k < flight; k++)
            pack[k] = packed.or_zero(i + k * grid_stride, packed.packs);
        for (unsigned k = 0; k < flight; k++)
            sum += sum_of<Acc>(pack[k]);
    }

    sum = block_sum(ends.after(sum));
    group.barrier_wait();
    if (threadIdx.x == 0)
        *group.map_shared_rank(partial + group.block_rank(), 0) = sum;
    group.sync();
    if (group.block_rank() == 0 && threadIdx.x < 32) {
        sum = warp_sum(threadIdx.x < group.num_blocks() ? partial[threadIdx.x] : Acc(0));
        if (threadIdx.x == 0)
            *out = sum;
    }
}
