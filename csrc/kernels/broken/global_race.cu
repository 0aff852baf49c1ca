/* global_race: WRONG ON PURPOSE. One tree over the whole grid.
 *
 * It looks like global_tree without blocks: the strides run up to n, so that one element ends up
 * with the whole sum. But `__syncthreads` synchronizes one block only. Once the stride reaches past
 * the block, a thread adds a partial sum that its owner may not have finished, and the result
 * changes from run to run. */
#include "parts/common.h"

template <typename In, typename Acc>
__global__ void global_race(In in, Acc *out, size_t n, Acc *work)
{
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;

    work[i] = i < n ? Acc(in[i]) : Acc(0);
    __syncthreads();

    for (size_t stride = 1; stride < n; stride *= 2) {
        if (i % (2 * stride) == 0 && i + stride < n)
            work[i] += work[i + stride];
        __syncthreads();
    }

    if (i == 0)
        *out = work[0];
}
