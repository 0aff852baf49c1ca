#include "cpu/axis_sum.h"

#include "cpu/axis_tasks.h"
#include "cpu/cpu_sum.h"
#include "cpu/floating_point_mode.h"
#include "cpu/gather.h"
#include "cpu/kernels.h"
#include "cpu/partial_sums.h"
#include "cpu/store.h"

#include <math.h>

enum { BATCH = 64 }; /* rows */

typedef struct {
    gr_acc acc;
    gr_load target;
    const gr_initial *initial;
    gr_float_rows_kernel *float_rows;
    gr_float_columns_kernel *float_columns;
    gr_integer_rows_kernel *integer_rows;
    gr_integer_columns_kernel *integer_columns;
} context;

static const context *context_of(const gr_axis_job *job)
{
    return job->context;
}

/* --- floats ---------------------------------------------------------------------------------- */

static double initial_of(const context *how, int part)
{
    return how->initial->count[part] ? how->initial->terms[part][0] : 0;
}

static void store_float(const context *how, double sum, int part, unsigned char *out)
{
    double initial = initial_of(how, part);
    if (initial != 0)
        sum += initial;
    gr_store_float(out, how->acc == GR_ACC_f32 ? (double)(float)sum : sum, how->target);
}

static void store_pair(const gr_axis_job *job, gr_pair sum, unsigned char *out)
{
    const context *how = context_of(job);
    if (job->axes->components == 1) {
        store_float(how, sum[0] + sum[1], 0, out);
        return;
    }
    store_float(how, sum[0], 0, out);
    store_float(how, sum[1], 1, out + job->axes->part_step);
}

static bool is_finite(const gr_axis_job *job, gr_pair x)
{
    return job->parts == 1 ? isfinite(x[0] + x[1]) : isfinite(x[0]) && isfinite(x[1]);
}

static gr_pair whole_row(const gr_axis_job *job, const unsigned char *in)
{
    gr_value values[2];
    gr_cpu_sum(in, job->n, GR_LOAD_f64, GR_ACC_f64, job->axes->components, 1, values);
    return (gr_pair){values[0].f64, values[1].f64};
}

static void float_rows(const gr_axis_job *job, const unsigned char *in, ptrdiff_t step, size_t n,
                       const gr_axis_run *run)
{
    gr_pair sums[BATCH];
    gr_arithmetic before = gr_begin_plain();
    for (size_t first = 0; first < run->count; first += BATCH) {
        size_t some = run->count - first < BATCH ? run->count - first : BATCH;
        const unsigned char *from = in + (ptrdiff_t)first * step;
        context_of(job)->float_rows(from, step, n * (size_t)job->axes->components, some, sums);
        for (size_t i = 0; i < some; i++) {
            if (job->axes->load == GR_LOAD_f64 && !is_finite(job, sums[i]))
                sums[i] = whole_row(job, from + (ptrdiff_t)i * step);
            store_pair(job, sums[i], run->out + (ptrdiff_t)(first + i) * run->out_step);
        }
    }
    gr_end_plain(before);
}

/* Adds the sum of n numbers to the tree. */
static void push_row(const gr_axis_job *job, const void *in, size_t n, gr_tree *tree)
{
    gr_pair sum;
    context_of(job)->float_rows(in, 0, n, 1, &sum);
    gr_tree_push(tree, sum);
}

/* Adds up elements times 2^-64, to avoid an overflow. */
static gr_pair scaled_sum(const gr_axis_job *job, const gr_axis_run *row, size_t first, size_t n)
{
    double block[GR_CPU_BLOCK];
    size_t parts = (size_t)job->axes->components, most = GR_CPU_BLOCK / parts;
    gr_tree tree;
    gr_tree_start(&tree);
    for (size_t some; n > 0 && !gr_axis_is_interrupted(job); first += some, n -= some) {
        some = n < most ? n : most;
        gr_gather_row((unsigned char *)block, job->axes, row->in, row->mask, first, some);
        for (size_t i = 0; i < some * parts; i++)
            block[i] *= GR_SCALE_DOWN;
        push_row(job, block, some * parts, &tree);
    }
    return gr_tree_total(&tree);
}

