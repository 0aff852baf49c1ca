/* scan_hillis_steele: in each step, every entry takes part.
 *
 * Entry i of a running sum is the sum of the elements up to i. Each block makes the entries of its
 * own elements, in shared memory. In the step with distance d, entry i adds entry i - d, which has
 * the sum of the d elements before those of entry i. So log2(block) steps are enough.
 *
 * The blocks' sums go to `work`. Further launches of this kernel make running sums of them, and
 * scan_add adds these to the blocks.
 *
 * Still wasted: additions. There are n log n of them, and a loop on one processor needs n. */
#include "parts/common.h"

template <typename In, typename Acc>
__global__ void scan_hillis_steele(In in, Acc *out, size_t n, Acc *work)
{
    Acc *entry = shared_array<Acc>();
    unsigned tid = threadIdx.x;
    size_t i = (size_t)blockIdx.x * blockDim.x + tid;

    Acc sum = i < n ? Acc(in[i]) : Acc(0);
    entry[tid] = sum;
    __syncthreads();

    for (unsigned distance = 1; distance < blockDim.x; distance *= 2) {
        if (tid >= distance)
            sum += entry[tid - distance];
        __syncthreads(); /* all have read */
        entry[tid] = sum;
        __syncthreads(); /* all have written */
    }

    if (i < n)
        out[i] = sum;
    if (tid == blockDim.x - 1)
        work[blockIdx.x] = sum;
}
