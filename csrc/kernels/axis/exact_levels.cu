/* exact_levels: some lanes of a warp add up one sum in integers, where nothing is rounded.
 *
 * The other kernels of `exact` add up each sum in two or three float64 numbers, which nearly always
 * prove how it is rounded. What is left comes here. Each lane cuts its elements into pieces of 42
 * bits, by additions of float64, and adds up the pieces of each size. Lanes exchange these sums,
 * and one of them rounds. The lanes of several sums lie so that neighbours in a column read
 * neighbours. Warps that share a long sum add their pieces up in global memory, and the last one
 * rounds.
 *
 * Still wasted: additions of nothing, since an element has at most three pieces. Levels are skipped
 * five at a time, of 7 for float32 and 50 for float64. */
#include "parts/exact_levels.h"
#include "parts/matrix.h"

/* Adds up the sums that have a bit in `out.of.unproven`, or all if that is NULL. `words` are
 * GR_LEVELS_WORDS for each sum, all 0, if warps share sums. */
template <typename In, typename Acc>
__global__ void __launch_bounds__(256, Levels<Acc>::is_wide ? 1 : 4)
    exact_levels(gr_layout of, Sums<Acc> out, size_t sums, size_t terms, unsigned lanes,
                 size_t shares, unsigned long long *words)
{
    const unsigned *bits = out.of.unproven;
    invite_next_kernel();
    wait_for_earlier_kernels();
    if (bits && !*out.of.any_unproven)
        return;
    unsigned apart = 32 / lanes, member = threadIdx.x % 32 / apart;
    size_t warps = (size_t)gridDim.x * (blockDim.x / 32),
           tasks = (sums + apart - 1) / apart * shares;
    size_t warp = (size_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    NextTask next = {bits, apart, shares, tasks};
    for (size_t task = warp; next.find(task, warps); task += warps) {
        size_t k = task / shares * apart + threadIdx.x % apart, share = task % shares;
        bool is_wanted = k < sums && (!bits || bits[k / 32] >> k % 32 & 1);
        Place place(of.dim, of.kept, is_wanted ? k : 0);
        Levels<Acc> levels;
        add_terms(levels, of, place, share * lanes + member, shares * lanes, is_wanted ? terms : 0);
        if (share == 0 && member == 0 && out.of.has_initial)
            levels.add(initial_of<double>(out.of, k));
        LevelSum<Acc> sum(levels, apart);
        if (!is_wanted || member > 0)
            continue;
        if (shares > 1) {
            unsigned long long *mine = words + k * GR_LEVELS_WORDS(Levels<Acc>::count);
            sum.add_to_words(mine);
            __threadfence();
            if (atomicAdd(&mine[2 * Levels<Acc>::count + 2], 1ull) + 1 < shares)
                continue;
            __threadfence();
            sum.read_words(mine);
        }
        char *to = static_cast<char *>(out.of.base) + place.out;
        if (out.of.as_digits) {
            DigitsHead head = {out.of.parts, unsigned(k % out.of.parts), out.of.type, out.of.count};
            LevelSum<Acc> copy = sum;
            store_digits(to, head, copy);
        } else {
            store_bits(to, sum.rounded(out.of.type), out.of.bytes);
        }
    }
}
