/* Running sums within a block. */
#ifndef GPUREDUCE_KERNEL_SCAN_H
#define GPUREDUCE_KERNEL_SCAN_H

#include "common.h"

/* The sum of `value` over the lanes up to this one. */
template <typename Acc> __device__ __forceinline__ Acc warp_scan(Acc value)
{
    for (unsigned distance = 1; distance < 32; distance *= 2) {
        Acc below = __shfl_up_sync(0xffffffffu, value, distance);
        if (threadIdx.x % 32 >= distance)
            value += below;
    }
    return value;
}

/* The sum of `value` over the threads up to this one, computed as in scan_warp. `total` is
 * the sum over the block. It uses one slot of shared memory per warp. */
template <typename Acc> __device__ __forceinline__ Acc block_scan(Acc value, Acc *total)
{
    Acc *of_warps = shared_array<Acc>();
    unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;

    value = warp_scan(value);
    __syncthreads(); /* threads may still read the slots of an earlier call */
    if (lane == 31)
        of_warps[warp] = value;
    __syncthreads();
    if (warp == 0) {
        Acc all = warp_scan(lane < warps ? of_warps[lane] : Acc(0));
        if (lane < warps)
            of_warps[lane] = all;
    }
    __syncthreads();
    *total = of_warps[warps - 1];
    return warp > 0 ? of_warps[warp - 1] + value : value;
}

#endif
