/* unroll_warp: the last warp without block barriers.
 *
 * unroll_tail stopped the whole block six times for one warp. Here that warp continues alone, and
 * `__syncwarp` orders its lanes. (Before Volta the lanes ran in lockstep, and even that was left
 * out: broken/warp_volatile.cu shows the result on current GPUs.)
 *
 * Still wasted: half of the threads only load. */
#include "parts/common.h"

template <typename In, typename Acc> __global__ void unroll_warp(In in, Acc *out, size_t n)
{
    Acc *partial = shared_array<Acc>();
    unsigned tid = threadIdx.x;
    size_t i = (size_t)blockIdx.x * blockDim.x + tid;

    partial[tid] = i < n ? Acc(in[i]) : Acc(0);
    __syncthreads();

    for (unsigned stride = first_stride(blockDim.x); stride > 32; stride /= 2) {
        if (tid < stride && tid + stride < blockDim.x)
            partial[tid] += partial[tid + stride];
        __syncthreads();
    }

    if (tid < 32) {
        if (tid + 32 < blockDim.x)
            partial[tid] += partial[tid + 32];
        __syncwarp();
        if (tid < 16)
            partial[tid] += partial[tid + 16];
        __syncwarp();
        if (tid < 8)
            partial[tid] += partial[tid + 8];
        __syncwarp();
        if (tid < 4)
            partial[tid] += partial[tid + 4];
        __syncwarp();
        if (tid < 2)
            partial[tid] += partial[tid + 2];
        __syncwarp();
        if (tid == 0)
            out[blockIdx.x] = partial[0] + partial[1];
    }
}
