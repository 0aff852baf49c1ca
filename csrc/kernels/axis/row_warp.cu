/* row_warp: a warp adds up one row by packs.
 *
 * The lanes read neighbouring packs of 16 bytes, four packs each before they add, so every sector
 * that is fetched is used whole, and the waits for memory overlap.
 *
 * Still wasted: lanes, if rows are short; and multiprocessors, if they are long and few. */
#include "parts/matrix.h"

template <typename In, typename Acc>
__global__ void __launch_bounds__(256, is_proven<Acc> ? 4 : 6)
    row_warp(Matrix<In> in, Sums<Acc> out)
{
    constexpr unsigned flight = 4;
    size_t columns = in.of.columns, warps = (size_t)gridDim.x * (blockDim.x / 32);
    unsigned lane = threadIdx.x % 32;
    size_t r = (size_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;

    for (; r < in.rows(); r += warps) {
        const In *row = in.row(r);
        Packed<const In *> packed(row, columns);
        Acc sum = ends_of<Acc>(row, columns, packed, lane);
        for (size_t i = lane; i < packed.packs; i += 32 * flight) {
            Pack<In> pack[flight];
            for (unsigned k = 0; k < flight; k++)
                pack[k] = packed.or_zero(i + 32 * k, packed.packs);
            add_packs_to(sum, pack);
        }
        sum = warp_sum(sum);
        if (lane == 0)
            out.put(r, sum);
    }
}
