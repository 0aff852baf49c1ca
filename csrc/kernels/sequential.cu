/* sequential: stride from half the block downward.
 *
 * interleaved_idx packed its threads but caused bank conflicts. Here thread `tid` adds element
 * `tid + stride` to its own: neighbouring lanes access neighbouring words, one per bank.
 *
 * Still wasted: half of the threads load an element but never add anything; and in the last steps
 * only one warp works, but the whole block waits at a barrier. */
#include "parts/common.h"

template <typename In, typename Acc> __global__ void sequential(In in, Acc *out, size_t n)
{
    Acc *partial = shared_array<Acc>();
    unsigned tid = threadIdx.x;
    size_t i = (size_t)blockIdx.x * blockDim.x + tid;

    partial[tid] = i < n ? Acc(in[i]) : Acc(0);
    __syncthreads();

    for (unsigned stride = first_stride(blockDim.x); stride > 0; stride /= 2) {
        if (tid < stride && tid + stride < blockDim.x)
            partial[tid] += partial[tid + stride];
        __syncthreads();
    }

    if (tid == 0)
        out[blockIdx.x] = partial[0];
}
