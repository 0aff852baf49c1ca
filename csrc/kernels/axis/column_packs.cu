/* column_packs: a thread adds up several packs of columns of few rows.
 *
 * With few rows, a thread of column_tiles loads too little before it ends. Here a thread has
 * several packs of a row in flight. It loads single elements if a row is no whole number of packs,
 * or if a sum takes more bytes than its column: then neighbouring lanes store neighbouring sums.
 * The last columns, too few for a warp, have a thread each. A single row is copied if types agree.
 *
 * Still wasted: threads, if there are too few columns to fill the card. */
#include "parts/columns.h"

/* Adds up `flight` packs: `first`, `first + apart`, ... If additions of Sum might round, a pack is
 * added up again in Acc. */
template <unsigned flight, typename Sum, typename In, typename Acc>
__device__ __forceinline__ void add_packs(const Matrix<In> &in, const Sums<Acc> &out, size_t first,
                                          size_t apart)
{
    constexpr unsigned width = Pack<In>::count, rows = Columns<In, Acc, Sum>::rows_at_once;
    size_t row_packs = in.of.columns / width, packs = row_packs * in.batches();
    const In *at[flight];
    Columns<In, Acc, Sum> of[flight];
    for (unsigned k = 0; k < flight; k++) {
        size_t p = first + k * apart, batch = in.batches() == 1 ? 0 : p / row_packs;
        at[k] = in.batch(batch) + (p - batch * row_packs) * width;
    }
    for (size_t r = 0; r < in.of.rows; r += rows) {
        Pack<unsigned> pack[rows * flight] = {};
        for (unsigned i = 0; i < rows * flight; i++) {
            size_t k = i % flight, row = r + i / flight;
            if (first + k * apart < packs && row < in.of.rows)
                pack[i] = of[k].load(at[k] + (int64_t)row * in.of.row_step);
        }
        if constexpr (flight == 1)
            of[0].add(pack);
        else
            for (unsigned i = 0; i < rows * flight; i++)
                of[i % flight].add(pack[i]);
    }
    unsigned again = 0; /* a bit for each pack whose sums need a proof */
    UNROLLED
    for (unsigned k = 0; k < flight; k++)
        if (first + k * apart < packs &&
            !of[k].store(out, (first + k * apart) * width, in.of.rows, {at[k], in.of.row_step}))
            again |= 1u << k;
    if constexpr (is_short<Acc, Sum>)
        for (; again; again &= again - 1)
            add_packs<1, Acc>(in, out, first + (__ffs((int)again) - 1) * apart, apart);
}

template <typename In, typename Acc>
__global__ void __launch_bounds__(256, blocks_of_packs<In, Acc>)
    column_packs(const __grid_constant__ Matrix<In> in, const __grid_constant__ Sums<Acc> out)
{
    using Sum = ShortSum<Acc, In>;
    constexpr unsigned width = Pack<In>::count, flight = Columns<In, Acc, Sum>::at_once;
    size_t tid = (size_t)blockIdx.x * blockDim.x + threadIdx.x, columns = in.of.columns;
    size_t threads = (size_t)gridDim.x * blockDim.x, whole = columns - columns % (32 * width);
    bool mostly_stores = std::is_integral<In>::value && in.of.rows * sizeof(In) < sizeof(Acc);
    if (copy_row(in, out))
        return;
    /* Neighbouring lanes have neighbouring packs or elements. A thread's own are 32 apart. */
    size_t first = tid / 32 * 32, lane = tid % 32;
    if (in.has_whole_packs() && !mostly_stores)
        for (size_t i = first * flight + lane; i < columns / width * in.batches();
             i += threads * flight)
            add_packs<flight, Sum>(in, out, i, (size_t)32);
    else
        for (size_t b = 0; b < in.batches(); b++) {
            for (size_t i = first * width + lane; i < whole; i += threads * width)
                add_elements<Sum>(in, out, b, i, (size_t)32);
            for (size_t c = whole + tid; c < columns; c += threads)
                add_column(in, out, b, c);
        }
}
