/* row_warp: a warp adds up one row by packs.
 *
 * The lanes read neighbouring packs of 16 bytes, four packs each before they add, so every sector
 * that is fetched is used whole, and the waits for memory overlap. A warp takes four short rows at
 * once, because merging the exact sums of its lanes would take most of the time.
 *
 * Still wasted: lanes, if rows are short; and multiprocessors, if they are long and few. */
#include "parts/four_rows.h"

template <typename In, typename Acc>
__device__ __forceinline__ void add_row(const Matrix<In> &in, const Sums<Acc> &out, size_t r)
{
    constexpr unsigned flight = 4;
    const In *row = in.row(r);
    size_t columns = in.of.columns;
    unsigned lane = threadIdx.x % 32;
    Packed<const In *> packed(row, columns);
    Acc sum = ends_of<Acc>(row, columns, packed, lane);

    for (size_t i = lane; i < packed.packs; i += 32 * flight) {
        Pack<In> pack[flight];
        for (unsigned k = 0; k < flight; k++)
            pack[k] = packed.or_zero(i + 32 * k, packed.packs);
        if constexpr (adds_floats<Acc, In> || (is_proven<Acc> && Sizes<In>::usable)) {
            add_packs_to(sum, pack);
        } else {
            UNROLLED
            for (unsigned k = 0; k < flight; k++)
                if (i - lane + 32 * k < packed.packs)
                    add_pack_to(sum, pack[k]);
        }
    }
    out.put_by_warp(r, warp_sum(sum), in.terms_of(r));
}

template <typename In, typename Acc>
__global__ void __launch_bounds__(256, is_proven<Acc> ? 4 : 6)
    row_warp(const __grid_constant__ Matrix<In> in, const __grid_constant__ Sums<Acc> out)
{
    /* Sums of longer rows of float32 are rarely exact in float64. */
    constexpr size_t short_row = sizeof(In) == 2 ? 4096 : sizeof(In) == 4 ? 512 : 160;
    bool is_short_row = in.of.columns >= Pack<In>::count && in.of.columns <= short_row;
    constexpr bool may_take_four = is_proven<Acc> && !adds_floats<Acc, In>;
    unsigned at_once = may_take_four && is_short_row ? 4 : 1;
    size_t warps = (size_t)gridDim.x * (blockDim.x / 32);
    size_t warp = (size_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    for (size_t r = warp * at_once; r < in.rows(); r += warps * at_once) {
        if constexpr (may_take_four)
            if (at_once == 4 && add_four<ShortSum<Acc, In>>(in, out, r))
                continue;
        for (size_t k = r; k < r + at_once && k < in.rows(); k++)
            add_row(in, out, k);
    }
}
