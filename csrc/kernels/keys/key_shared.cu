/* key_shared: each block has sums of its own in shared memory.
 *
 * All blocks of key_atomic meet at the same addresses of the L2 cache. Here a block adds up its
 * elements in shared memory, a private copy of all sums, and adds that to the sums in global
 * memory once, at its end: an atomic per key and block instead of one per element.
 *
 * Still wasted: queues of lanes for one sum of the block. And all sums must fit into shared
 * memory: some 10,000 keys. */
#include "parts/common.h"

template <typename In, typename Acc>
__global__ void key_shared(In in, const unsigned *key, Acc *out, size_t n, unsigned keys)
{
    Acc *of_block = shared_array<Acc>();
    size_t grid_stride = (size_t)gridDim.x * blockDim.x;

    for (unsigned k = threadIdx.x; k < keys; k += blockDim.x)
        of_block[k] = 0;
    __syncthreads();

    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += grid_stride)
        atomicAdd(of_block + key[i], Acc(in[i]));
    __syncthreads();

    for (unsigned k = threadIdx.x; k < keys; k += blockDim.x)
        atomicAdd(out + k, of_block[k]);
}
