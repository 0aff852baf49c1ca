/* scan_three_launches: sums first, then entries. Each element is read twice, and written once.
 *
 * Each block has a share of the elements. The first launch, without `out`, only adds up: a sum per
 * block is written, and no entry. The second launch is one block, which makes running sums of these
 * sums. In the third, each block knows the sum of all shares before its own, and makes its entries.
 *
 * A share is many times as long as a block. So there are as many blocks as fill the card, and the
 * second launch is short.
 *
 * Still wasted: the second read of each element, and two waits for all blocks. */
#include "parts/scan.h"

template <typename In, typename Acc>
__global__ void scan_three_launches(In in, Acc *out, size_t n, Acc *work)
{
    unsigned tid = threadIdx.x;
    size_t tiles = (n + blockDim.x - 1) / blockDim.x;
    size_t share = (tiles + gridDim.x - 1) / gridDim.x * blockDim.x;
    size_t begin = blockIdx.x * share, end = begin + share < n ? begin + share : n;

    if (!out) {
        Acc sum = 0;
        for (size_t i = begin + tid; i < end; i += blockDim.x)
            sum += Acc(in[i]);
        sum = block_sum(sum);
        if (tid == 0)
            work[blockIdx.x] = sum;
        return;
    }

    Acc sum = blockIdx.x ? work[blockIdx.x - 1] : Acc(0); /* of what lies before */
    for (size_t first = begin; first < end; first += blockDim.x) {
        size_t i = first + tid;
        Acc own = i < end ? Acc(in[i]) : Acc(0);
        Acc entry = block_scan(tid == 0 ? sum + own : own, &sum);
        if (i < end)
            out[i] = entry;
    }
}
