/* exact_terms: a block adds up the terms of one group in integers, and makes the result of them.
 *
 * The other kernels make means, variances, norms and products from sums that nearly always prove
 * the rounding of the result. This kernel makes the results that are not proven. It first adds up
 * float64 numbers and products again in three numbers each. If that is not enough, it cuts the
 * elements of a group, and their products as two float64 numbers each, into digits as in
 * exact_levels. One thread divides integers. If there are few groups, blocks share one: they add up
 * in global memory.
 *
 * Still wasted: all threads but one, while that one divides. */
#include "parts/exact_terms.h"

/* Makes the results whose bit in `out.of.unproven` is set, or all results if that is NULL. If
 * blocks share groups, `words` has GR_TERMS_SUMS times GR_LEVELS_WORDS zeros for each group. */
template <typename In, typename Acc>
__global__ void __launch_bounds__(GR_TERMS_THREADS, 2)
    exact_terms(const __grid_constant__ gr_layout of, const __grid_constant__ Sums<Acc> out,
                size_t sums, size_t terms, unsigned, size_t shares, unsigned long long *words)
{
    enum { WORDS = GR_TERMS_SUMS * GR_LEVELS_WORDS };
    static_assert(sizeof(gr_finish_room) <= GR_TERMS_ROOM, "the engine gives so much memory");
    unsigned long long *shared = shared_array<unsigned long long>();
    gr_finish_room *room = reinterpret_cast<gr_finish_room *>(shared + WORDS);
    const unsigned *bits = out.of.unproven;
    bool has_products = of.term >= GR_TERM_SQUARE;
    bool has_elements =
        !has_products || out.of.made.kind != GR_FINISH_RATIO || of.term == GR_TERM_WEIGHTED;
    invite_next_kernel();
    wait_for_earlier_kernels();
    if (bits && !*out.of.any_unproven)
        return;
    bool may_be_fine =
        bits && shares == 1 && has_products && of.load == GR_LOAD_f64 && !of.imaginary;
    NextTask next = {bits, 1, shares, sums * shares};
    if (may_be_fine && terms <= GR_TERMS_THREADS)
        make_finely(out.of, of, next, terms);
    for (size_t task = blockIdx.x; next.find(task, gridDim.x); task += gridDim.x) {
        size_t k = task / shares, share = task % shares;
        unsigned long long *word = shares > 1 ? words + k * WORDS : shared;
        Place place(of.dim, of.kept, k);
        TermRange mine(of, place, terms);
        Share part = {mine.at(share, shares), 1, mine.at(share + 1, shares)};
        void *to = static_cast<char *>(out.of.base) + place.out;
        Turn turn = {part.first, part.end, threadIdx.x, blockDim.x};
        if (may_be_fine && terms > GR_TERMS_THREADS &&
            __syncthreads_or(is_made_finely(to, out.of, {of, place, 0}, turn)))
            continue;
        for (unsigned i = threadIdx.x; shares == 1 && i < WORDS; i += blockDim.x)
            shared[i] = 0;
        __syncthreads();
        Place of_part = place;
        MOSTLY_ONCE
        for (int imaginary = 0; imaginary <= (of.imaginary != 0); imaginary++) {
            if (has_elements)
                add_digits({of, of_part, Terms::ELEMENTS}, part,
                           word + imaginary * imaginary_words);
            MOSTLY_ONCE
            for (int range = Terms::TINY; has_products && range <= Terms::HUGE_; range++)
                if (range == Terms::USUAL || of.load == GR_LOAD_f64)
                    add_digits({of, of_part, range}, part, word + (range + 1) * GR_LEVELS_WORDS);
            of_part.in += of.imaginary;
        }
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0 &&
            (shares == 1 || atomicAdd(&word[SumDigits::COUNT], 1ull) + 1 == shares)) {
            __threadfence();
            for (unsigned i = 0; shares > 1 && i < WORDS; i++)
                shared[i] = static_cast<volatile unsigned long long *>(word)[i];
            finish_group(to, out.of, of, room, shared);
        }
        __syncthreads(); /* the next group takes the same shared memory */
    }
}
