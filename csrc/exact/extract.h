/* The inner loops: one table per instruction set, all of them the same text (extract_text.h).
 *
 * Overview. A block of numbers whose exponents do not lie too far apart is added up in float64
 * registers without a rounding error. A bin is a float64 that starts at 3 * 2^(k-1), in the middle
 * of the binade [2^k, 2^(k+1)), where the numbers are the multiples of u = 2^(k-52). As long as the
 * bin stays there,
 *     next = bin + x;  part = next - bin;  x = x - part;  bin = next;
 * adds to it the multiple of u nearest to x, and leaves what is too small for this bin to the next
 * one, whose u is 2^-46 of this. When nothing is left the bins hold the sum. The bins of one binade
 * are consecutive integers as bits, so that integer subtraction yields what was added, in units u.
 *
 * Lemma (one bin). Let the bin take at most R = 2^r numbers |x| <= 2^p, with r + p + 1 <= k and
 * k - 52 <= p. Then nothing is rounded but x to a multiple of u:
 * - 2^p is a multiple of u, so |part| <= 2^p: rounding is monotonic. After c <= R numbers the bin
 * is within c 2^p <= 2^(k-1) of its start, that is in [2^k, 2^(k+1)]. It can be at an end only
 * after the last one. There the spacing is u or, for bin = 2^(k+1), bits(bin) - bits(start) = 2^51
 * is still the number of u that were added.
 * - part is a multiple of u and |part| / u <= 2^(p-k+52) < 2^53: next - bin is exact.
 * - x - part is exact: its absolute value is at most u/2; if |x| < u/2 then part = 0; else
 *   |x - part| <= |x|, and it is a multiple of the lesser of u and the spacing at x, so it needs no
 *   more mantissa bits than x.
 * (It also holds for subnormal x, as additions do not underflow.)
 *
 * Lemma (all bins). With |x| < 2^p in the block, k_0 = max(p + r + 1, -1022) and
 * k_(i+1) = max(k_i - 53 + r + 1, -1022), the condition holds for each bin: what bin i leaves is at
 * most u/2 = 2^(k_i - 53). At k = -1022, u is 2^-1074 and nothing is left. The bins are finite if
 * k_0 <= 1022; p is below 129 for what is not float64, and blocks of greater float64 are scattered
 * (scatter.h), as are those of which something is left after the last bin. With r = 6, n bins hold
 * any x that is a multiple of 2^(p - 46 n + 1): float64 with all mantissa bits in use down to 38
 * binades below the block's highest with 2 bins, 84 with 3; float32 21 below with one bin, 67 with
 * 2.
 *
 * Proof by rest: that nothing is left, and all |x| < 2^p, is looked at for each element.
 *
 * Proof by flag (arithmetic.h): the processor says whether it has rounded. If it has not, in
 *     next = bin + x (unless this is the last bin: without raising the flag);
 *     part = next - bin;  x = x - part;
 * then next + x is what bin + x was, whatever the numbers are, and the last bin takes all it meets.
 * So the bins hold the sum, and of the elements no size need be known, and no rest computed: one
 * bin is one addition for each. All bins must be in their binade when they are read, as inf and nan
 * are not.
 *
 * Bins for all numbers of a format need no look at the data, as nothing is left after the last:
 * - float16: p = 16, r = 6, so k_0 = 23 and u = 2^-29, which divides 2^-24. One bin.
 * - bfloat16 and float32: p = 128, r = 5, so k_0 = 134 and k_5 = -101, where u = 2^-153 divides
 *   2^-149. Six bins, where r = 6 would take seven.
 * Bins are read, and their units added up in int64, after 2^5 rows or more but for two times in a
 * call, of at most 2^15 elements: 2^10 bins and two rows of at most 2^6, each at most 2^51, come to
 * less than 2^62. */
#ifndef GPUREDUCE_EXACT_EXTRACT_H
#define GPUREDUCE_EXACT_EXTRACT_H

#include "exact/scatter.h"

enum {
    GR_EXTRACT_LOG_ROWS = 6, /* r: how many numbers a bin takes */
    GR_EXTRACT_BINS = 3,     /* at most */
    /* For all numbers of a format: p, r, bins. */
    GR_EXTRACT_HALF_POWER = 16,
    GR_EXTRACT_HALF_LOG_ROWS = 6,
    GR_EXTRACT_HALF_BINS = 1,
    GR_EXTRACT_WIDE_POWER = 128,
    GR_EXTRACT_WIDE_LOG_ROWS = 5,
    GR_EXTRACT_WIDE_BINS = 6,
    GR_EXTRACT_MOST = 1 << 15 /* elements of a call */
};

/* What bins hold: sum[bin][i] in units u of the bin, i = 0 of the elements at even indexes and 1 of
 * those at odd ones (of complex numbers: the real and the imaginary parts). */
typedef struct {
    int64_t sum[GR_EXTRACT_WIDE_BINS][2];
} gr_extracted;

/* The greatest of the 16-bit words of the block under the mask, which leaves the high word of each
 * element without its sign. Its high bits are the exponent. */
typedef unsigned gr_peak_kernel(const void *data, size_t bytes, uint64_t mask);

/* Adds up at most GR_EXTRACT_MOST elements in `bins` bins, of which the first start at start[], and
 * says how many: less than n, but even, if among the next `block` there is one that does not fit,
 * or (without flags) has an exponent field as float64 above `most`, for which the bins were made.
 * `flags`: whether they may be used (arithmetic.h). */
typedef size_t gr_extract_kernel(const void *data, size_t n, int bins, const double *start,
                                 unsigned most, bool flags, gr_extracted *out);

/* The same in bins for all numbers of the format: what does not fit is inf or nan. */
typedef size_t gr_whole_kernel(const void *data, size_t n, const double *start, gr_extracted *out);

typedef struct {
    size_t block;    /* elements: even */
    int narrow_bins; /* more for bf16 and f32 would be slower than what follows */
    gr_peak_kernel *peak;
    gr_extract_kernel *bf16, *f32, *f64;
    /* For blocks that do not fit those bins; null what is slower than the other way. Where both are
     * there, `whole` is for few elements. */
    gr_whole_kernel *whole_f16, *whole_bf16, *whole_f32;
    gr_scatter_kernels scatter;
} gr_extract_kernels;

extern const gr_extract_kernels gr_extract_baseline;
#ifdef __x86_64__
extern const gr_extract_kernels gr_extract_avx2, gr_extract_avx512;
/* For processors that make each instruction of AVX-512 in two halves: six bins for each element
 * take them longer than scattering does. */
extern const gr_extract_kernels gr_extract_avx512_halves;
#endif

const gr_extract_kernels *gr_extract_best(void);

#endif
