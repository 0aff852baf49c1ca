/* The inner loops: one table of functions per instruction set, all compiled from the same source
 * (kernels_text.h). */
#pragma once

#include "shared/axes.h"
#include "shared/dtypes.h"
#include "cpu/tree.h"

#include <stdbool.h>

enum {
    GR_CPU_LANES = 32,   /* element i of a block is added to lane i % 32 */
    GR_CPU_BLOCK = 1024, /* elements, 32 to a lane: a block's sum is a leaf of the tree */
    GR_COLUMNS = 2048    /* columns that are added up together at most */
};

/* Returns the sum of n elements in the order that cpu_sum.h describes, in float64. */
typedef gr_pair gr_float_kernel(const void *data, size_t n);

/* Returns the sum modulo 2^64 of the unsigned integers in `bytes` bytes. Each is first xored with
 * its part of `flip`: flipping the sign bit turns a signed integer into an unsigned one that is
 * greater by a known amount. */
typedef uint64_t gr_integer_kernel(const void *data, size_t bytes, uint64_t flip);

/* The same for each of `rows` rows, `step` bytes apart. */
typedef void gr_float_rows_kernel(const void *data, ptrdiff_t step, size_t n, size_t rows,
                                  gr_pair *sums);

/* The sums modulo 2^64 of rows of n integers. */
typedef void gr_integer_rows_kernel(const void *data, ptrdiff_t step, size_t n, size_t rows,
                                    uint64_t *sums);

/* Stores the sums of 1 to 128 rows of elements, one per column. `width` is at least the columns of
 * a group; the last group overlaps the one before it (axis_job.h). `fetches`: whether to prefetch
 * the rows, which are then in no cache. */
typedef void gr_float_columns_kernel(const unsigned char *const *rows, size_t count, size_t width,
                                     bool fetches, double *sums);

/* The same for integers, without groups. Adds to the sums. */
typedef void gr_integer_columns_kernel(const unsigned char *const *rows, size_t count, size_t width,
                                       uint64_t *sums);

/* Stores n numbers, rounded to the type. A nan becomes the quiet positive one. */
typedef void gr_store_kernel(const double *x, size_t n, unsigned char *to);

typedef struct {
    gr_float_kernel *f16, *bf16, *f32, *f64;
    gr_integer_kernel *bits8, *bits16, *bits32, *bits64;
    gr_store_kernel *store_f64, *store_f32, *store_bf16;
    bool (*all_finite)(const double *x, size_t n);
    bool stores_quietly; /* raises no inexact flag */
    gr_float_rows_kernel *rows_f16, *rows_bf16, *rows_f32, *rows_f64;
    gr_integer_rows_kernel *rows_i8, *rows_u8, *rows_i16, *rows_u16, *rows_i32, *rows_u32,
        *rows_u64;
    size_t vector; /* columns of a group */
    gr_float_columns_kernel *columns_f16, *columns_bf16, *columns_f32, *columns_f64;
    gr_integer_columns_kernel *columns_i8, *columns_u8, *columns_i16, *columns_u16, *columns_i32,
        *columns_u32, *columns_u64;
    /* For sums modulo 2^32. */
    gr_integer_columns_kernel *columns_w32;
} gr_cpu_kernels;

/* The table for the processor. */
const gr_cpu_kernels *gr_cpu_best(void);

extern const gr_cpu_kernels gr_cpu_baseline;
#ifdef __x86_64__
extern const gr_cpu_kernels gr_cpu_avx2, gr_cpu_avx512;
#endif
