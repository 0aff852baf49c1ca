/* cascade: many elements per thread in a grid-stride loop, then the tree of `unroll_full`.
 *
 * unroll_full needed one tree per 2 * block elements. Here the grid is just large enough to fill
 * the GPU. Each thread steps through the input in strides of the whole grid and adds in a register.
 * The tree is needed once per block, however long the input is.
 *
 * Still wasted: the tree goes through shared memory, although lanes of a warp can exchange
 * registers; and a thread waits for one 4-byte load at a time. */
#include "parts/common.h"

template <typename In, typename Acc, unsigned Block>
__global__ void cascade(In in, Acc *out, size_t n)
{
    Acc *partial = shared_array<Acc>();
    unsigned tid = threadIdx.x;
    size_t grid_stride = (size_t)gridDim.x * blockDim.x;

    Acc sum = 0;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + tid; i < n; i += grid_stride)
        sum += Acc(in[i]);
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
