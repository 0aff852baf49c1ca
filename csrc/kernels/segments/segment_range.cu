/* segment_range: finds the exponents of a sample of the values, or of all.
 *
 * The largest exponent and the lowest bit that is set in any value decide how many bits fixed-point
 * sums need. Each thread finds both for its values. Shuffles merge those of a warp, and atomicMax()
 * merges those of all warps. Of many values a sample is enough if its words have bits to spare.
 * segment_atomics finds out whether all values fit. If one does not, all are added up again.
 *
 * Still wasted: the first attempt, if a value does not fit. */
#include "parts/segment_extremes.h"

template <typename In, typename Word>
__global__ void __launch_bounds__(256, 4) segment_range(gr_segment_job of)
{
    invite_next_kernel();
    wait_for_earlier_kernels();
    Seen<In> seen;
    constexpr unsigned flight = 4;
    size_t n = of.rows * of.columns, grid = (size_t)gridDim.x * blockDim.x;
    size_t first = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    bool is_flat = of.values.number_step == (int64_t)(of.values.parts * sizeof(In)) &&
                   (of.values.parts == 1 || of.values.part_step == (int64_t)sizeof(In)) &&
                   (of.columns * sizeof(In) == (uint64_t)of.values.row_step || of.rows == 1);

    gr_word_plan plan;
    if (is_in_rows(of) || (!of.in_sample && plans_by_sample(of, &plan)))
        return;
    if (is_flat) {
        const In *in = static_cast<const In *>(of.values.base);
        Packed<const In *> packed(in, n);
        if (first < packed.head)
            seen.add(in[first]);
        if (first < packed.tail)
            seen.add(in[n - 1 - first]);
        /* A part is 32 packs, one load of a warp. A sample has every `apart`-th part. */
        size_t apart = of.in_sample ? of.sampled : 1, lane = first % 32;
        size_t parts = packed.packs / 32 / apart + 1;
        for (size_t i = first / 32; i < parts; i += flight * (grid / 32)) {
            Pack<In> pack[flight];
            for (unsigned k = 0; k < flight; k++)
                pack[k] = packed.or_zero((i + k * (grid / 32)) * apart * 32 + lane, packed.packs);
            for (unsigned k = 0; k < flight; k++) {
                In element[Pack<In>::count];
                memcpy(element, &pack[k], sizeof element);
                for (unsigned j = 0; j < Pack<In>::count; j++)
                    seen.add(element[j]);
            }
        }
    } else {
        for_each_value<8, In>(
            of, [](size_t) { return 0ull; },
            [&](bool is_there, size_t, uint64_t, unsigned long long, In x) {
                if (is_there)
                    seen.add(x);
            });
    }
    seen.extremes.leave(of.in_sample ? &of.state->sample : &of.state->seen);
}
