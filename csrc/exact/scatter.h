/* Sums of numbers whose exponents lie anywhere: each goes to the place that its exponent names.
 *
 * float32 and bfloat16 go to 16 float64 bins by the top four bits of the exponent field.
 * Lemma. The elements of a bin have exponent fields 16 b to 16 b + 15, so they are multiples of
 * some 2^v and less than 2^(v + 24 + 15) in size (field 0 is spaced as field 1, which only helps).
 * The sum of 2^14 of them is at most 2^(v + 53): a float64, exactly, as is every partial sum.
 *
 * float64 go to int64 chunks of 2^32 in weight: with s = max(field, 1) - 1, the element is m 2^s
 * units, |m| < 2^53. Its m 2^(s mod 32) = low + 2^32 rest, 0 <= low < 2^32 and |rest| <= 2^52; low
 * goes to chunk s / 32, which is at most 63, and rest to the next one.
 * Lemma. After carries are taken a chunk is in [-2^31, 2^32 + 2^31): the low half of itself and the
 * high half of its neighbour. 1024 elements add less than 1024 (2^52 + 2^32) < 2^62 + 2^43 to it.
 *
 * There are four tables of each, for elements i mod 4, so that the next element need not wait for
 * this one to be stored; tables 0 and 2 have the even elements, which may be real parts. */
#ifndef GPUREDUCE_EXACT_SCATTER_H
#define GPUREDUCE_EXACT_SCATTER_H

#include "exact.h"

enum {
    GR_SCATTER_TABLES = 4,
    GR_SCATTER_BINS = 16,
    GR_SCATTER_MOST_IN_BIN = 1 << 14,
    GR_SCATTER_MOST_IN_CHUNK = 1024
};

/* Empty with all bytes zero, but `used` is all that must be: the tables are cleared at first use.
 */
typedef struct {
    bool used;
    size_t added; /* elements to each table since it was emptied, or carries taken, at most */
    union {
        double bin[GR_SCATTER_TABLES][GR_SCATTER_BINS];
        int64_t chunk[GR_SCATTER_TABLES][GR_EXACT_DIGITS];
    } table;
} gr_scatter;

/* Adds n finite elements of bf16, f32 or f64, always the same type; with `sums` for the even ones
 * and the odd ones, to which full bins are emptied. */
void gr_scatter_add(gr_scatter *scatter, const void *data, size_t n, gr_load load,
                    gr_exact *const sums[2]);

/* Moves everything to the sums. */
void gr_scatter_empty(gr_scatter *scatter, gr_load load, gr_exact *const sums[2]);

#endif
