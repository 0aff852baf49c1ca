/* The inner loops of sums that prove their rounding (proven.h): one table of functions per
 * instruction set, all compiled from proven_text.h. */
#ifndef GPUREDUCE_PROVEN_KERNELS_H
#define GPUREDUCE_PROVEN_KERNELS_H

#include "exact/proven.h"

#include <stddef.h>

/* Adds up at most GR_PROVEN_ROWS rows. A row is n contiguous elements, and rows begin `step` bytes
 * apart. `planes` holds four arrays, one for each member of gr_proven3 in turn, each of
 * GR_PROVEN_ROWS * vector / 2 numbers. Entry r of an array belongs to the sum of row r. With
 * `parts` 2, for complex numbers, it belongs to the elements at even indexes, and entry
 * GR_PROVEN_ROWS + r to those at odd ones. The other entries are scratch memory. */
enum { GR_PROVEN_ROWS = 32 };
typedef void gr_proven_rows_kernel(const unsigned char *in, ptrdiff_t step, size_t n, size_t rows,
                                   int parts, double *planes);

/* Adds rows of elements to the sums of columns. `planes` holds an array of `stride` numbers for
 * each member of gr_proven3 in turn. Columns are in groups (cpu/axis_job.h). */
typedef void gr_proven_columns_kernel(const unsigned char *const *rows, size_t count, size_t width,
                                      double *planes, size_t stride);

/* Adds the sums in other planes, as gr_proven3_merge does. `stride` is a number of whole groups. */
typedef void gr_proven_merge_kernel(double *planes, const double *more, size_t stride);

/* Stores two numbers for each column of float64 elements, whose sum is that of the elements. If
 * `rounds`, the first is the sum, rounded once. Returns false if some of them are wrong: if the
 * elements' sizes are too different, or not finite. */
typedef bool gr_bin_columns_kernel(const unsigned char *const *rows, size_t count, size_t width,
                                   double *sums, double *rests, bool rounds);

/* Stores the sum of each row, rounded once, and the error of this rounding. There are at most
 * GR_PROVEN_ROWS rows of n numbers, n < 2^11. With `parts` 2, entry GR_PROVEN_ROWS + r
 * belongs to the numbers at odd indexes of row r. */
typedef bool gr_bin_rows_kernel(const unsigned char *in, ptrdiff_t step, size_t n, size_t rows,
                                int parts, double *sums, double *rests);

/* Rounds `count` sums to the format of `fraction` and `unit`, whole groups, from planes for
 * gr_proven3. `factor` is that of `bound` (proven.h). A sum is proven if its `margin` is above 0.
 * Some other sums could be proven, too. Returns whether all are proven. */
typedef bool gr_proven_round_kernel(const double *planes, size_t stride, size_t count,
                                    double factor, int fraction, int unit, double *rounded,
                                    double *margin);

typedef struct {
    size_t vector; /* columns of a group */
    gr_proven_rows_kernel *rows_bf16, *rows_f32, *rows_f64;
    gr_proven_columns_kernel *columns_bf16, *columns_f32, *columns_f64;
    gr_proven_merge_kernel *merge_planes;
    gr_bin_columns_kernel *bin_columns_f64;
    gr_bin_rows_kernel *bin_rows_f64;
    gr_proven_round_kernel *round_sums;
} gr_proven_kernels;

extern const gr_proven_kernels gr_proven_baseline;
#ifdef __x86_64__
extern const gr_proven_kernels gr_proven_avx2, gr_proven_avx512;
#endif

#endif
