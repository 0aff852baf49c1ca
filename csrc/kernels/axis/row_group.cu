/* row_group: 1 to 32 lanes add up one short row.
 *
 * If a row has few packs, many lanes of row_warp are idle, and all others load little. Here a row
 * takes as many lanes as it has packs, and these lanes load from four rows before they add. Then
 * pairs of lanes exchange sums of different rows: two steps leave each lane with one sum instead of
 * four. An exact sum of float64 is three numbers, slow to merge: there a lane takes four packs.
 *
 * Still wasted: lanes, if the number of packs is no power of two. Rows that are not a whole number
 * of packs go to other kernels.
 */
#include "parts/four_rows.h"

/* Blocks per multiprocessor, at least: moments of floats take twice the registers. */
template <typename In, typename Acc>
constexpr unsigned blocks = !is_proven<Acc>   ? 6
                            : is_moments<Acc> ? 2
                            : sizeof(In) == 8 ? 3
                                              : 4;

template <typename In, typename Acc>
__global__ void __launch_bounds__(256, blocks<In, Acc>)
    row_group(const __grid_constant__ Matrix<In> in, const __grid_constant__ Sums<Acc> out)
{
    size_t packs = in.of.columns / Pack<In>::count;
    size_t warps = (size_t)gridDim.x * (blockDim.x / 32);
    size_t warp = (size_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    constexpr unsigned per_lane = is_proven<ShortSum<Acc, In>> ? 4 : 1;
    unsigned lanes = 1;
    while (lanes * per_lane < packs && lanes < 32)
        lanes *= 2;
    unsigned turn = 32 / lanes * 4;
    for (size_t first = warp * turn; first < in.rows(); first += warps * turn)
        add_groups<ShortSum<Acc, In>>(in, out, first + threadIdx.x % 32 / lanes, lanes);
}
