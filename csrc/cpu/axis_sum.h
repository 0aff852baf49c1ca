/* Sums along axes on the CPU, with threads and SIMD. The sums have the same bits on every machine
 * and for every number of threads.
 *
 * Integers are added modulo 2^64. Floats are added in float64, in an order that depends on sizes,
 * steps and the type alone (axis_job.h):
 *   rows     in the order of cpu_sum.h: the sum of a row has the bits of gr_cpu_sum of that row
 *   columns  leaves of 128 rows: eight rows pairwise, their sums in order; then leaves pairwise
 * In columns an element passes through at most 3 + 22 + ceil(log2(ceil(n / 128))) additions that
 * round, no more than in a row of 32 elements or more: the error bound of cpu_sum.h holds, too. */
#pragma once

#include "shared/axes.h"

/* Adds up the elements and stores the sums in the type `target`: an integer type for integers, a
 * float type for floats. No size may be 0. Floats are rounded to float32 first if `acc` is f32.
 * Of an initial number, only the first term is added for each part: the part rounded to float64.
 * Changes `axes`. Returns false if there is too little memory. */
bool gr_cpu_sum_axes(gr_axes *axes, gr_acc acc, gr_load target, const gr_initial *initial,
                     int threads);
