/* The inner loops: one table of functions per instruction set, all compiled from the same source
 * (extract_text.h).
 *
 * Overview. A block of numbers whose exponents do not lie too far apart is added up in float64
 * registers without a rounding error, in bins. A bin is a float64 that starts at 3 * 2^(k-1), in
 * the middle of the binade [2^k, 2^(k+1)), where the float64 numbers are the multiples of
 * u = 2^(k-52). As long as the bin stays in this binade,
 *     next = bin + x;  part = next - bin;  x = x - part;  bin = next;
 * adds to it the multiple of u nearest to x. The rest of x, too small for this bin, goes to the
 * next bin, whose u is 2^-46 times this one. If no rest is left after the last bin, the bins hold
 * the sum. The bit patterns of the numbers of one binade are consecutive integers. So subtracting
 * the start's bits from the bin's bits yields the amount that was added, in units u.
 *
 * Lemma (one bin). Let the bin take at most R = 2^r numbers |x| <= 2^p, with r + p + 1 <= k and
 * k - 52 <= p. Then the only rounding is that of x to a multiple of u:
 * - 2^p is a multiple of u, so |part| <= 2^p: rounding is monotonic. After c <= R numbers the bin
 *   is within c 2^p <= 2^(k-1) of its start, that is in [2^k, 2^(k+1)]. It can be at an end of this
 *   interval only after the last number. At 2^k the spacing above is u; at 2^(k+1),
 *   bits(bin) - bits(start) = 2^51 is still the number of u that were added.
 * - part is a multiple of u and |part| / u <= 2^(p-k+52) < 2^53: next - bin is exact.
 * - x - part is exact: its absolute value is at most u/2; if |x| < u/2 then part = 0; else
 *   |x - part| <= |x|, and it is a multiple of the lesser of u and the spacing at x, so it needs no
 *   more mantissa bits than x.
 * The lemma also holds for subnormal x, as additions do not underflow.
 *
 * Lemma (all bins). With |x| < 2^p in the block, k_0 = max(p + r + 1, -1022) and
 * k_(i+1) = max(k_i - 53 + r + 1, -1022), the condition holds for each bin, because the rest that
 * bin i leaves is at most u/2 = 2^(k_i - 53). At k = -1022, u is 2^-1074 and no rest is left. The
 * bins are finite if k_0 <= 1022. For formats other than float64, p is below 129. Blocks of greater
 * float64 are scattered (scatter.h), and so are blocks with a rest after the last bin. With r = 6,
 * n bins hold any x that is a multiple of 2^(p - 46 n + 1): float64 with all mantissa bits in use
 * down to 38 binades below the block's highest with 2 bins, 84 with 3; float32 21 below with one
 * bin, 67 with 2.
 *
 * Proof by rest: the kernel checks for each element that no rest is left and that |x| < 2^p.
 *
 * Proof by flag (cpu/floating_point_mode.h): the processor's inexact flag shows whether an addition
 * was rounded. If none was, then after
 *     next = bin + x (raises the flag only if this is the last bin);
 *     part = next - bin;  x = x - part;
 * next + x is equal to bin + x before it, whatever the numbers are, and the last bin takes all that
 * reaches it. So the bins hold the sum. The size of the elements need not be known, and no rest is
 * computed: a single bin costs one addition per element. All bins must be in their binade when they
 * are read; a bin that is inf or nan is not.
 *
 * Bins for all numbers of a format need no check of the data, as no rest is left after the last
 * bin:
 * - float16: p = 16, r = 6, so k_0 = 23 and u = 2^-29, which divides 2^-24. One bin.
 * - bfloat16 and float32: p = 128, r = 5, so k_0 = 134 and k_5 = -101, where u = 2^-153 divides
 *   2^-149. Six bins, where r = 6 would take seven.
 * A call takes at most 2^15 elements. Bins are read, and their units added up in int64, after 2^5
 * rows or more, except for two reads per call. So at most 2^10 bins and two rows of at most 2^6
 * bins are read; with at most 2^51 units each, they come to less than 2^62. */
#pragma once

#include "exact/scatter.h"

enum {
    GR_EXTRACT_LOG_ROWS = 6, /* r: a bin takes 2^r numbers */
    GR_EXTRACT_BINS = 3,     /* at most */
    /* For all numbers of a format: p, r, bins. */
    GR_EXTRACT_HALF_POWER = 16,
    GR_EXTRACT_HALF_LOG_ROWS = 6,
    GR_EXTRACT_HALF_BINS = 1,
    GR_EXTRACT_WIDE_POWER = 128,
    GR_EXTRACT_WIDE_LOG_ROWS = 5,
    GR_EXTRACT_WIDE_BINS = 6,
    GR_EXTRACT_MOST = 1 << 15 /* elements per call */
};

/* The sums that bins hold, in units u of the bin: sum[bin][0] of the elements at even indexes,
 * sum[bin][1] of those at odd indexes. For complex numbers these are the real and the imaginary
 * parts. */
typedef struct {
    int64_t sum[GR_EXTRACT_WIDE_BINS][2];
} gr_extracted;

/* Returns the greatest 16-bit word of the block after masking. The mask keeps the high word of each
 * element without its sign, so the high bits of the result are the greatest exponent field. */
typedef unsigned gr_peak_kernel(const void *data, size_t bytes, uint64_t mask);

/* Adds up at most GR_EXTRACT_MOST elements in `bins` bins, where bin b starts at start[b]. Returns
 * the number of elements added. It is less than n, but even, if one of the next `block` elements
 * does not fit the bins or (without flags) its exponent field as float64 exceeds `most`, for which
 * the bins were made. `flags`: whether the inexact flag may be used (cpu/floating_point_mode.h). */
typedef size_t gr_extract_kernel(const void *data, size_t n, int bins, const double *start,
                                 unsigned most, bool flags, gr_extracted *out);

/* As above, but bins cover all exponents of the format: only inf and nan do not fit. */
typedef size_t gr_whole_kernel(const void *data, size_t n, const double *start, gr_extracted *out);

typedef struct {
    size_t block; /* elements: even */
    gr_peak_kernel *peak;
    gr_extract_kernel *extract[GR_LOAD_COUNT]; /* by the type of the elements; none for f16 */
    /* For blocks that do not fit those bins: `whole`, or `scatter` for f64. */
    gr_whole_kernel *whole[GR_LOAD_COUNT];
    gr_pairs_kernel *scatter;
} gr_extract_kernels;

extern const gr_extract_kernels gr_extract_baseline;
#ifdef __x86_64__
extern const gr_extract_kernels gr_extract_avx2, gr_extract_avx512;
#endif

/* Returns the table for the instruction set in use. */
const gr_extract_kernels *gr_extract_best(void);
