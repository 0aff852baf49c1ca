/* exact: the correctly rounded sum of floats: added without rounding, rounded once.
 *
 * All rungs before round at each addition, so their last bits depend on the order: on block, grid
 * and GPU. Here only the end result is rounded. Each thread deposits its elements where they cannot
 * round (exact_deposits.h explains this for each element type). A block's deposits become digits to
 * base 2^32, and atomics add them to the other blocks' digits: integer sums do not depend on the
 * order. The host rounds.
 *
 * Costs: a few more instructions per element, hidden behind its loads, as each thread loads
 * its next packs before it deposits these; and a longer finish, visible on small arrays. */
#include "parts/common.h"
#include "parts/exact_deposits.h"

template <typename In, typename Acc>
__global__ void __launch_bounds__(Deposit<typename Packed<In>::Element>::most_threads)
    exact(In in, unsigned long long *out, size_t n, unsigned long long *totals, unsigned *)
{
    Packed<In> packed(in, n);
    using Deposits = Deposit<typename Packed<In>::Element>;
    constexpr unsigned flight = Deposits::flight;
    size_t block = blockDim.x;

    /* Shares as in tiles. All warps run equally many rounds, as the whole block empties bins. */
    size_t groups = (packed.packs + 31) / 32;
    size_t begin = groups * blockIdx.x / gridDim.x * 32, first = begin + threadIdx.x;
    size_t end = groups * (blockIdx.x + 1) / gridDim.x * 32;
    end = end < packed.packs ? end : packed.packs;

    /* Work that can overlap with the previous kernel. */
    bool is_short = end - begin <= flight * block;
    packed.fetch_ahead(begin, end);
    clear_words();
    Deposits deposit;
    if (!is_short)
        deposit.prepare();
    wait_for_earlier_kernels();
    Pack<unsigned> pack[flight], next[flight];
    unsigned count, next_count = count_of(first, block, end, flight);
    for (unsigned k = 0; k < flight; k++)
        next[k] = packed.words_or_zero(first + k * block, end);

    if (is_short) /* all loads are issued */
        invite_next_kernel();
    __syncthreads();
    unsigned rounds = 0;
    for (; first - threadIdx.x < end; first += flight * block) {
        size_t after = first + flight * block;
        count = next_count;
        for (unsigned k = 0; k < flight; k++)
            pack[k] = next[k];
        if (after + flight * block <= end) { /* no bounds checks */
            for (unsigned k = 0; k < flight; k++)
                next[k] = packed.words(after + k * block);
        } else {
            invite_next_kernel(); /* earlier, its prefetches would come too soon */
            next_count = count_of(after, block, end, flight);
            for (unsigned k = 0; k < flight; k++)
                next[k] = packed.words_or_zero(after + k * block, end);
        }
        deposit.add(pack, count);
        if (Deposits::rounds && ++rounds == Deposits::rounds) {
            start_anew(deposit);
            rounds = 0;
        }
    }
    /* Loose elements go to the last blocks first, as the tail follows the last share. */
    size_t id = (gridDim.x - 1 - blockIdx.x) * block + threadIdx.x;
    if (id < packed.head)
        deposit.add_loose(in[id]);
    if (id < packed.tail)
        deposit.add_loose(in[n - 1 - id]);
    finish_digits(deposit, out, totals);
}
