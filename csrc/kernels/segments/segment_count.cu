/* segment_count: counts the rows of each segment, where ids are not sorted.
 *
 * For rows of many columns, a counting sort of the row numbers costs less than an atomic addition
 * per element. Its steps are segment_count, segment_claim and segment_order. Then each segment is
 * added up as if its rows lay one after another. Lanes that have the same id add to its count
 * together. The count before a row is added is the row's place within its segment. With few
 * segments, all blocks would queue for a few addresses: each counts in shared memory first.
 *
 * Still wasted: the ids are read twice, or three times with few segments. */
#include "parts/segment_order.h"

template <typename In, typename Word> __global__ void segment_count(gr_segment_job of)
{
    invite_next_kernel();
    wait_for_earlier_kernels();
    unsigned *counts = of.orders_in_shared ? shared_array<unsigned>() : of.counts;

    if (!needs_order(of))
        return;
    if (of.orders_in_shared)
        clear_counts(of, counts);
    count_rows(of, counts);
    if (!of.orders_in_shared)
        return;
    __syncthreads();
    for (uint64_t k = threadIdx.x; k < of.segments; k += blockDim.x)
        if (counts[k])
            atomicAdd(of.counts + k, counts[k]);
}
