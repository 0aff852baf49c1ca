/* scan_warp: shuffles within warps, and one barrier on either side of the warps' sums.
 *
 * The trees of the rungs before wait at a barrier of the block in each step. The lanes of a warp
 * need none: a shuffle reads the register of the lane `distance` below. n log2(32) additions cost
 * less than the barriers did. Then the first warp makes running sums of the warps' sums.
 *
 * Still wasted: memory traffic. Each element is read and written twice, once by this kernel and
 * once by scan_add. */
#include "parts/common.h"

template <typename In, typename Acc> __global__ void scan_warp(In in, Acc *out, size_t n, Acc *work)
{
    Acc *of_warps = shared_array<Acc>();
    unsigned tid = threadIdx.x, lane = tid % 32, warp = tid / 32, warps = blockDim.x / 32;
    size_t i = (size_t)blockIdx.x * blockDim.x + tid;

    Acc sum = i < n ? Acc(in[i]) : Acc(0);
    for (unsigned distance = 1; distance < 32; distance *= 2) {
        Acc below = __shfl_up_sync(0xffffffffu, sum, distance);
        if (lane >= distance)
            sum += below;
    }
    if (lane == 31)
        of_warps[warp] = sum;
    __syncthreads();

    if (warp == 0) {
        Acc all = lane < warps ? of_warps[lane] : Acc(0);
        for (unsigned distance = 1; distance < 32; distance *= 2) {
            Acc below = __shfl_up_sync(0xffffffffu, all, distance);
            if (lane >= distance)
                all += below;
        }
        if (lane < warps)
            of_warps[lane] = all;
    }
    __syncthreads();

    if (warp > 0)
        sum += of_warps[warp - 1];
    if (i < n)
        out[i] = sum;
    if (tid == blockDim.x - 1)
        work[blockIdx.x] = sum;
}
