/* column_tiles: packs of columns, with the rows shared among teams of threads and among blocks.
 *
 * A thread loads a pack of 16 bytes of neighbouring columns from each of eight rows before it adds.
 * The `teams` teams of a block take every teams-th row, and add up their sums in shared memory. If
 * there are too few columns to fill the card, the rows are cut into `shares` of one block each, and
 * a second launch, of row_lanes, adds up the sums of the shares. Short rows are laid side by side:
 * `fold` of them make one row of the matrix. `tail` elements are left over.
 *
 * Still wasted: the second launch; and loads of one element, if rows are not whole packs. */
#include "parts/columns.h"

template <typename In, typename Acc>
__global__ void __launch_bounds__(256, blocks_of<In, Acc>)
    column_tiles(const __grid_constant__ Matrix<In> in, const __grid_constant__ Sums<Acc> out,
                 unsigned teams, unsigned shares, unsigned fold, unsigned tail)
{
    /* Short sums of float16 are exact: a thread gets at most Sizes<In>::few rows. */
    using Sum = std::conditional_t<std::is_same<In, __half>::value, ShortSum<Acc, In>, Acc>;
    constexpr unsigned width = Pack<In>::count;
    unsigned members = blockDim.x / teams, team = threadIdx.x / members,
             tile_width = members * width;
    size_t tiles = (in.of.columns + tile_width - 1) / tile_width, tile = blockIdx.x % tiles;
    size_t share = blockIdx.x / tiles % shares, batch = blockIdx.x / tiles / shares;
    size_t begin = in.of.rows * share / shares, rows = in.of.rows * (share + 1) / shares - begin;
    int64_t step = in.of.row_step, next = in.of.column_step;
    size_t left = in.of.columns - tile * tile_width; /* columns from this tile on */
    bool whole = in.has_whole_packs();
    unsigned apart = whole ? 1 : members, from = threadIdx.x % members * (whole ? width : 1);
    const In *first = in.terms_of(batch, tile * tile_width + from).first + (int64_t)begin * step;
    Columns<In, Acc, Sum> of;

    if (whole && from < left)
        of.add_packs(first + (int64_t)team * step, step, team, rows, teams);
    else if (from < left)
        of.add_elements(first + (int64_t)team * step, step, team, rows, teams, apart, left - from,
                        next);
    if (share == shares - 1 && team == 0) /* the `tail` elements, too few for a row */
        for (unsigned j = 0; j < width; j++)
            if (from + j * apart < tail)
                add_short<Acc>(of.sum[j], first[(int64_t)rows * step + j * apart]);

    if (teams > 1 || fold > 1) {
        /* First all packs' first columns, then all second ones: lanes store neighbours. */
        Acc *shared = shared_array<Acc>();
        auto place = [=](unsigned c) { return whole ? c % width * members + c / width : c; };
        for (unsigned j = 0; j < width; j++)
            shared[team * tile_width + j * members + threadIdx.x % members] = Acc(of.sum[j]);
        __syncthreads();
        /* Adds the teams' sums, then the sums of `fold` columns that make one of the array. */
        unsigned columns = unsigned(left < tile_width ? left : tile_width) / fold;
        add_teams(shared, teams, tile_width);
        for (unsigned some = fold, half; some > 1; some = half) {
            half = (some + 1) / 2;
            __syncthreads();
            for (unsigned c = threadIdx.x; c < (some - half) * columns; c += blockDim.x)
                shared[place(c)] += shared[place(c + half * columns)];
        }
        __syncthreads();
        for (unsigned c = threadIdx.x; c < columns; c += blockDim.x) {
            size_t k = batch * (in.of.columns / fold) + tile * tile_width + c;
            out.put(k * shares + share, shared[place(c)],
                    Strided<In>{in.terms_of(batch, tile * tile_width + c).first, step / fold});
        }
        return;
    }
    size_t to = batch * in.of.columns + tile * tile_width + from;
    if (whole && shares == 1)
        of.put_across(out, to, from < left, {first, step});
    else
        of.put_apart(out, to, apart, from < left ? left - from : 0, share, shares, {first, step},
                     next);
}
