/* row_warp: a warp adds up one row by packs.
 *
 * The lanes read neighbouring packs of 16 bytes, four packs each before they add, so every sector
 * that is fetched is used whole, and the waits for memory overlap.
 *
 * Still wasted: lanes, if rows are short; and multiprocessors, if they are long and few. */
#include "parts/matrix.h"

/* Adds up row r. Starts again with Acc if additions of Sum round, in all lanes. */
template <typename Sum, typename In, typename Acc>
__device__ __forceinline__ void add_row(const Matrix<In> &in, const Sums<Acc> &out, size_t r)
{
    constexpr unsigned flight = 4;
    const In *row = in.row(r);
    size_t columns = in.of.columns;
    unsigned lane = threadIdx.x % 32;
    Packed<const In *> packed(row, columns);
    Sizes<In> sizes;
    Sum sum = 0;

    if (lane < packed.head)
        add_short<Acc>(sum, sizes, row[lane]);
    if (lane < packed.tail)
        add_short<Acc>(sum, sizes, row[columns - 1 - lane]);
    for (size_t i = lane; i < packed.packs; i += 32 * flight) {
        Pack<In> pack[flight];
        for (unsigned k = 0; k < flight; k++)
            pack[k] = packed.or_zero(i + 32 * k, packed.packs);
        if constexpr (is_proven<Sum> && Sizes<In>::usable) {
            add_packs_to(sum, pack);
        } else {
            UNROLLED
            for (unsigned k = 0; k < flight; k++)
                if (i - lane + 32 * k < packed.packs)
                    add_short<Acc>(sum, sizes, pack[k]);
        }
    }
    if constexpr (is_short<Acc, Sum>)
        if (!sizes.allow_in_warp((unsigned)columns))
            return add_row<Acc>(in, out, r);
    sum = warp_sum(sum);
    if (lane == 0)
        out.put_short(r, sum);
}

template <typename In, typename Acc>
__global__ void __launch_bounds__(256, is_proven<Acc> ? 4 : 6)
    row_warp(Matrix<In> in, Sums<Acc> out)
{
    constexpr size_t short_row = 512; /* a sum of more elements is rarely exact in float64 */
    size_t warps = (size_t)gridDim.x * (blockDim.x / 32);
    size_t r = (size_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    for (; r < in.rows(); r += warps) {
        if (in.of.columns <= short_row)
            add_row<ShortSum<Acc, In>>(in, out, r);
        else
            add_row<Acc>(in, out, r);
    }
}
