/* warp_volatile: WRONG ON PURPOSE since Volta. The last warp as it was written before 2017.
 *
 * `volatile` makes each access go to memory, but nothing orders the lanes: the code relies on all
 * 32 running in lockstep. Since Volta each lane has its own program counter and may run ahead.
 * unroll_warp is the correct version of this kernel. */
#include "parts/common.h"

template <typename In, typename Acc> __global__ void warp_volatile(In in, Acc *out, size_t n)
{
    volatile Acc *partial = shared_array<Acc>();
    unsigned tid = threadIdx.x;
    size_t i = (size_t)blockIdx.x * blockDim.x + tid;

    partial[tid] = i < n ? Acc(in[i]) : Acc(0);
    __syncthreads();

    for (unsigned stride = first_stride(blockDim.x); stride > 32; stride /= 2) {
        if (tid < stride && tid + stride < blockDim.x)
            partial[tid] = partial[tid] + partial[tid + stride];
        __syncthreads();
    }

    if (tid < 32) {
        if (tid + 32 < blockDim.x)
            partial[tid] = partial[tid] + partial[tid + 32];
        if (tid < 16) {
            partial[tid] = partial[tid] + partial[tid + 16];
            partial[tid] = partial[tid] + partial[tid + 8];
            partial[tid] = partial[tid] + partial[tid + 4];
            partial[tid] = partial[tid] + partial[tid + 2];
            partial[tid] = partial[tid] + partial[tid + 1];
        }
        if (tid == 0)
            out[blockIdx.x] = partial[0];
    }
}
