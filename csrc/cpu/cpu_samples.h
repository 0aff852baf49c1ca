/* The sum of samples on the CPU. */
#ifndef GPUREDUCE_CPU_SAMPLES_H
#define GPUREDUCE_CPU_SAMPLES_H

#include "shared/dtypes.h"
#include "shared/samples.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Samples are computed and added up in float64, in an order that n alone decides; a float32 sum is
 * rounded once. Threads as for gr_cpu_sum. Returns -1 if there is no memory. */
int gr_cpu_sum_samples(const gr_samples *samples, gr_acc acc, int threads, gr_value *sum);

#ifdef __cplusplus
}
#endif

#endif
