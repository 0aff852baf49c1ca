/* unroll_tail: `sequential` with the last six steps written out.
 *
 * In sequential, each step pays for the loop around it: compare, halve, jump. Below 64 elements the
 * strides are known, so they are written out as constants. The last step is part of the store.
 *
 * Still wasted: the other five barriers. One warp works in these steps, and the whole block waits
 * for it. */
#include "parts/common.h"

template <typename In, typename Acc> __global__ void unroll_tail(In in, Acc *out, size_t n)
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

    if (tid < 32 && tid + 32 < blockDim.x)
        partial[tid] += partial[tid + 32];
    __syncthreads();
    if (tid < 16)
        partial[tid] += partial[tid + 16];
    __syncthreads();
    if (tid < 8)
        partial[tid] += partial[tid + 8];
    __syncthreads();
    if (tid < 4)
        partial[tid] += partial[tid + 4];
    __syncthreads();
    if (tid < 2)
        partial[tid] += partial[tid + 2];
    __syncthreads();

    if (tid == 0)
        out[blockIdx.x] = partial[0] + partial[1];
}
