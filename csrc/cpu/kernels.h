/* The inner loops: one table of functions per instruction set, all compiled from the same source
 * (kernels_text.h). */
#ifndef GPUREDUCE_CPU_KERNELS_H
#define GPUREDUCE_CPU_KERNELS_H

#include "shared/dtypes.h"
#include "cpu/tree.h"

enum {
    GR_CPU_LANES = 32,  /* element i of a block is added to lane i % 32 */
    GR_CPU_BLOCK = 1024 /* elements, 32 to a lane: a block's sum is a leaf of the tree */
};

/* Returns the sum of n elements in the order that cpu_sum.h describes, in float64. */
typedef gr_pair gr_float_kernel(const void *data, size_t n);

/* Returns the sum modulo 2^64 of the unsigned integers in `bytes` bytes. Each is first xored with
 * its part of `flip`: flipping the sign bit turns a signed integer into an unsigned one that is
 * greater by a known amount. */
typedef uint64_t gr_integer_kernel(const void *data, size_t bytes, uint64_t flip);

typedef struct {
    gr_float_kernel *f16, *bf16, *f32, *f64;
    gr_integer_kernel *bits8, *bits16, *bits32, *bits64;
} gr_cpu_kernels;

extern const gr_cpu_kernels gr_cpu_baseline;
#ifdef __x86_64__
extern const gr_cpu_kernels gr_cpu_avx2, gr_cpu_avx512;
#endif

#endif
