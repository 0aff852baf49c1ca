/* missing_barrier: WRONG ON PURPOSE. `sequential` without the barrier in the loop.
 *
 * A step reads values that threads of other warps wrote in the step before. Without the barrier it
 * may read before they have written. */
#include "parts/common.h"

template <typename In, typename Acc> __global__ void missing_barrier(In in, Acc *out, size_t n)
{
    Acc *partial = shared_array<Acc>();
    unsigned tid = threadIdx.x;
    size_t i = (size_t)blockIdx.x * blockDim.x + tid;

    partial[tid] = i < n ? Acc(in[i]) : Acc(0);
    __syncthreads();

    for (unsigned stride = first_stride(blockDim.x); stride > 0; stride /= 2) {
        if (tid < stride && tid + stride < blockDim.x)
            partial[tid] += partial[tid + stride];
    }
    __syncthreads();

    if (tid == 0)
        out[blockIdx.x] = partial[0];
}
