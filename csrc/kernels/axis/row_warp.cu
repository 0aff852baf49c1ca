/* row_warp: some lanes of a warp, or all, add up one row.
 *
 * The lanes read neighbouring packs of 16 bytes, so every sector that is fetched is used whole, and
 * shuffles add up the lanes' sums. A row of few packs takes 2, 4, 8 or 16 lanes. Short rows leave
 * few loads per lane, so a warp loads from several rows before it adds.
 *
 * Still wasted: lanes, if rows are shorter than a pack or no multiple of it, or very long and few.
 */
#include "parts/matrix.h"

/* Adds up the sums of groups of `lanes` lanes. The first lane of each group gets the total. */
template <typename Acc> __device__ __forceinline__ Acc group_sum(Acc value, unsigned lanes)
{
    for (unsigned offset = lanes / 2; offset > 0; offset /= 2)
        value += __shfl_down_sync(0xffffffffu, value, offset);
    return value;
}

template <typename In, typename Acc>
__global__ void __launch_bounds__(256, 6) row_warp(Matrix<In> in, Sums<Acc> out)
{
    constexpr unsigned flight = 4;
    size_t rows = in.rows(), columns = in.of.columns;
    size_t warps = (size_t)gridDim.x * (blockDim.x / 32);
    size_t warp = (size_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    unsigned lane = threadIdx.x % 32;
    size_t packs = columns / Pack<In>::count;

    if (in.has_whole_packs()) {
        unsigned lanes = 1;
        while (lanes < packs && lanes < 32)
            lanes *= 2;
        unsigned at_once = 32 / lanes, member = lane % lanes;
        size_t first = warp * at_once * flight, turn = warps * at_once * flight;
        for (; first < rows; first += turn) {
            size_t r = first + lane / lanes;
            Acc sum[flight];
            for (unsigned k = 0; k < flight; k++)
                sum[k] = 0;
            for (size_t i = member; i - member < packs; i += lanes) {
                Pack<In> pack[flight];
                for (unsigned k = 0; k < flight; k++) {
                    memset(&pack[k], 0, sizeof pack[k]);
                    if (i < packs && r + k * at_once < rows)
                        pack[k] = Packed<const In *>::whole(in.row(r + k * at_once) +
                                                            i * Pack<In>::count);
                }
                for (unsigned k = 0; k < flight; k++)
                    add_pack_to(sum[k], pack[k]);
            }
            for (unsigned k = 0; k < flight; k++) {
                sum[k] = group_sum(sum[k], lanes);
                if (member == 0 && r + k * at_once < rows)
                    out.put(r + k * at_once, sum[k]);
            }
        }
        return;
    }
    for (size_t r = warp; r < rows; r += warps) {
        const In *row = in.row(r);
        Packed<const In *> packed(row, columns);
        Acc sum = ends_of<Acc>(row, columns, packed, lane);
        for (size_t i = lane; i < packed.packs; i += 32 * flight) {
            Pack<In> pack[flight];
            for (unsigned k = 0; k < flight; k++)
                pack[k] = packed.or_zero(i + 32 * k, packed.packs);
            for (unsigned k = 0; k < flight; k++)
                add_pack_to(sum, pack[k]);
        }
        sum = warp_sum(sum);
        if (lane == 0)
            out.put(r, sum);
    }
}
