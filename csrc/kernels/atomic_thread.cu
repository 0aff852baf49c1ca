/* atomic_thread: one `atomicAdd` per element.
 *
 * The shortest parallel sum: no tree, no shared memory, no second launch.
 *
 * Wasted: parallelism. All atomics of the grid go to one address, so the sum is as serial as a loop
 * (for 32-bit integers the compiler adds up each warp first). The order of float additions varies,
 * so the last bits change from run to run. */
#include "parts/common.h"

template <typename In, typename Acc> __global__ void atomic_thread(In in, Acc *out, size_t n)
{
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        atomicAdd(out, Acc(in[i]));
}
