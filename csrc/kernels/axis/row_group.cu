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
#include "parts/matrix.h"

template <typename In, typename Acc>
DEVICE_FUNCTION void add_rows_again(const Matrix<In> &in, const Sums<Acc> &out, size_t r,
                                    unsigned lanes);

/* Adds up four rows by groups of lanes: rows `r`, `r + apart`, ... If additions of Sum might round,
 * all lanes start again with Acc. */
template <typename Sum, typename In, typename Acc>
__device__ __forceinline__ void add_rows(const Matrix<In> &in, const Sums<Acc> &out, size_t r,
                                         unsigned lanes)
{
    constexpr unsigned flight = 4, ahead = is_proven<Sum> ? (adds_floats<Acc, In> ? 4 : 2) : 1;
    size_t rows = in.rows(), packs = in.of.columns / Pack<In>::count;
    unsigned member = threadIdx.x % lanes, apart = 32 / lanes;
    const In *row[flight];
    Sum sum[flight];
    Sizes<In> sizes;
    for (unsigned k = 0; k < flight; k++) {
        sum[k] = 0;
        row[k] = in.row(r + k * apart < rows ? r + k * apart : rows - 1);
    }
    for (size_t i = member; i - member < packs; i += ahead * lanes) {
        Pack<In> pack[flight][ahead];
        memset(pack, 0, sizeof pack);
        for (unsigned j = 0; j < ahead * flight; j++) {
            size_t p = i + j % ahead * lanes;
            if (p < packs)
                pack[j / ahead][j % ahead] =
                    Packed<const In *>::whole(row[j / ahead] + p * Pack<In>::count);
        }
        UNROLLED
        for (unsigned k = 0; k < flight; k++)
            add_short<Acc>(sum[k], sizes, pack[k]);
    }
    if constexpr (is_short<Acc, Sum>)
        if (!sizes.allow_in_warp((unsigned)in.of.columns))
            return add_rows_again(in, out, r, lanes);
    unsigned mine = exchange_sums(sum, lanes, member), count = lanes < flight ? flight : 1;
    bool stores = member % (lanes < flight ? lanes : lanes / flight) == 0;
    size_t number = r + mine * apart;
    unsigned again = 0; /* a bit for each sum that is not proven */
    for (unsigned k = 0; k < flight; k++)
        if (stores && k < count && number + k * apart < rows &&
            !out.template is_put_short<Strided<In>>(number + k * apart, sum[k]))
            again |= 1u << k;
    if (__any_sync(0xffffffffu, again))
        put_rows_again<Strided<In>>(in, out, again, number, apart);
}

/* Not inlined: it would take registers of the sums that are usually exact. */
template <typename In, typename Acc>
DEVICE_FUNCTION void add_rows_again(const Matrix<In> &in, const Sums<Acc> &out, size_t r,
                                    unsigned lanes)
{
    add_rows<Acc>(in, out, r, lanes);
}

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
        add_rows<ShortSum<Acc, In>>(in, out, first + threadIdx.x % 32 / lanes, lanes);
}