static void float_piece(const gr_axis_job *job, const gr_axis_run *row, size_t first, size_t n,
                        unsigned char *buffer, void *partial)
{
    gr_partial_sum *sum = partial;
    const unsigned char *in;
    gr_tree tree;
    gr_tree_start(&tree);
    gr_arithmetic before = gr_begin_plain();
    for (size_t done = 0, some;
         (some = gr_axis_chunk(job, row, first + done, n - done, buffer, &in, NULL)) > 0;
         done += some)
        push_row(job, in, some * (size_t)job->axes->components, &tree);
    sum->pair = gr_tree_total(&tree);
    sum->scaled = job->axes->load == GR_LOAD_f64 && !is_finite(job, sum->pair);
    if (sum->scaled)
        sum->pair = scaled_sum(job, row, first, n);
    gr_end_plain(before);
}

static void float_total(const gr_axis_job *job, const gr_axis_run *row, void *partials,
                        size_t pieces)
{
    gr_arithmetic before = gr_begin_plain();
    store_pair(job, gr_total_of(partials, pieces, job->axes->load, job->axes->components),
               row->out);
    gr_end_plain(before);
}

/* Level 0 has the sums of the current leaf and, in the end, the total. The other levels are the
 * stack of a tree (cpu/tree.h). */
static double *level(const gr_columns *sums, size_t depth)
{
    return sums->planes + (1 + depth) * sums->stride;
}

static int float_planes(const gr_axis_job *job)
{
    int levels = 1;
    for (size_t leaves = (job->rows - 1) / GR_LEAF_ROWS + 1; leaves > 0; leaves /= 2)
        levels++;
    return 1 + levels;
}

static void float_start(const gr_axis_job *job, gr_columns *sums)
{
    sums->leaves = 0;
    sums->more = job->rows > GR_LEAF_ROWS;
}

static size_t kept_levels(const gr_columns *sums)
{
    return (size_t)__builtin_popcountll(sums->leaves);
}

static void push_leaf(gr_columns *sums)
{
    double *leaf = sums->planes;
    size_t top = kept_levels(sums), n = sums->stride;
    for (size_t carry = sums->leaves++; carry & 1; carry >>= 1) {
        const double *before = level(sums, --top);
        for (size_t i = 0; i < n; i++)
            leaf[i] = before[i] + leaf[i];
    }
    if (top > 0 || sums->more)
        memcpy(level(sums, top), leaf, n * sizeof *leaf);
}

static void float_add(const gr_axis_job *job, gr_columns *sums, const unsigned char *const *rows,
                      size_t count)
{
    size_t used = gr_columns_used(sums, job->vector);
    memset(sums->planes + used, 0, (sums->stride - used) * sizeof *sums->planes);
    context_of(job)->float_columns(rows, count, sums->width, job->fetches, sums->planes);
    push_leaf(sums);
}

static void float_end(const gr_axis_job *job, gr_columns *sums)
{
    (void)job;
    if (sums->leaves == 1) /* the only leaf is the total */
        return;
    double *total = sums->planes;
    size_t n = sums->stride;
    memset(total, 0, n * sizeof *total);
    for (size_t top = kept_levels(sums); top > 0; top--) {
        const double *more = level(sums, top - 1);
        for (size_t i = 0; i < n; i++)
            total[i] = more[i] + total[i];
    }
}

static void float_merge(const gr_axis_job *job, gr_columns *sums, const double *later)
{
    (void)job;
    memcpy(sums->planes, later, sums->stride * sizeof *later);
    push_leaf(sums);
}

