/* Sums of float64 numbers with arbitrary exponents: each number is added to a table entry chosen by
 * its exponent.
 *
 * A table has 128 pairs of float64, chosen by the top seven bits of s = max(field, 1) - 1. With
 * w = s / 16 the element is y 2^(16 w - 1023), where y has the same sign and fraction and the
 * exponent s mod 16 + 1; if the element is subnormal, y lacks the one before the fraction. So no y
 * is subnormal, which would be slow on some processors. y is a multiple of 2^-51, and |y| < 2^17.
 * y + 3 * 2^34 lies in [2^35, 2^36), where the float64 numbers are the multiples of 2^-17.
 * Subtracting 3 * 2^34 again leaves `high`, the multiple nearest to y, with |high| <= 2^17;
 * low = y - high is exact, and |low| <= 2^-18.
 * Lemma. The sum of 2^19 of them is at most 2^36 (high) and 2 (low), which as multiples of 2^-17
 * and 2^-51 are float64, exactly. Each table takes 2^17, so all four can be added up.
 *
 * There are several tables, so that adding an element need not wait until the one before is stored.
 * Element i goes to table i modulo the number of tables. So for complex numbers, the even tables
 * hold the real parts. */
#pragma once

#include "exact/exact.h"

#include <stdalign.h>

enum {
    GR_PAIR_TABLES = 4,
    GR_PAIRS = 128,
    GR_PAIR_MOST = 1 << 17 /* elements that a table takes before it is emptied */
};

#define GR_PAIR_MIDDLE 0x1.8p35

typedef double gr_pairs[GR_PAIRS][2]; /* low, high */

/* Adds n finite elements to the tables. */
typedef void gr_pairs_kernel(const void *data, size_t n, gr_pairs table[GR_PAIR_TABLES]);

/* The scatter tables. They hold nothing until `used` is set: the first use clears them. */
typedef struct {
    bool used;
    size_t added; /* bound of the elements per table since the tables were cleared */
    alignas(64) gr_pairs table[GR_PAIR_TABLES];
} gr_scatter;

/* Adds n finite elements. All calls must use the same sums. Full tables are emptied to the sums:
 * elements at even indexes to sums[0], at odd indexes to sums[1]. */
void gr_scatter_add(gr_scatter *scatter, const void *data, size_t n, gr_pairs_kernel *kernel,
                    gr_exact *const sums[2]);

/* Moves everything to the sums. */
void gr_scatter_empty(gr_scatter *scatter, gr_exact *const sums[2]);
