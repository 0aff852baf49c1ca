/* key_atomic: an atomic addition per element, to the sum of its key.
 *
 * The obvious kernel, and what index_add, scatter_add and histograms do. Additions to one address
 * are made one after another, so elements of a frequent key queue. Floats are rounded at every
 * addition, and the order of the additions differs from run to run, so the last bits do, too.
 *
 * Wasted: the wait for an address that many threads want. */
#include "parts/common.h"

template <typename In, typename Acc>
__global__ void key_atomic(In in, const unsigned *key, Acc *out, size_t n)
{
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        atomicAdd(out + key[i], Acc(in[i]));
}
