/* exact_levels: some lanes of a warp add up one sum in integers, where nothing is rounded.
 *
 * The other kernels of `exact` add up each sum in two or three float64 numbers, which nearly always
 * prove its rounding. This kernel adds up sums that several blocks share and that are not proven,
 * and sums that are stored as digits. Each lane cuts its elements into digits of 32 bits, by
 * additions of float64, and adds up each digit. Lanes exchange these sums, and one lane rounds.
 * Neighbouring lanes have neighbouring sums, so they read neighbouring columns. Warps that share a
 * long sum add their digits up in global memory, and the last warp rounds.
 *
 * Still wasted: the elements are read twice, or more often if their sizes differ widely. */
#include "parts/exact_levels.h"
#include "parts/matrix.h"

/* Adds up the sums whose bit in `out.of.unproven` is set, or all sums if that is NULL. If warps
 * share sums, `words` has GR_LEVELS_WORDS zeros for each sum. */
template <typename In, typename Acc>
__global__ void __launch_bounds__(256, 3)
    exact_levels(gr_layout of, const __grid_constant__ Sums<Acc> out, size_t sums, size_t terms,
                 unsigned lanes, size_t shares, unsigned long long *words)
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
        bool stores = is_wanted && member == 0;
        Place place(of.dim, of.kept, is_wanted ? k : 0);
        Share part = {share * lanes + member, shares * lanes, is_wanted ? terms : 0};
        bool begins = stores && share == 0 && out.of.has_initial;
        void *to = static_cast<char *>(out.of.base) + place.out;
        SumDigits digits(
            shares > 1 ? words + k * GR_LEVELS_WORDS : NULL,
            out.of.as_digits ? static_cast<int64_t *>(to) + GR_WORDS_HEAD + GR_WORDS_FLAGS : NULL);
        unsigned flags =
            each_digit_of(Scattered{of, place}, part, begins ? initial_of<double>(out.of, k) : 0,
                          apart, [&](int i, long long total) {
                              if (stores)
                                  digits.give(i, total);
                          });
        if (stores && shares > 1)
            digits.leave();
        if (!stores || (shares > 1 && !digits.joins(flags, shares)))
            continue;
        if (out.of.as_digits)
            digits.finish(to, {out.of.parts, unsigned(k % out.of.parts), out.of.type, out.of.count},
                          flags);
        else
            store_bits(to, digits.highest.rounded(flags, out.of.type), out.of.bytes);
    }
}
