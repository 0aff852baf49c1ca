/* Exact sums of products of two floats of one type. */
#pragma once

#include "exact/exact.h"
#include "exact/format.h"

/* The sum of part[i] times 2^(GR_PRODUCTS_SHIFT (i - 1)). Products of float64 have twice the range
 * of an accumulator. part[1] has the flags of special values. */
enum { GR_PRODUCTS_PARTS = 3, GR_PRODUCTS_SHIFT_DIGITS = 34, GR_PRODUCTS_SHIFT = 32 * 34 };

typedef struct {
    gr_exact part[GR_PRODUCTS_PARTS];
} gr_products;

void gr_products_init(gr_products *sum);

/* Adds x y, given as the bits of the format, times `sign`, 1 or -1. */
void gr_products_add(gr_products *sum, uint64_t x, uint64_t y, int sign, gr_format format);

/* Adds x[i] y[i] of n finite numbers. */
void gr_products_add_arrays(gr_products *sum, const double *x, const double *y, size_t n);
