/* Sums of parts of an array, or of a long row. */
#pragma once

#include "cpu/tree.h"
#include "shared/dtypes.h"

#include <stdbool.h>

/* If partial sums overflow, the elements are added again times 2^-64. This leaves room for 2^64 of
 * the largest. */
#define GR_SCALE_DOWN 0x1p-64
#define GR_SCALE_UP 0x1p64

typedef struct {
    gr_pair pair; /* floats */
    bool scaled;  /* whether `pair` is times 2^-64 */
    uint64_t integer;
} gr_partial_sum;

gr_pair gr_scale_pair(gr_pair sum, double factor);

/* Adds up floats. With one component, the total is the first number. May scale the sums. */
gr_pair gr_total_of(gr_partial_sum *sums, size_t count, gr_load load, int components);
