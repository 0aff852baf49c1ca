/* divergent_barrier: WRONG ON PURPOSE. A barrier inside a branch.
 *
 * Read, barrier, write: the barrier separates reads from writes within a step. But only the threads
 * that add something reach the barrier in the loop; the others skip it and arrive at the one at the
 * end. A barrier counts arrivals, so these count as arrivals at the barrier in the loop. Then the
 * next step can read before this step has written. */
#include "parts/common.h"

template <typename In, typename Acc> __global__ void divergent_barrier(In in, Acc *out, size_t n)
{
    Acc *partial = shared_array<Acc>();
    unsigned tid = threadIdx.x;
    size_t i = (size_t)blockIdx.x * blockDim.x + tid;

    partial[tid] = i < n ? Acc(in[i]) : Acc(0);
    __syncthreads();

    for (unsigned stride = first_stride(blockDim.x); stride > 0; stride /= 2) {
        if (tid < stride && tid + stride < blockDim.x) {
            Acc right = partial[tid + stride];
            __syncthreads();
            partial[tid] += right;
        }
    }
    __syncthreads();

    if (tid == 0)
        out[blockIdx.x] = partial[0];
}
