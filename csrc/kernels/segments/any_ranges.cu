/* any_ranges: sums of ranges of elements along one axis: of windows, or from offset to offset.
 *
 * As in any_layout, a thread, a team of lanes or a block adds up a range.
 * Windows that overlap take the sums of chunks of elements, which an earlier launch of this kernel
 * has made, and add the elements beside the chunks.
 *
 * Still wasted: neighbouring windows add up nearly the same elements. */
#include "parts/layout.h"
#include "parts/matrix.h"

/* Adds up a thread's share of the elements of group k. */
template <typename Acc>
__device__ __forceinline__ Acc sum_of_range(const gr_layout &of, const Place &first, size_t k,
                                            Turn turn)
{
    Acc sum = 0;
    size_t end = turn.end, rest = end;
    if (of.chunks) {
        size_t from = (turn.begin + of.chunk - 1) / of.chunk, to = end / of.chunk;
        size_t line = k / of.dim[of.kept - 1].size * of.chunk_count;
        if (from < to) {
            turn.end = from * of.chunk;
            rest = to * of.chunk;
        }
        for (size_t i = from + turn.member; i < to; i += turn.step)
            sum += static_cast<const Acc *>(of.chunks)[line + i];
    }
    MOSTLY_ONCE
    do {
        add_elements(sum, of, first, turn);
        turn.begin = turn.end == end ? end : rest;
        turn.end = end;
    } while (turn.begin < end);
    return sum;
}

template <typename In, typename Acc>
__global__ void __launch_bounds__(256, 3)
    any_ranges(const __grid_constant__ gr_layout of, const __grid_constant__ Sums<Acc> out,
               size_t sums, size_t terms, unsigned team, unsigned shares)
{
    unsigned teams = blockDim.x / team, member = threadIdx.x % team;
    size_t count = sums * shares, apart = (size_t)gridDim.x * teams;
    for (size_t first = (size_t)blockIdx.x * teams; first < count; first += apart) {
        size_t number = first + threadIdx.x / team;
        bool exists = number < count, stores = exists && member == 0;
        size_t k = exists ? number / shares : 0, share = number - k * shares;
        Place place(of.dim, of.kept, k);
        TermRange mine(of, place, terms);
        Acc sum = 0;
        if (exists)
            sum = sum_of_range<Acc>(
                of, place, k, {mine.at(share, shares), mine.at(share + 1, shares), member, team});
        sum = team_sum(sum, team);
        if (stores && out.of.is_partial)
            put_partial(out.of, number, sum);
        else if (stores)
            finish_sum(static_cast<char *>(out.of.base) + place.out, out.of, k, sum);
        if (team > 32)
            __syncthreads(); /* the next sum takes the same shared memory */
    }
}
