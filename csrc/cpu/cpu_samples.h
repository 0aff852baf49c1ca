/* The sum of samples on the CPU. */
#pragma once

#include "shared/dtypes.h"
#include "shared/samples.h"

/* Computes samples and adds them up in float64, in an order that depends on n alone. A float32 sum
 * is rounded once. `threads` is as for gr_cpu_sum. Returns 0, or -1 if memory is exhausted. */
int gr_cpu_sum_samples(const gr_samples *samples, gr_acc acc, int threads, gr_value *sum);
