/* Sums of numbers whose exponents lie anywhere: each goes to the place that its exponent names.
 *
 * float32 and bfloat16 go to 16 float64 bins by the top four bits of the exponent field.
 * Lemma. The elements of a bin have exponent fields 16 b to 16 b + 15, so they are multiples of
 * some 2^v and less than 2^(v + 24 + 15) in size (field 0 is spaced as field 1, which only helps).
 * The sum of 2^14 of them is at most 2^(v + 53): a float64, exactly, as is every partial sum. Each
 * table takes 2^12, so the four of one parity can be added up before they are moved on.
 *
 * float64 go to 128 pairs of float64 by the top seven bits of s = max(field, 1) - 1. With
 * w = s / 16 the element is y 2^(16 w - 1023), where y has the same sign and fraction and the
 * exponent s mod 16 + 1, or, if the element is subnormal, is without the one before the fraction.
 * So no y is subnormal, with which processors are slow; y is a multiple of 2^-51, and |y| < 2^17.
 * y + 3 * 2^34 lies in [2^35, 2^36), where the numbers are the multiples of 2^-17: less 3 * 2^34 it
 * is the multiple nearest to y, high, |high| <= 2^17, and y - high = low is exact, |low| <= 2^-18.
 * Lemma. The sum of 2^19 of them is at most 2^36 (high) and 2 (low), which as multiples of 2^-17
 * and 2^-51 are float64, exactly. Each table takes 2^17, so all four can be added up.
 *
 * There are several tables of each so that the next element need not wait for this one to be
 * stored: element i is added to table i modulo their number; the even tables may have real parts.
 */
#ifndef GPUREDUCE_EXACT_SCATTER_H
#define GPUREDUCE_EXACT_SCATTER_H

#include "exact/exact.h"

#include <stdalign.h>

enum {
    GR_BIN_TABLES = 8,
    GR_BINS = 16,
    GR_BIN_MOST = 1 << 12, /* elements to a table until it is emptied */
    GR_PAIR_TABLES = 4,
    GR_PAIRS = 128,
    GR_PAIR_MOST = 1 << 17
};

#define GR_PAIR_MIDDLE 0x1.8p35

typedef double gr_bins[GR_BINS];
typedef double gr_pairs[GR_PAIRS][2]; /* low, high */

/* These add n finite elements to the tables. */
typedef void gr_bins_kernel(const void *data, size_t n, gr_bins table[GR_BIN_TABLES]);
typedef void gr_pairs_kernel(const void *data, size_t n, gr_pairs table[GR_PAIR_TABLES]);

typedef struct {
    gr_bins_kernel *bf16, *f32;
    gr_pairs_kernel *f64;
} gr_scatter_kernels;

/* Empty if not used: the tables are cleared at first use. */
typedef struct {
    bool used;
    size_t added; /* elements to each table since it was cleared, at most */
    union {
        alignas(64) gr_bins bin[GR_BIN_TABLES];
        gr_pairs pair[GR_PAIR_TABLES];
    } table;
} gr_scatter;

/* Adds n finite elements of bf16, f32 or f64, always the same type, and with the same sums for the
 * elements at even indexes and at odd ones, to which full tables are emptied. */
void gr_scatter_add(gr_scatter *scatter, const void *data, size_t n, gr_load load,
                    const gr_scatter_kernels *kernels, gr_exact *const sums[2]);

/* Moves everything to the sums. */
void gr_scatter_empty(gr_scatter *scatter, gr_load load, gr_exact *const sums[2]);

#endif
