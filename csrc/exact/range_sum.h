/* The sum of a range of elements on one thread. */
#pragma once

#include "exact/exact.h"
#include "exact/extract.h"
#include "exact/format.h"

enum {
    GR_FLAGS_FROM = 1024
}; /* elements that make up for a misprediction of the flag: floating_point_mode.h */

/* The units that one set of bins has taken. For most arrays this is the whole sum, in a tenth of
 * the bytes of an accumulator. */
typedef struct {
    bool any;
    int units[GR_EXTRACT_BINS];
    int64_t sum[GR_EXTRACT_BINS][2];
} gr_bin_sums;

/* Adds `more` to `kept`. Returns false, and changes nothing, if their bins differ or a sum would
 * overflow. */
bool gr_bins_add(gr_bin_sums *kept, const gr_bin_sums *more);

/* Adds the sums of bins to accumulators. */
void gr_bins_deposit(const gr_bin_sums *kept, gr_exact *const sums[2]);

/* Adds `more` to `kept`. If that is impossible, deposits `kept` and replaces it by `more`. */
void gr_bins_keep(gr_bin_sums *kept, const gr_bin_sums *more, gr_exact *const sums[2]);

/* Returns a power for gr_add_range(): most elements at the start of the array are below 2^power in
 * size. */
int gr_first_power(gr_load load, const unsigned char *in, size_t n);

/* Adds n elements to `kept` and `sums`: those at even indexes to sums[0], those at odd ones to
 * sums[1], which may be the same accumulator. `power` is for the first bins. */
void gr_add_range(gr_load load, int power, const unsigned char *in, size_t n, gr_bin_sums *kept,
                  gr_exact *const sums[2]);
