/* interleaved_mod: the tree in shared memory; `tid % (2 * stride) == 0` selects the active threads.
 *
 * global_tree accessed global memory in every step. Here each element is read from it once, and the
 * tree is in the block's shared memory.
 *
 * Still wasted: only every second, then every fourth lane of each warp is active. A warp takes as
 * long for one active lane as for 32, so nearly all warps stay busy until the last steps
 * (divergence); and `%` is slow. */
#include "parts/common.h"

template <typename In, typename Acc> __global__ void interleaved_mod(In in, Acc *out, size_t n)
{
    Acc *partial = shared_array<Acc>();
    unsigned tid = threadIdx.x;
    size_t i = (size_t)blockIdx.x * blockDim.x + tid;

    partial[tid] = i < n ? Acc(in[i]) : Acc(0);
    __syncthreads();

    for (unsigned stride = 1; stride < blockDim.x; stride *= 2) {
        if (tid % (2 * stride) == 0 && tid + stride < blockDim.x)
            partial[tid] += partial[tid + stride];
        __syncthreads();
    }

    if (tid == 0)
        out[blockIdx.x] = partial[0];
}
