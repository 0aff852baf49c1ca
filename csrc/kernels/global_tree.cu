/* global_tree: a tree per block in global memory.
 *
 * The first approach that works. Each thread copies its element into `work`. In each step every
 * second partial sum adds its right-hand neighbour, until the block's first entry holds the block's
 * sum. A barrier separates the steps, because a step reads results of the step before.
 *
 * Still wasted: each of the log2(block) steps goes to global memory and back, and the active
 * threads move further and further apart, so a 32-byte sector is moved for every 4 bytes used. */
#include "parts/common.h"

template <typename In, typename Acc>
__global__ void global_tree(In in, Acc *out, size_t n, Acc *work)
{
    unsigned tid = threadIdx.x;
    size_t i = (size_t)blockIdx.x * blockDim.x + tid;

    work[i] = i < n ? Acc(in[i]) : Acc(0);
    __syncthreads();

    for (unsigned stride = 1; stride < blockDim.x; stride *= 2) {
        if (tid % (2 * stride) == 0 && tid + stride < blockDim.x)
            work[i] += work[i + stride];
        __syncthreads();
    }

    if (tid == 0)
        out[blockIdx.x] = work[i];
}
