/* Sums of numbers with arbitrary exponents: each number is added to a table entry chosen by its
 * exponent.
 *
 * float32 and bfloat16 go to 16 float64 bins by the top four bits of the exponent field.
 * Lemma. The elements of a bin have exponent fields 16 b to 16 b + 15, so they are multiples of
 * some 2^v and less than 2^(v + 24 + 15) in size (field 0 is spaced as field 1, which only helps).
 * The sum of 2^14 of them is at most 2^(v + 53): a float64, exactly, as is every partial sum. Each
 * table takes 2^12, so the four tables of one parity can be added up in float64 before their sum
 * moves to the accumulator.
 *
 * float64 go to 128 pairs of float64 by the top seven bits of s = max(field, 1) - 1. With
 * w = s / 16 the element is y 2^(16 w - 1023), where y has the same sign and fraction and the
 * exponent s mod 16 + 1; if the element is subnormal, y lacks the one before the fraction. So no y
 * is subnormal, which would be slow on some processors. y is a multiple of 2^-51, and |y| < 2^17.
 * y + 3 * 2^34 lies in [2^35, 2^36), where the float64 numbers are the multiples of 2^-17.
 * Subtracting 3 * 2^34 again leaves `high`, the multiple nearest to y, with |high| <= 2^17;
 * low = y - high is exact, and |low| <= 2^-18.
 * Lemma. The sum of 2^19 of them is at most 2^36 (high) and 2 (low), which as multiples of 2^-17
 * and 2^-51 are float64, exactly. Each table takes 2^17, so all four can be added up.
 *
 * There are several tables of each kind, so that adding an element need not wait until the one
 * before is stored. Element i goes to table i modulo the number of tables. So for complex numbers,
 * the even tables hold the real parts. */
#pragma once

#include "exact/exact.h"

#include <stdalign.h>

enum {
    GR_BIN_TABLES = 8,
    GR_BINS = 16,
    GR_BIN_MOST = 1 << 12, /* elements that a table takes before it is emptied */
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
    gr_bins_kernel *bins[GR_LOAD_COUNT]; /* of bf16 and f32 */
    gr_pairs_kernel *pairs;              /* of f64 */
} gr_scatter_kernels;

/* The scatter tables. They hold nothing until `used` is set: the first use clears them. */
typedef struct {
    bool used;
    size_t added; /* bound of the elements per table since the tables were cleared */
    union {
        alignas(64) gr_bins bin[GR_BIN_TABLES];
        gr_pairs pair[GR_PAIR_TABLES];
    } table;
} gr_scatter;

/* Adds n finite elements of bf16, f32 or f64. All calls must use the same type and the same sums.
 * Full tables are emptied to the sums: elements at even indexes to sums[0], at odd indexes to
 * sums[1]. */
void gr_scatter_add(gr_scatter *scatter, const void *data, size_t n, gr_load load,
                    const gr_scatter_kernels *kernels, gr_exact *const sums[2]);

/* Moves everything to the sums. */
void gr_scatter_empty(gr_scatter *scatter, gr_load load, gr_exact *const sums[2]);
