/* Correctly rounded sums of columns. */
#include "exact/axis_exact_job.h"

#include "cpu/floating_point_mode.h"
#include "cpu/gather.h"
#include "cpu/store.h"

enum {
    BLOCK = 64,      /* columns that are rounded at once */
    AGAIN = 8,       /* columns that are added up in accumulators together */
    AGAIN_ROWS = 512 /* rows that are read at a time */
};

int gr_exact_planes(const gr_axis_job *job)
{
    (void)job;
    return GR_EXACT_PLANES + 2; /* gr_proven3's members, a leaf's sums, and their rests */
}

static double *leaf_of(const gr_columns *sums)
{
    return sums->planes + GR_EXACT_PLANES * sums->stride;
}

static double *rests_of(const gr_columns *sums)
{
    return leaf_of(sums) + sums->stride;
}

/* The first leaf's sums stay in the leaf's plane (`leaves` 1) until a second leaf comes. */
void gr_exact_start(const gr_axis_job *job, gr_columns *sums)
{
    (void)job;
    sums->leaves = 0;
}

/* Moves the leaf's sums to the planes of gr_proven3. */
static void leave_leaf(const gr_axis_job *job, gr_columns *sums)
{
    if (sums->leaves > 1)
        return;
    memset(sums->planes, 0, sums->stride * GR_EXACT_PLANES * sizeof(double));
    const unsigned char *row = (const unsigned char *)leaf_of(sums);
    if (sums->leaves == 1)
        gr_exact_axes_of(job)->kernels->columns[GR_LOAD_f64](&row, 1, sums->stride, sums->planes,
                                                             sums->stride);
    sums->leaves = 2;
}

/* Adds up the rows of a leaf in float64. Returns whether all its sums are exact, or are results
 * that are correctly rounded. */
static bool add_leaf_plainly(const gr_axis_job *job, gr_columns *sums,
                             const unsigned char *const *rows, size_t count)
{
    const gr_exact_axes *how = gr_exact_axes_of(job);
    if (!how->plain_columns || !(how->whole || how->flags))
        return false;
    if (sums->leaves == 1)
        leave_leaf(job, sums);
    double *leaf = leaf_of(sums);
    size_t used = gr_columns_used(sums, job->vector);
    memset(leaf + used, 0, (sums->stride - used) * sizeof *leaf);
    gr_lower_inexact();
    __asm__ volatile("" : : "g"(leaf) : "memory");
    how->plain_columns(rows, count, sums->width, job->fetches, leaf);
    __asm__ volatile("" : : "g"(leaf) : "memory");
    if (!how->whole && gr_inexact())
        return false;
    const unsigned char *row = (const unsigned char *)leaf;
    if (sums->leaves++ > 0)
        how->kernels->columns[GR_LOAD_f64](&row, 1, sums->stride, sums->planes, sums->stride);
    return true;
}

/* Adds up any number of rows in bins. Returns whether the bins held all elements. */
static bool add_leaf_in_bins(const gr_axis_job *job, gr_columns *sums,
                             const unsigned char *const *rows, size_t count)
{
    const gr_exact_axes *how = gr_exact_axes_of(job);
    double *leaf[2] = {leaf_of(sums), rests_of(sums)};
    leave_leaf(job, sums);
    if (!how->bin_columns(rows, count, sums->width, leaf[0], leaf[1], false))
        return false;
    size_t used = gr_columns_used(sums, job->vector);
    for (int i = 0; i < 2; i++)
        memset(leaf[i] + used, 0, (sums->stride - used) * sizeof(double));
    const unsigned char *both[2] = {(const unsigned char *)leaf[0], (const unsigned char *)leaf[1]};
    how->kernels->columns[GR_LOAD_f64](both, 2, sums->stride, sums->planes, sums->stride);
    return true;
}

/* Tries a fast method for a leaf, bins or plain float64. Returns whether it was right. */
static bool add_leaf(const gr_axis_job *job, gr_columns *sums, const unsigned char *const *rows,
                     size_t count)
{
    return gr_exact_axes_of(job)->bin_columns ? add_leaf_in_bins(job, sums, rows, count)
                                              : add_leaf_plainly(job, sums, rows, count);
}

/* Assumes that bins, or plain float64, hold all sums of a tile, so that each sum is rounded once.
 */
bool gr_exact_assume(const gr_axis_job *job, gr_columns *sums)
{
    const gr_exact_axes *how = gr_exact_axes_of(job);
    sums->right = gr_only_rounds(how, 0) && gr_only_rounds(how, 1) &&
                  (how->whole || (how->bin_columns && how->target == GR_LOAD_f64));
    return sums->right;
}

