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

/* The sum of each of `rows` rows of n elements, `step` bytes apart, in the order that cpu_sum.h
 * describes, in float64. */
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

/* Kernels by the type of the elements. */
typedef struct {
    gr_float_rows_kernel *float_rows[GR_LOAD_COUNT];
    gr_float_columns_kernel *float_columns[GR_LOAD_COUNT];
    gr_integer_rows_kernel *integer_rows[GR_LOAD_COUNT];
    gr_integer_columns_kernel *integer_columns[GR_LOAD_COUNT];
    gr_integer_columns_kernel *columns_w32; /* for sums modulo 2^32 */
    size_t vector;                          /* columns of a group */
    gr_store_kernel *store_f64, *store_f32, *store_bf16;
    bool (*all_finite)(const double *x, size_t n);
} gr_cpu_kernels;

/* The table for the processor. */
const gr_cpu_kernels *gr_cpu_best(void);

extern const gr_cpu_kernels gr_cpu_baseline;
#ifdef __x86_64__
extern const gr_cpu_kernels gr_cpu_avx2, gr_cpu_avx512;
#endif
