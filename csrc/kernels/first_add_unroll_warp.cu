/* first_add_unroll_warp: two elements per thread, and a last warp without block barriers.
 *
 * first_add and unroll_warp each removed one waste of sequential. This combines the two.
 *
 * Still wasted: the loop over the strides, because the compiler does not know the block size. */
#include "parts/common.h"

template <typename In, typename Acc>
__global__ void first_add_unroll_warp(In in, Acc *out, size_t n)
{
    Acc *partial = shared_array<Acc>();
    unsigned tid = threadIdx.x;
    size_t i = (size_t)blockIdx.x * (2 * blockDim.x) + tid;

    Acc sum = i < n ? Acc(in[i]) : Acc(0);
    if (i + blockDim.x < n)
        sum += Acc(in[i + blockDim.x]);
    partial[tid] = sum;
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
