/* segment_claim: gives each segment a part of `order`, the array of row numbers.
 *
 * It does not matter which part comes first. So no segment needs the sum of all counts before its
 * own (a prefix sum over the grid): a warp claims places for 32 segments by one atomic addition. */
#include "parts/segment_order.h"

template <typename In, typename Word> __global__ void segment_claim(gr_segment_job of)
{
    invite_next_kernel();
    wait_for_earlier_kernels();
    uint64_t threads = (uint64_t)gridDim.x * blockDim.x;
    unsigned lane = threadIdx.x % 32;
    uint64_t first = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x - lane;

    if (!needs_order(of) || of.state->bad)
        return;
    for (uint64_t base = first; base < of.segments; base += threads) {
        uint64_t k = base + lane;
        unsigned count = k < of.segments ? of.counts[k] : 0;
        unsigned end = claim_places(of, k, count);
        if (k < of.segments) /* with orders_in_shared, segment_order advances it to the end */
            of.ends[k] = of.orders_in_shared ? end - count : end;
    }
}
