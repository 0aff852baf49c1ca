/* row_packs: a thread adds up the rows that lie in a pack.
 *
 * Rows of 2, 4 or 8 elements and less than 16 bytes do not need the shared memory of row_tile: a
 * pack holds several of them whole. A thread loads two packs, and stores the sums of each at once.
 *
 * Still wasted: nothing that matters. Rows of other lengths go to other kernels. */
#include "parts/columns.h"

/* Adds up rows `begin` to `end`, an element at a time. */
template <typename In, typename Acc>
__device__ __forceinline__ void add_each(const Matrix<In> &in, const Sums<Acc> &out, size_t begin,
                                         size_t end)
{
    MOSTLY_ONCE
    for (size_t r = begin; r < end; r++) {
        Acc sum = 0;
        for (unsigned c = 0; c < (unsigned)in.of.columns; c++)
            add_to(sum, in.row(r)[c]);
        out.put(r, sum, in.terms_of(r));
    }
}

/* Adds up the rows in a pack, from row `r` on: again in Acc, if the additions might round. */
template <unsigned columns, typename In, typename Acc>
__device__ __forceinline__ void add_rows(Pack<In> pack, const Matrix<In> &in, const Sums<Acc> &out,
                                         size_t r)
{
    constexpr unsigned width = Pack<In>::count, rows = width / columns;
    In element[width];
    typename Columns<In, Acc, ShortSum<Acc, In>>::Part sum[rows];
    Sizes<In> sizes;
    memcpy(element, &pack, sizeof element);
    for (unsigned i = 0; i < width; i++) {
        if (i % columns == 0)
            sum[i / columns] = 0;
        add_short<Acc>(sum[i / columns], sizes, element[i]);
    }
    if constexpr (is_proven<Acc> && !is_moments<Acc>) {
        if (!sizes.allow(columns) || !out.template put_pack<In>(r, sum))
            add_each(in, out, r, r + rows);
    } else if (!out.template put_pack<In>(r, sum) && !out.put_native(r, sum))
        each_in_turn(sum,
                     [&](auto one, unsigned k) { out.put(r + k, Acc(one), in.terms_of(r + k)); });
}

template <unsigned columns, typename In, typename Acc>
__device__ __forceinline__ void add_packs(const Matrix<In> &in, const Sums<Acc> &out)
{
    constexpr unsigned width = Pack<In>::count, rows = width / columns;
    size_t tid = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    size_t threads = (size_t)gridDim.x * blockDim.x;
    if constexpr (rows > 1) {
        size_t packs = in.rows() / rows, left = packs * rows + tid;
        for (size_t i = tid; i < packs; i += 2 * threads) {
            Pack<In> pack[2] = {Packed<const In *>::whole(in.row(0) + i * width)};
            if (i + threads < packs)
                pack[1] = Packed<const In *>::whole(in.row(0) + (i + threads) * width);
            MOSTLY_ONCE
            for (size_t p = i; p < packs && p <= i + threads; p += threads, pack[0] = pack[1])
                add_rows<columns>(pack[0], in, out, p * rows);
        }
        add_each(in, out, left, left < in.rows() ? left + 1 : left);
    }
}

template <typename In, typename Acc>
__global__ void __launch_bounds__(256, is_proven<Acc> ? 2 : 3)
    row_packs(const __grid_constant__ Matrix<In> in, const __grid_constant__ Sums<Acc> out)
{
    switch (in.of.columns) {
    case 2: return add_packs<2>(in, out);
    case 4: return add_packs<4>(in, out);
    default: add_packs<8>(in, out);
    }
}
