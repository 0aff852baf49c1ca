/* segment_range: finds the range of exponents of all values.
 *
 * The largest exponent and the lowest bit that is set in any value decide how many bits fixed-point
 * sums need. Each thread finds both for its values. Shuffles merge those of a warp, and atomicMax()
 * merges those of all warps.
 *
 * Still wasted: the values are read once more than a sum needs. */
#include "parts/segment_extremes.h"

template <typename In, typename Word>
__global__ void __launch_bounds__(256, 4) segment_range(gr_segment_job of)
{
    using Float = std::conditional_t<std::is_same<In, double>::value, double, float>;
    Extremes<Float> seen;
    constexpr unsigned flight = 4;
    size_t n = of.rows * of.columns, grid = (size_t)gridDim.x * blockDim.x;
    size_t first = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    bool is_flat = of.values.number_step == (int64_t)(of.values.parts * sizeof(In)) &&
                   (of.values.parts == 1 || of.values.part_step == (int64_t)sizeof(In)) &&
                   (of.columns * sizeof(In) == (uint64_t)of.values.row_step || of.rows == 1);

    if (is_in_rows(of))
        return;
    if (is_flat) {
        const In *in = static_cast<const In *>(of.values.base);
        Packed<const In *> packed(in, n);
        if (first < packed.head)
            seen.add(Float(in[first]));
        if (first < packed.tail)
            seen.add(Float(in[n - 1 - first]));
        for (size_t i = first; i < packed.packs; i += flight * grid) {
            Pack<In> pack[flight];
            for (unsigned k = 0; k < flight; k++)
                pack[k] = packed.or_zero(i + k * grid, packed.packs);
            for (unsigned k = 0; k < flight; k++) {
                In element[Pack<In>::count];
                memcpy(element, &pack[k], sizeof element);
                for (unsigned j = 0; j < Pack<In>::count; j++)
                    seen.add(Float(element[j]));
            }
        }
    } else {
        for_each_value<8, In>(
            of, [](size_t) { return 0ull; },
            [&](bool is_there, size_t, uint64_t, unsigned long long, In x) {
                if (is_there)
                    seen.add(Float(x));
            });
    }
    seen.leave(of.state);
}
