/* divergent_barrier: WRONG ON PURPOSE. A barrier inside a branch.
 *
 * Only threads that add something reach the barrier in the loop; the others skip it and run ahead to
 * the barrier at the end. A barrier counts arrivals, so theirs are taken for arrivals at the one in
 * the loop, and threads go on before their neighbours are done. */
#include "common.h"

template <typename In, typename Acc> __global__ void divergent_barrier(In in, Acc *out, size_t n)
{
    Acc *partial = shared_array<Acc>();
    unsigned tid = threadIdx.x;
    size_t i = (size_t)blockIdx.x * blockDim.x + tid;

    partial[tid] = i < n ? Acc(in[i]) : Acc(0);
    __syncthreads();

    for (unsigned stride = 1; stride < blockDim.x; stride *= 2) {
        if (tid % (2 * stride) == 0 && tid + stride < blockDim.x) {
            partial[tid] += partial[tid + stride];
            __syncthreads();
        }
    }
    __syncthreads();

    if (tid == 0)
        out[blockIdx.x] = partial[0];
}