static void add_assumed(const gr_axis_job *job, gr_columns *sums, const unsigned char *const *rows,
                        size_t count)
{
    const gr_exact_axes *how = gr_exact_axes_of(job);
    if (how->plain_columns)
        how->plain_columns(rows, count, sums->width, job->fetches, leaf_of(sums));
    else
        sums->right &=
            how->bin_columns(rows, count, sums->width, leaf_of(sums), rests_of(sums), true);
    sums->leaves = 1;
}

static void store_assumed(const gr_axis_job *job, gr_columns *sums, const gr_axis_run *run)
{
    const gr_exact_axes *how = gr_exact_axes_of(job);
    if (how->plain_columns)
        sums->right &= gr_all_finite(leaf_of(sums), gr_columns_used(sums, job->vector));
    gr_store_columns(sums, leaf_of(sums), job->vector, 0, run, how->target);
}

void gr_exact_add(const gr_axis_job *job, gr_columns *sums, const unsigned char *const *rows,
                  size_t count)
{
    const gr_exact_axes *how = gr_exact_axes_of(job);
    if (sums->assumed) {
        add_assumed(job, sums, rows, count);
        return;
    }
    if (gr_exact_tries(&sums->pause, sums->pause == 0 && add_leaf(job, sums, rows, count)))
        return;
    leave_leaf(job, sums);
    how->columns(rows, count, sums->width, sums->planes, sums->stride);
}

void gr_exact_add_terms(const gr_axis_job *job, gr_columns *sums, const unsigned char *const *rows,
                        size_t count)
{
    gr_term_columns of = {
        job->axes->term, job->axes->load, rows, sums->other, count, sums->width,
    };
    leave_leaf(job, sums);
    gr_exact_axes_of(job)->kernels->term_columns(&of, sums->planes, sums->stride);
}

/* Moves sums that will be merged or folded from the leaf's plane to the planes of gr_proven3. */
void gr_exact_end(const gr_axis_job *job, gr_columns *sums)
{
    if (sums->leaves == 1 && job->chunks == 1 && job->folded == 1)
        return;
    leave_leaf(job, sums);
}

static void merge_places(const gr_columns *sums, size_t to, size_t from)
{
    size_t stride = sums->stride;
    gr_proven3 sum = gr_sum_at(sums->planes + to, stride);
    const gr_proven3 other = gr_sum_at(sums->planes + from, stride);
    gr_proven3_merge(&sum, &other);
    sums->planes[to] = sum.sum;
    sums->planes[to + stride] = sum.rest;
    sums->planes[to + 2 * stride] = sum.tail;
    sums->planes[to + 3 * stride] = sum.bound;
}

void gr_exact_merge_columns(const gr_axis_job *job, gr_columns *sums, const double *later)
{
    leave_leaf(job, sums);
    gr_exact_axes_of(job)->kernels->merge_planes(sums->planes, later, sums->stride);
}

void gr_exact_fold(const gr_axis_job *job, gr_columns *sums, size_t width)
{
    for (size_t count = sums->width / width, half; count > 1; count = half) {
        half = (count + 1) / 2;
        for (size_t i = 0; i < (count - half) * width; i++)
            merge_places(sums, gr_column_place(sums, job->vector, i),
                         gr_column_place(sums, job->vector, i + half * width));
    }
}

/* Columns that are added up again, by their index in a run. */
typedef struct {
    size_t column[AGAIN];
    size_t count;
} some_columns;

/* Adds up several columns again at once, because adjacent columns share cache lines. */
static void columns_again(const gr_axis_job *job, const some_columns *which, size_t first,
                          const gr_axis_run *run)
{
    const gr_exact_axes *how = gr_exact_axes_of(job);
    gr_exact sums[AGAIN];
    double buffer[AGAIN_ROWS];
    for (size_t i = 0; i < which->count && how->has_terms; i++)
        gr_store_unknown(how, run->out + (ptrdiff_t)which->column[i] * run->out_step);
    if (how->has_terms)
        return;
    for (size_t i = 0; i < which->count; i++)
        gr_exact_init(&sums[i]);
    for (size_t row = 0; row < job->n && !gr_axis_is_interrupted(job); row += AGAIN_ROWS) {
        size_t some = job->n - row < AGAIN_ROWS ? job->n - row : AGAIN_ROWS;
        for (size_t i = 0; i < which->count; i++) {
            ptrdiff_t at = (ptrdiff_t)which->column[i];
            const unsigned char *mask = run->mask ? run->mask + at * run->mask_step : NULL;
            gr_gather_row((unsigned char *)buffer, job->axes, run->in + at * run->in_step, mask,
                          row, some);
            gr_exact_add_array(&sums[i], buffer, some, job->axes->load, 1, 1);
        }
    }
    for (size_t i = 0; i < which->count; i++) {
        int part = job->parts == 2 ? (int)((first + which->column[i]) % 2) : 0;
        gr_store_exact(how, &sums[i], part, run->out + (ptrdiff_t)which->column[i] * run->out_step);
    }
}

