/* Correctly rounded sums along axes, on the CPU. Each sum has the bits of gr_exact_sum_array of its
 * elements, rounded once.
 *
 * Sums of float32, bfloat16 and float16 are first added up in float64. They are exact if no
 * addition raised the inexact flag. Otherwise, and for float64, each sum is kept in three float64
 * numbers that prove their own rounding (proven.h). The few that cannot be proven are added up
 * again in accumulators (exact.h). */
#pragma once

#include "exact/exact.h"
#include "shared/axes.h"

/* Adds up floats and stores the sums, rounded to the float type `target`. The initial number is
 * added before that. No size may be 0. Changes `axes`. Returns false if there is too little memory.
 */
bool gr_exact_sum_axes(gr_axes *axes, gr_load target, const gr_initial *initial, int threads);

/* An unrounded sum: it differs from high + low + tail by at most `error`. If the error is 0, it is
 * their sum. If it is nan, elements may be infinities or nans, and the sum is unknown. */
typedef struct {
    double high, low, tail, error;
} gr_unrounded;

/* The unrounded sum of an accumulator's elements. */
gr_unrounded gr_unrounded_of(const gr_exact *sum);

/* The second factors of products, as `axes` of their own in `room`; NULL for other terms. */
const gr_axes *gr_factors_of(const gr_axes *axes, gr_axes *room);

/* Adds up terms, and stores unrounded sums: each number `part_step` bytes after the one before.
 * Elements have one component. `room` is overwritten; it may be NULL if there are no products. */
bool gr_exact_unrounded_axes(gr_axes *axes, gr_axes *room, int threads);
