/* segment_join: adds up segments whose rows several warps of segment_runs have added up.
 *
 * Each warp of segment_runs leaves two sums: one of its first segment and one of its last. Sums of
 * the same segment lie next to each other. The warp that finds the first of them adds up all. */
#include "parts/segment_rows.h"

template <typename In, typename Acc> __global__ void segment_join(gr_segment_job of)
{
    invite_next_kernel();
    wait_for_earlier_kernels();
    constexpr unsigned flight = 8;
    uint64_t warps = (uint64_t)gridDim.x * (blockDim.x / 32);
    uint64_t first = ((uint64_t)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    uint64_t ends = 2 * ((of.rows + of.task_rows - 1) / of.task_rows);
    const Acc *partial = static_cast<const Acc *>(of.partial);

    if (!adds_rows(of))
        return;
    for (uint64_t t = first; t < ends; t += warps) {
        uint64_t k = of.task[t].segment;
        if (t > 0 && of.task[t - 1].segment == k)
            continue;
        Acc sum = 0;
        bool goes_on = true;
        for (uint64_t i = t + threadIdx.x % 32; goes_on; i += flight * 32) {
            Acc part[flight];
            for (unsigned j = 0; j < flight; j++) {
                goes_on = i + j * 32 < ends && of.task[i + j * 32].segment == k;
                part[j] = goes_on ? partial[i + j * 32] : Acc(0);
            }
            for (unsigned j = 0; j < flight; j++)
                sum += part[j];
        }
        sum = warp_sum(sum);
        if (threadIdx.x % 32 == 0)
            finish_sum(place_of_sum(of, k, 0), of.sums, k, sum);
    }
}