/* Adds columns pairwise. */
static void float_fold(const gr_axis_job *job, gr_columns *sums, size_t width)
{
    for (size_t count = sums->width / width, half; count > 1; count = half) {
        half = (count + 1) / 2;
        for (size_t i = 0; i < (count - half) * width; i++)
            sums->planes[gr_column_place(sums, job->vector, i)] +=
                sums->planes[gr_column_place(sums, job->vector, i + half * width)];
    }
}

static double column_again(const gr_axis_job *job, const gr_axis_run *run, size_t i)
{
    gr_axis_run row = *run;
    row.in += (ptrdiff_t)i * run->in_step;
    row.mask += run->mask ? (ptrdiff_t)i * run->mask_step : 0;
    gr_pair sum = scaled_sum(job, &row, 0, job->n);
    return gr_scale_pair((gr_pair){sum[0] + sum[1], 0}, GR_SCALE_UP)[0];
}

static void store_column(const gr_axis_job *job, double sum, size_t column, const gr_axis_run *run,
                         size_t i)
{
    int part = job->parts == 2 ? (int)(column % 2) : 0;
    if (job->axes->load == GR_LOAD_f64 && !isfinite(sum))
        sum = column_again(job, run, i);
    store_float(context_of(job), sum, part, run->out + (ptrdiff_t)i * run->out_step);
}

/* Whether sums can be stored as they are: no initial number, and no partial sum overflowed. */
static bool stores_plainly(const gr_axis_job *job, const double *sums, size_t n)
{
    const context *how = context_of(job);
    return initial_of(how, 0) == 0 && initial_of(how, 1) == 0 &&
           (job->axes->load != GR_LOAD_f64 || gr_all_finite(sums, n));
}

static void float_store(const gr_axis_job *job, gr_columns *sums, size_t first,
                        const gr_axis_run *run)
{
    const context *how = context_of(job);
    size_t whole = gr_columns_whole(sums, job->vector), end = first + run->count;
    size_t n =
        end <= whole ? run->count : gr_columns_used(sums, job->vector) - gr_least(first, whole);
    double *from = sums->planes + gr_least(first, whole);
    if (stores_plainly(job, from, n)) {
        if (how->acc == GR_ACC_f32 && how->target != GR_LOAD_f32)
            gr_round_to_f32(from, n);
        gr_store_columns(sums, sums->planes, job->vector, first, run, how->target);
        return;
    }
    for (size_t i = 0; i < run->count; i++)
        store_column(job, sums->planes[gr_column_place(sums, job->vector, first + i)], first + i,
                     run, i);
}

static const gr_axis_adder float_adder = {
    .rows = float_rows,
    .partial_size = sizeof(gr_partial_sum),
    .piece = float_piece,
    .total = float_total,
    .kept_planes = 1,
    .planes = float_planes,
    .start = float_start,
    .add = float_add,
    .end = float_end,
    .merge = float_merge,
    .fold = float_fold,
    .store = float_store,
};

/* --- integers -------------------------------------------------------------------------------- */

static void store_integer(const context *how, uint64_t sum, unsigned char *out)
{
    gr_store_integer(out, sum + how->initial->integer, how->target);
}

static void integer_rows(const gr_axis_job *job, const unsigned char *in, ptrdiff_t step, size_t n,
                         const gr_axis_run *run)
{
    uint64_t sums[BATCH];
    for (size_t first = 0; first < run->count; first += BATCH) {
        size_t some = run->count - first < BATCH ? run->count - first : BATCH;
        context_of(job)->integer_rows(in + (ptrdiff_t)first * step, step, n, some, sums);
        for (size_t i = 0; i < some; i++)
            store_integer(context_of(job), sums[i],
                          run->out + (ptrdiff_t)(first + i) * run->out_step);
    }
}

static void integer_piece(const gr_axis_job *job, const gr_axis_run *row, size_t first, size_t n,
                          unsigned char *buffer, void *partial)
{
    uint64_t sum, *total = partial;
    const unsigned char *in;
    *total = 0;
    for (size_t some; (some = gr_axis_chunk(job, row, first, n, buffer, &in, NULL)) > 0;
         n -= some) {
        context_of(job)->integer_rows(in, 0, some, 1, &sum);
        *total += sum;
        first += some;
    }
}

