/* exact: the sum of floats as if it were made without rounding, rounded once.
 *
 * All rungs before round at each addition, so their last bits depend on the order: on block, grid
 * and card. Here nothing is rounded until the end. Each thread deposits its elements where they
 * cannot round (exact_deposits.h says how, by element type). What a block has deposited becomes
 * digits to base 2^32, which are added to the other blocks' by atomics: they are integers, and
 * integers do not care for the order. The host rounds.
 *
 * Costs: a few more instructions per element, which the memory's time hides, as each thread loads
 * its next packs before it deposits these; and a longer finish, which shows on small arrays. */
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

    /* Shares as in tiles. All warps make as many rounds, as emptying bins takes the whole block. */
    size_t groups = (packed.packs + 31) / 32;
    size_t begin = groups * blockIdx.x / gridDim.x * 32, first = begin + threadIdx.x;
    size_t end = groups * (blockIdx.x + 1) / gridDim.x * 32;
    end = end < packed.packs ? end : packed.packs;

    /* Until the kernel ahead is done, what does not wait for it. */
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

    if (is_short) /* all its loads are under way */
        invite_next_kernel();
    __syncthreads();
    unsigned rounds = 0;
    for (; first - threadIdx.x < end; first += flight * block) {
        size_t after = first + flight * block;
        count = next_count;
        for (unsigned k = 0; k < flight; k++)
            pack[k] = next[k];
        if (after + flight * block <= end) { /* saves comparing each */
            for (unsigned k = 0; k < flight; k++)
                next[k] = packed.words(after + k * block);
        } else {
            invite_next_kernel(); /* earlier, its blocks would ask for their bytes too soon */
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
    /* The last block's, as the tail lies behind its share. */
    size_t id = (gridDim.x - 1 - blockIdx.x) * block + threadIdx.x;
    if (id < packed.head)
        deposit.add_loose(in[id]);
    if (id < packed.tail)
        deposit.add_loose(in[n - 1 - id]);
    finish_digits(deposit, out, totals);
}