static bool store_column(const gr_axis_job *job, const gr_columns *sums, size_t column,
                         unsigned char *out)
{
    size_t place = gr_column_place(sums, job->vector, column);
    int part = job->parts == 2 ? (int)(column % 2) : 0;
    gr_proven3 sum = sums->leaves == 1 ? (gr_proven3){leaf_of(sums)[place], 0, 0, 0}
                                       : gr_sum_at(sums->planes + place, sums->stride);
    return gr_store_proven(gr_exact_axes_of(job), sum, part, out);
}

/* Whether one float64 holds each sum of a column exactly. For float32 elements it mostly does. */
static bool are_exact(const gr_axis_job *job, const gr_columns *sums)
{
    bool exact = true;
    if (sums->leaves == 1)
        return gr_all_finite(leaf_of(sums), gr_columns_used(sums, job->vector));
    for (int i = 1; i < GR_EXACT_PLANES; i++)
        exact = exact && gr_all_zero(sums->planes + (size_t)i * sums->stride, sums->stride);
    return exact; /* false if a sum is inf or nan: its error is nan */
}

static void store_or_note(const gr_axis_job *job, const gr_columns *sums, size_t first,
                          const gr_axis_run *run, size_t i, some_columns *again)
{
    if (!store_column(job, sums, first + i, run->out + (ptrdiff_t)i * run->out_step))
        again->column[again->count++] = i;
    if (again->count < AGAIN)
        return;
    columns_again(job, again, first, run);
    again->count = 0;
}

/* Stores the sums of up to BLOCK columns, from column i of the run on. None of them is in the last
 * group, which overlaps the one before. */
static void store_block(const gr_axis_job *job, const gr_columns *sums, size_t first,
                        const gr_axis_run *run, size_t i, size_t n, some_columns *again)
{
    const gr_exact_axes *how = gr_exact_axes_of(job);
    double rounded[BLOCK], margin[BLOCK];
    size_t groups = (n - 1) / GR_MOST_VECTOR * GR_MOST_VECTOR + GR_MOST_VECTOR;
    bool all = how->kernels->round_sums(sums->planes + first + i, sums->stride, groups,
                                        how->additions * 0x1p-52, how->format.fraction,
                                        how->format.unit, rounded, margin);
    if (all)
        gr_store_floats(run->out + (ptrdiff_t)i * run->out_step, run->out_step, rounded, n,
                        how->target);
    for (size_t k = 0; k < n && !all; k++)
        if (margin[k] > 0)
            gr_store_float(run->out + (ptrdiff_t)(i + k) * run->out_step, rounded[k], how->target);
        else
            store_or_note(job, sums, first, run, i + k, again);
}

void gr_exact_store(const gr_axis_job *job, gr_columns *sums, size_t first, const gr_axis_run *run)
{
    if (sums->assumed) {
        store_assumed(job, sums, run);
        return;
    }
    const gr_exact_axes *how = gr_exact_axes_of(job);
    some_columns again = {.count = 0};
    bool plain = gr_only_rounds(how, 0) && gr_only_rounds(how, 1);
    if (how->apart)
        leave_leaf(job, sums);
    size_t i = 0, whole = gr_columns_whole(sums, job->vector);
    size_t some = first >= whole ? 0 : whole - first < run->count ? whole - first : run->count;
    if (plain && are_exact(job, sums)) {
        const double *exact = sums->leaves == 1 ? leaf_of(sums) : sums->planes;
        gr_store_columns(sums, exact, job->vector, first, run, how->target);
        i = run->count;
    } else if (plain && sums->leaves > 1) {
        for (size_t n; i < some; i += n) {
            n = some - i < BLOCK ? some - i : BLOCK;
            store_block(job, sums, first, run, i, n, &again);
        }
    }
    if (sums->leaves > 1 &&
        gr_store_unrounded(how, sums->planes + first, sums->stride, some, run->out, run->out_step))
        i = some;
    for (; i < run->count; i++)
        store_or_note(job, sums, first, run, i, &again);
    if (again.count > 0)
        columns_again(job, &again, first, run);
}