static void integer_total(const gr_axis_job *job, const gr_axis_run *row, void *partials,
                          size_t pieces)
{
    const uint64_t *sums = partials;
    uint64_t total = 0;
    for (size_t i = 0; i < pieces; i++)
        total += sums[i];
    store_integer(context_of(job), total, row->out);
}

static int integer_planes(const gr_axis_job *job)
{
    (void)job;
    return 1;
}

static void integer_start(const gr_axis_job *job, gr_columns *sums)
{
    (void)job;
    memset(sums->planes, 0, sums->stride * sizeof *sums->planes);
}

static uint64_t *integers_of(const gr_columns *sums)
{
    return (void *)sums->planes;
}

static void integer_add(const gr_axis_job *job, gr_columns *sums, const unsigned char *const *rows,
                        size_t count)
{
    context_of(job)->integer_columns(rows, count, sums->width, integers_of(sums));
}

static void integer_end(const gr_axis_job *job, gr_columns *sums)
{
    (void)job;
    (void)sums;
}

static void integer_merge(const gr_axis_job *job, gr_columns *sums, const double *later)
{
    (void)job;
    const uint64_t *more = (const void *)later;
    for (size_t i = 0; i < sums->stride; i++)
        integers_of(sums)[i] += more[i];
}

static void integer_fold(const gr_axis_job *job, gr_columns *sums, size_t width)
{
    (void)job;
    for (size_t i = width; i < sums->width; i++)
        integers_of(sums)[i % width] += integers_of(sums)[i];
}

static void integer_store(const gr_axis_job *job, gr_columns *sums, size_t first,
                          const gr_axis_run *run)
{
    const uint64_t *from = integers_of(sums) + first;
    uint64_t initial = context_of(job)->initial->integer;
    if (gr_load_size(context_of(job)->target) == 8 && run->out_step == 8) {
        for (size_t i = 0; i < run->count; i++) {
            uint64_t sum = from[i] + initial;
            memcpy(run->out + 8 * i, &sum, sizeof sum);
        }
        return;
    }
    for (size_t i = 0; i < run->count; i++)
        store_integer(context_of(job), from[i], run->out + (ptrdiff_t)i * run->out_step);
}

static const gr_axis_adder integer_adder = {
    .rows = integer_rows,
    .partial_size = sizeof(uint64_t),
    .piece = integer_piece,
    .total = integer_total,
    .kept_planes = 1,
    .planes = integer_planes,
    .start = integer_start,
    .add = integer_add,
    .end = integer_end,
    .merge = integer_merge,
    .fold = integer_fold,
    .store = integer_store,
};

/* --- all ------------------------------------------------------------------------------------- */

bool gr_cpu_sum_axes(gr_axes *axes, gr_acc acc, gr_load target, const gr_initial *initial,
                     int threads)
{
    const gr_cpu_kernels *kernels = gr_cpu_best();
    context how = {
        .acc = acc,
        .target = target,
        .initial = initial,
        .float_rows = kernels->float_rows[axes->load],
        .float_columns = kernels->float_columns[axes->load],
        .integer_rows = kernels->integer_rows[axes->load],
        .integer_columns =
            acc == GR_ACC_u32 ? kernels->columns_w32 : kernels->integer_columns[axes->load],
    };
    gr_axis_job job = {
        .adder = how.float_rows ? &float_adder : &integer_adder,
        .context = &how,
        .axes = axes,
        /* One pass takes 15 rows. More than 8 of float64 evict each other's cache lines. */
        .few_rows = axes->load == GR_LOAD_f64 ? 8 : 15,
        .vector = how.float_rows ? kernels->vector : 1,
        .tile = GR_COLUMNS,
        .threads = threads,
    };
    gr_axes_simplify(axes);
    return gr_axis_run_job(&job);
}
