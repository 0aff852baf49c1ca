/* last_block: one launch; the block that finishes last adds up the partials.
 *
 * atomic_block needs no second launch but adds in a random order. Here every block stores its sum
 * in `work` and then draws a ticket. When a block draws the last ticket, all other sums are stored.
 * It adds them up in the order of the blocks: one launch, the same bits every time.
 *
 * `__threadfence` guarantees this: without it the ticket could become visible before the sum. The
 * ticket wraps around to 0 and is ready for the next launch.
 *
 * Still wasted: the last block works alone while the rest of the GPU is idle. */
#include "parts/common.h"

template <typename In, typename Acc>
__global__ void last_block(In in, Acc *out, size_t n, Acc *work, unsigned *ticket)
{
    unsigned tid = threadIdx.x;
    size_t grid_stride = (size_t)gridDim.x * blockDim.x;

    Acc sum = 0;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + tid; i < n; i += grid_stride)
        sum += Acc(in[i]);
    sum = block_sum(sum);

    bool is_last = false, is_alone = gridDim.x == 1; /* a single block takes no ticket */
    if (tid == 0 && is_alone)
        *out = sum;
    if (tid == 0 && !is_alone) {
        work[blockIdx.x] = sum;
        __threadfence();
        is_last = atomicInc(ticket, gridDim.x - 1) == gridDim.x - 1;
    }
    if (is_alone || !__syncthreads_or(is_last))
        return;

    __threadfence();
    sum = 0;
    for (unsigned block = tid; block < gridDim.x; block += blockDim.x)
        sum += work[block];
    sum = block_sum(sum);
    if (tid == 0)
        *out = sum;
}
