/* first_add: each thread adds two elements while loading.
 *
 * In sequential, half of the threads were idle from the first tree step on. Here the load does the
 * first step: a block reads two blocks' worth of elements, so half as many blocks, barriers and
 * trees do the same work.
 *
 * Still wasted: the barriers of the last steps, as in sequential. */
#include "parts/common.h"

template <typename In, typename Acc> __global__ void first_add(In in, Acc *out, size_t n)
{
    Acc *partial = shared_array<Acc>();
    unsigned tid = threadIdx.x;
    size_t i = (size_t)blockIdx.x * (2 * blockDim.x) + tid;

    Acc sum = i < n ? Acc(in[i]) : Acc(0);
    if (i + blockDim.x < n)
        sum += Acc(in[i + blockDim.x]);
    partial[tid] = sum;
    __syncthreads();

    for (unsigned stride = first_stride(blockDim.x); stride > 0; stride /= 2) {
        if (tid < stride && tid + stride < blockDim.x)
            partial[tid] += partial[tid + stride];
        __syncthreads();
    }

    if (tid == 0)
        out[blockIdx.x] = partial[0];
}
