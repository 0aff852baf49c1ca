/* scan_blelloch: two sweeps over a tree, with about 2n additions.
 *
 * scan_hillis_steele makes n log n additions. Here the way up is that of a sum: entry 2k + 1 adds
 * entry 2k, then every fourth entry adds the one two before it, and so on. The way down passes the
 * finished entries on: each one is added to the entry half a step behind it.
 *
 * Blelloch's own way down begins with a 0 at the root, and makes the sums of the elements before
 * each element: an exclusive scan. This one makes inclusive entries, for any size.
 *
 * Still wasted: bank conflicts. With stride 16, the lanes of a warp meet in one bank. */
#include "parts/common.h"

template <typename In, typename Acc>
__global__ void scan_blelloch(In in, Acc *out, size_t n, Acc *work)
{
    Acc *entry = shared_array<Acc>();
    unsigned tid = threadIdx.x, size = 2 * blockDim.x;
    size_t first = (size_t)blockIdx.x * size;

    for (unsigned k = tid; k < size; k += blockDim.x)
        entry[k] = first + k < n ? Acc(in[first + k]) : Acc(0);
    __syncthreads();

    for (unsigned stride = 1; stride < size; stride *= 2) {
        unsigned k = 2 * stride * (tid + 1) - 1;
        if (k < size)
            entry[k] += entry[k - stride];
        __syncthreads();
    }
    for (unsigned stride = first_stride(size) / 2; stride > 0; stride /= 2) {
        unsigned k = 2 * stride * (tid + 1) - 1;
        if (k + stride < size)
            entry[k + stride] += entry[k];
        __syncthreads();
    }

    for (unsigned k = tid; k < size; k += blockDim.x)
        if (first + k < n)
            out[first + k] = entry[k];
    if (tid == 0)
        work[blockIdx.x] = entry[size - 1];
}
