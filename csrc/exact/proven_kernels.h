/* The inner loops of sums that prove their rounding (proven.h): one table of functions per
 * instruction set, all compiled from proven_text.h. */
#pragma once

#include "exact/finish.h"
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

/* Rows of terms (shared/axes.h) other than GR_TERM_ELEMENT. The second factors of squares are the
 * elements themselves. `bound` covers the lost errors of tiny products; its factor is for
 * 2 n additions and some more. */
typedef struct {
    gr_term term;
    gr_load load;
    const unsigned char *in, *other;
    ptrdiff_t step, other_step;
    size_t n;
} gr_term_rows;

typedef void gr_term_rows_kernel(const gr_term_rows *of, size_t rows, double *planes);

/* The same for columns. `other`: bytes from a row to the row of second factors. */
typedef struct {
    gr_term term;
    gr_load load;
    const unsigned char *const *rows;
    ptrdiff_t other;
    size_t count, width;
} gr_term_columns;

typedef void gr_term_columns_kernel(const gr_term_columns *of, double *planes, size_t stride);

/* Adds the sums in other planes, as gr_proven3_merge does. `stride` is a number of whole groups. */
typedef void gr_proven_merge_kernel(double *planes, const double *more, size_t stride);

/* Stores two numbers for each column of float64 elements, whose sum is the exact sum. If `rounds`,
 * the first number is the sum, rounded once. Returns false if some sums are wrong, because the
 * magnitudes differ too much or are not finite. */
typedef bool gr_bin_columns_kernel(const unsigned char *const *rows, size_t count, size_t width,
                                   double *sums, double *rests, bool rounds);

/* Stores the sum of each row, rounded once, and the error of this rounding. There are at most
 * GR_PROVEN_ROWS rows of n numbers, n < 2^11. With `parts` 2, entry GR_PROVEN_ROWS + r
 * belongs to the numbers at odd indexes of row r. */
typedef bool gr_bin_rows_kernel(const unsigned char *in, ptrdiff_t step, size_t n, size_t rows,
                                int parts, double *sums, double *rests);

/* Rounds `count` sums (whole groups) in planes of gr_proven3 to the format of `fraction` and
 * `unit`. `factor` is that of `bound` (proven.h). A sum with a `margin` above 0 is proven;
 * gr_proven_round() may prove some of the others. Returns whether all are proven. */
typedef bool gr_proven_round_kernel(const double *planes, size_t stride, size_t count,
                                    double factor, int fraction, int unit, double *rounded,
                                    double *margin);

/* Stores n contiguous elements as float64 numbers. */
typedef void gr_widen_kernel(gr_load load, const unsigned char *in, size_t n, double *to);

/* Computes results of sums (finish.h): whole vectors, at most GR_FINISH_BATCH results. A result has
 * four numbers, GR_FINISH_BATCH numbers apart in `planes`. It differs from the sum of the first two
 * by at most the fourth. */
typedef void gr_finish_kernel(const gr_finish_how *how, const gr_finish_planes *of, size_t count,
                              double *planes);

/* Moves a window in each lane by `steps` elements, and keeps its sums of elements and, if
 * `has_squares`, of squares in `lanes`. In each step, an element enters, the sums are stored, and
 * an element leaves. `enters` and `leaves` point to these elements of lane 0 in the first step, or
 * are NULL. Sums are stored in four planes, sums of squares in the next four, with bounds times
 * `factor`. Without planes, no sums are stored. `counts`, or NULL, gets the numbers of elements. A
 * nan is left out unless `takes_nan`. */
enum { GR_ROLL_NUMBERS = 10 }; /* of a lane in `lanes` */
typedef struct {
    const double *enters, *leaves;
    ptrdiff_t step, apart; /* from an element to the next, and from a lane to the next */
    size_t stride, width;  /* of planes; numbers from a step's sums to the next's, at most lanes */
    bool has_squares, takes_nan;
    double factor;
} gr_roll;

typedef void gr_roll_kernel(const gr_roll *of, size_t steps, double *lanes, double *planes,
                            double *counts);

/* Exact sums of the squares of the rows or columns of a matrix, and before them, if `has_x`, of the
 * elements: several float64 numbers each, which are nan if they would be rounded. A row or column
 * is cut into pieces, each with sums of its own. A task adds up one piece of each of
 * GR_LEVEL_GROUPS rows or columns. */
enum { GR_LEVELS_OF_X = 3, GR_LEVELS = GR_LEVELS_OF_X + 5, GR_LEVEL_GROUPS = 256 };
typedef struct {
    const unsigned char *in;
    gr_load load; /* float32 or float64 */
    bool in_rows, has_x;
    size_t groups, n;   /* rows, and elements of a row; or columns, and elements of a column */
    ptrdiff_t row_step; /* bytes to the next row */
    double *out;        /* for each piece, as many rows of `groups` numbers as there are levels */
} gr_levels;

/* The most elements of a piece. */
static inline size_t gr_level_piece(bool in_rows)
{
    return in_rows ? 2048 : 128;
}

typedef void gr_levels_kernel(const gr_levels *of, size_t task);

/* Adds x[i] - pivot and its square to cell places[i]: GR_LEVELS integers, in units of as many
 * powers of two. Level k starts at 1.5 2^52 units. Leaves out differences unless they are exact,
 * and 0 or of a magnitude of at least `least` and less than `end`. Returns whether none was left
 * out. */
typedef struct {
    double pivot, start[GR_LEVELS], least, end;
    double unit[2]; /* of the last level of sums, and of squares */
    int spacing;    /* a level's unit is 2^spacing of the next level's */
} gr_cell_levels;

typedef bool gr_cells_kernel(const gr_cell_levels *of, const double *x, const size_t *places,
                             size_t n, int64_t *cells);

/* Cells `step` integers apart, whose copies are `apart` integers apart. */
typedef struct {
    const int64_t *cells;
    size_t step, apart;
    int copies;
} gr_cell_copies;

/* Stores the sums and the sums of squares of n cells: four numbers each (finish.h),
 * GR_FINISH_BATCH apart. */
typedef void gr_cell_sums_kernel(const gr_cell_levels *of, const gr_cell_copies *from, size_t n,
                                 double *sums, double *squares);

typedef struct {
    size_t vector; /* columns of a group */
    /* By the type of the elements; none for f16. */
    gr_proven_rows_kernel *rows[GR_LOAD_COUNT];
    gr_proven_columns_kernel *columns[GR_LOAD_COUNT];
    gr_term_rows_kernel *term_rows;
    gr_term_columns_kernel *term_columns;
    gr_proven_merge_kernel *merge_planes;
    gr_bin_columns_kernel *bin_columns_f64;
    gr_bin_rows_kernel *bin_rows_f64;
    gr_proven_round_kernel *round_sums;
    gr_finish_kernel *finish;
    gr_roll_kernel *roll;
    gr_levels_kernel *add_levels;
    gr_cells_kernel *add_cells;
    gr_cell_sums_kernel *cell_sums;
    gr_widen_kernel *widen;
} gr_proven_kernels;

/* The table for the processor. */
const gr_proven_kernels *gr_proven_best(void);

extern const gr_proven_kernels gr_proven_baseline;
#ifdef __x86_64__
extern const gr_proven_kernels gr_proven_avx2, gr_proven_avx512;
#endif
