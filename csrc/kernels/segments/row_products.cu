/* row_products: 1 to 32 lanes add up the products of the elements of two short rows.
 *
 * The rows of two arrays lie alike in memory: a row of one is `in.of.factors` bytes from that of
 * the other. As in row_group, a row takes as many lanes as it has packs, up to a warp. These lanes
 * load from four rows of both arrays before they add, and then exchange sums of different rows.
 *
 * Still wasted: lanes, if the number of packs is no power of two. Rows that are long, or not a
 * whole number of packs, go to any_layout. */
#include "parts/matrix.h"
#include "parts/products.h"

/* Adds up four rows by groups of lanes: rows `r`, `r + apart`, ... */
template <typename In, typename Acc>
__device__ __forceinline__ void add_rows(const Matrix<In> &in, const Sums<Acc> &out, size_t r,
                                         unsigned lanes)
{
    using Sum = std::conditional_t<std::is_same<In, __half>::value, ShortProducts, type_proven>;
    constexpr unsigned flight = 4, width = Pack<In>::count;
    size_t rows = in.rows(), packs = in.of.columns / width;
    unsigned member = threadIdx.x % lanes, apart = 32 / lanes;
    const In *row[flight];
    Sum sum[flight];
    for (unsigned k = 0; k < flight; k++) {
        sum[k] = 0;
        row[k] = in.row(r + k * apart < rows ? r + k * apart : rows - 1);
    }
    for (size_t i = member; i - member < packs; i += lanes) {
        Pack<In> pack[flight][2];
        memset(pack, 0, sizeof pack);
        for (unsigned k = 0; k < flight; k++)
            if (i < packs) {
                pack[k][0] = Packed<const In *>::whole(row[k] + i * width);
                pack[k][1] = Packed<const In *>::whole(in.factors(row[k]) + i * width);
            }
        UNROLLED
        for (unsigned k = 0; k < flight; k++) {
            In element[2][width];
            memcpy(element, pack[k], sizeof element);
            add_products(sum[k], element[0], element[1]);
        }
    }
    unsigned mine = exchange_sums(sum, lanes, member), count = lanes < flight ? flight : 1;
    bool stores = member % (lanes < flight ? lanes : lanes / flight) == 0;
    size_t number = r + mine * apart;
    each_in_turn(sum, [&](const Sum &one, unsigned k) {
        Acc made = 0;
        made.products = type_proven(one);
        if (stores && k < count && number + k * apart < rows)
            out.template is_put<NoTerms>(out.place(number + k * apart), number + k * apart, made);
    });
}

template <typename In, typename Acc>
__global__ void __launch_bounds__(256, 3)
    row_products(const __grid_constant__ Matrix<In> in, const __grid_constant__ Sums<Acc> out)
{
    size_t packs = in.of.columns / Pack<In>::count;
    size_t warps = (size_t)gridDim.x * (blockDim.x / 32);
    size_t warp = (size_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    unsigned lanes = 1;
    while (lanes < packs && lanes < 32)
        lanes *= 2;
    unsigned turn = 32 / lanes * 4;
    for (size_t first = warp * turn; first < in.rows(); first += warps * turn)
        add_rows(in, out, first + threadIdx.x % 32 / lanes, lanes);
}
