/* unroll_full: the compiler knows the block size, and every step is written out.
 *
 * first_add_unroll_warp still looped over the strides. `Block` is a template parameter, so the
 * compiler decides each `if (Block >= ...)` and emits no instruction for it. `Block` is the
 * largest power of two in the block; if the block has more threads, the first step folds in the
 * rest.
 *
 * Still wasted: each thread reads two elements and then goes through the whole tree. */
#include "parts/common.h"

template <typename In, typename Acc, unsigned Block>
__global__ void unroll_full(In in, Acc *out, size_t n)
{
    Acc *partial = shared_array<Acc>();
    unsigned tid = threadIdx.x;
    size_t i = (size_t)blockIdx.x * (2 * blockDim.x) + tid;

    Acc sum = i < n ? Acc(in[i]) : Acc(0);
    if (i + blockDim.x < n)
        sum += Acc(in[i + blockDim.x]);
    partial[tid] = sum;
    __syncthreads();

    if (Block < blockDim.x) {
        if (tid + Block < blockDim.x)
            partial[tid] += partial[tid + Block];
        __syncthreads();
    }
    if (Block >= 1024) {
        if (tid < 512)
            partial[tid] += partial[tid + 512];
        __syncthreads();
    }
    if (Block >= 512) {
        if (tid < 256)
            partial[tid] += partial[tid + 256];
        __syncthreads();
    }
    if (Block >= 256) {
        if (tid < 128)
            partial[tid] += partial[tid + 128];
        __syncthreads();
    }
    if (Block >= 128) {
        if (tid < 64)
            partial[tid] += partial[tid + 64];
        __syncthreads();
    }

    if (tid < 32) {
        if (Block >= 64)
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
