/* The sum of an array on the CPU, with threads and SIMD. The result has the same bits on every
 * machine.
 *
 * Integers are added modulo 2^64, or 2^32, where the order does not matter.
 *
 * Floats are widened to float64, which is exact, and added in an order that depends on n alone:
 *   lanes   a block is 1024 elements; element i is added to lane i % 32, in order, from +0
 *   fold    lane i + lane i+16, then i+8, i+4, i+2: one sum for even i, one for odd (for complex
 *           numbers: the real and the imaginary parts)
 *   blocks  are added pairwise, in the tree of cpu/tree.h
 *   last    even + odd, unless complex; then, for a float32 accumulator, one rounding to float32
 * The result does not depend on the number of threads, on the vector width or on the address of the
 * data.
 *
 * Error bound. An element passes through at most
 *   d(n) = (ceil(min(n, 1024) / 32) - 1) + min(5, ceil(log2(n))) + ceil(log2(ceil(n / 1024)))
 * additions that round (the first addition to a lane, 0 + x, does not): 36 for a block and 54 for
 * 2^28 elements. With u = 2^-53 and gamma(d) = d u / (1 - d u) that gives (Higham, Accuracy and
 * Stability of Numerical Algorithms, 4.2)
 *   |computed - exact| <= gamma(d) sum|x|                              float64 accumulator
 *   |computed - exact| <= (2^-24 + (1 + 2^-24) gamma(d)) sum|x|        float32 accumulator
 * The second bound is one rounding of a sum that is practically exact: better than float32 partial
 * sums by a factor d. The bounds hold for subnormals too: no addition underflows.
 *
 * A float16 sum in float64 is exact while sum|x| < 2^29, as it is for any 8192 elements. It is then
 * the correctly rounded float32. */
#pragma once

#include "shared/dtypes.h"

/* Adds up n contiguous elements, aligned at least as their type. With `components` 2 they are
 * complex: n pairs of elements, out[0] is the sum of the real parts and out[1] that of the
 * imaginary parts. With 1, out[1] is zero. Integers need an integer accumulator and floats a float
 * one. Uses at most `threads` threads, or gr_thread_count() if `threads` <= 0; arrays too small to
 * gain from threads use one.
 *
 * The sum of no elements is +0, and so is a sum of nothing but -0. A nan result is always the same
 * quiet nan, because processors differ in theirs. Sums of finite numbers are inf only if they are
 * too large for the accumulator, and never nan: if partial sums overflow, the elements are added
 * again, scaled down. */
void gr_cpu_sum(const void *data, size_t n, gr_load load, gr_acc acc, int components, int threads,
                gr_value out[2]);

/* Returns the factor of sum|x| in the bound above, rounded up. Returns zero for integers. For n
 * complex numbers pass 2n: the bound holds for either component. */
double gr_cpu_error_factor(size_t n, gr_load load, gr_acc acc);
