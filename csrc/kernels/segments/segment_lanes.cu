/* segment_lanes: a lane adds up a segment of a few values that are neighbours in memory.
 *
 * With segments this short, most instructions of the kernel segment_rows compute which lane adds
 * which element. A lane with a segment of its own needs none of these. It also needs fewer
 * registers, so that more warps fit on a multiprocessor and wait for memory at once.
 *
 * Still wasted: lanes wait for the longest segment of their warp. */
#include "parts/segment_rows.h"

template <typename Acc, typename Sum, typename In>
__device__ __forceinline__ void add_neighbours(Sum &sum, Sizes<In> &sizes, const In *in,
                                               uint64_t count)
{
    constexpr unsigned flight = 4;
    while (count > 0) {
        unsigned here = count < flight ? (unsigned)count : flight;
        In value[flight];
        for (unsigned k = 0; k < flight; k++)
            value[k] = k < here ? in[k] : In{};
        add_to_part<Sum, Acc>(sum, sizes, value);
        in += flight;
        count -= here;
    }
}

template <typename In, typename Acc>
__global__ void __launch_bounds__(256, 5) segment_lanes(const __grid_constant__ gr_segment_job of)
{
    invite_next_kernel();
    wait_for_earlier_kernels();
    if (!adds_rows(of))
        return;
    for_each_segment<Acc>(of, 1, 1, 1, PutNoWhole(), [&](const Part &part, const Target &target) {
        const In *in = reinterpret_cast<const In *>(part.column) + part.begin;
        return put_sums<In, Acc>(of, part, target, [&](auto &sum, Sizes<In> &sizes) {
            add_neighbours<Acc>(sum, sizes, in, part.end - part.begin);
        });
    });
}
