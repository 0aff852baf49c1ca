/* column_packs: a thread adds up several packs of columns of few rows.
 *
 * With a few rows, a thread of column_tiles loads too little before it ends. Here each thread has
 * packs from four places of the row in flight, and takes the next four places when it is done.
 * Where a row is no whole number of packs, a pack is one element.
 *
 * Still wasted: threads, if there are too few columns to fill the card. */
#include "parts/columns.h"

/* Adds up some packs of columns: `first`, `first + apart`, ... Starts again with Acc if additions
 * of Sum round. */
template <unsigned width, unsigned flight, typename Sum, typename In, typename Acc>
__device__ __forceinline__ void add_columns(const Matrix<In> &in, const Sums<Acc> &out,
                                            size_t first, size_t apart)
{
    constexpr unsigned wide = width == 1 ? 1 : Pack<Acc, false>::count;
    size_t row_packs = in.of.columns / width, packs = row_packs * in.of.batches;
    const In *at[flight];
    Sum sum[flight][width];
    Sizes<In> sizes;

    for (unsigned k = 0; k < flight; k++) {
        size_t p = first + k * apart, batch = in.of.batches == 1 ? 0 : p / row_packs;
        at[k] = in.batch(batch) + (p - batch * row_packs) * width;
        for (unsigned j = 0; j < width; j++)
            sum[k][j] = 0;
    }
    for (size_t r = 0; r < in.of.rows; r++) {
        In element[flight][width];
        memset(element, 0, sizeof element);
        for (unsigned k = 0; k < flight; k++)
            if (first + k * apart < packs)
                load_elements(element[k], at[k] + (int64_t)r * in.of.row_step);
        for (unsigned k = 0; k < flight; k++)
            for (unsigned j = 0; j < width; j++)
                if constexpr (std::is_same<Sum, Acc>::value)
                    add_to(sum[k][j], element[k][j]);
                else
                    add_exactly(sum[k][j], sizes, element[k][j]);
    }
    if constexpr (!std::is_same<Sum, Acc>::value)
        if (in.of.rows > 1 << 20 || !sizes.allow((unsigned)in.of.rows)) {
            for (unsigned k = 0; k < flight && first + k * apart < packs; k++)
                add_columns<width, 1, Acc>(in, out, first + k * apart, apart);
            return;
        }
    for (unsigned k = 0; k < flight; k++)
        for (unsigned j = 0; j < width; j += wide) {
            Acc part[wide];
            for (unsigned i = 0; i < wide; i++)
                part[i] = Acc(sum[k][j + i]);
            if (first + k * apart < packs)
                out.put_all((first + k * apart) * width + j, part);
        }
}

template <typename In, typename Acc>
__global__ void __launch_bounds__(256, is_proven<Acc> ? 2 : 4)
    column_packs(Matrix<In> in, Sums<Acc> out)
{
    constexpr unsigned flight = 4, width = Pack<In>::count;
    bool whole = in.has_whole_packs();
    size_t packs = in.of.columns * in.of.batches / (whole ? width : 1);
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    size_t threads = (size_t)gridDim.x * blockDim.x;
    for (; i < packs; i += threads * flight) {
        if (whole)
            add_columns<width, flight, ShortSum<Acc, In>>(in, out, i, threads);
        else
            add_columns<1, flight, ShortSum<Acc, In>>(in, out, i, threads);
    }
}
