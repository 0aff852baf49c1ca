#include "exact/axis_exact.h"

#include "cpu/axis_job.h"
#include "cpu/floating_point_mode.h"
#include "cpu/gather.h"
#include "cpu/instruction_set.h"
#include "cpu/kernels.h"
#include "cpu/store.h"
#include "exact/exact.h"
#include "exact/format.h"
#include "exact/proven.h"
#include "exact/proven_kernels.h"

enum {
    BATCH = GR_PROVEN_ROWS,
    TILE = 512,        /* columns, whose sums stay in the first-level cache */
    BLOCK = 64,        /* columns that are rounded at once */
    AGAIN = 8,         /* columns that are added up again together */
    AGAIN_ROWS = 512,  /* of them at a time */
    HALF_ROW = 8192,   /* float16: the sum of so many is exact in float64 */
    SHORT_ROW = 32,    /* rows of fewer elements are added up as columns */
    LONG_ROW = 2048,   /* float64: accumulators are faster from here on */
    FLAGGED = 4096,    /* elements of rows that are added up without proof, if exactly */
    FLAGGED_ROWS = 32, /* rows of columns, the same */
    MERGES = 4096,     /* more additions to `tail` than elements: of lanes, columns, chunks */
};

typedef struct {
    gr_load target;
    gr_format format; /* of the target */
    const gr_exact_initial *initial;
    double additions;
    const gr_proven_kernels *kernels;
    gr_proven_rows_kernel *rows;
    gr_proven_columns_kernel *columns;
    /* Sums in float64 are exact if no addition raises the inexact flag: most of float32 and
     * bfloat16 are. */
    gr_float_rows_kernel *plain_rows;
    gr_float_columns_kernel *plain_columns;
    bool flags, whole; /* whether the flag works; whether plain sums are exact in any case */
} context;

static const context *context_of(const gr_axis_job *job)
{
    return job->context;
}

static const gr_proven_kernels *best_kernels(void)
{
    static const gr_proven_kernels *const tables[GR_INSTRUCTION_SETS] = {
        [GR_BASELINE] = &gr_proven_baseline,
#ifdef __x86_64__
        [GR_AVX2] = &gr_proven_avx2,
        [GR_AVX512] = &gr_proven_avx512,
        [GR_AVX512_HALVES] = &gr_proven_avx512,
#endif
    };
    return tables[gr_instructions()];
}

/* --- one sum --------------------------------------------------------------------------------- */

/* Stores the sum if it is proven. Returns whether it is. */
static bool store_proven(const context *how, gr_proven3 sum, int part, unsigned char *out)
{
    double rounded;
    for (int i = 0; i < how->initial->count[part]; i++)
        gr_proven3_add(&sum, how->initial->terms[part][i]);
    if (!gr_proven3_finish(&sum, how->additions, how->format.fraction, how->format.unit, &rounded))
        return false;
    gr_store_float(out, rounded, how->target);
    return true;
}

static void store_exact(const context *how, gr_exact *sum, int part, unsigned char *out)
{
    for (int i = 0; i < how->initial->count[part]; i++)
        gr_exact_add_f64(sum, how->initial->terms[part][i]);
    uint64_t bits = gr_exact_round(sum, how->target);
    gr_store_integer(out, bits, how->target);
}

static void store_accumulators(const gr_axis_job *job, gr_exact sums[2], unsigned char *out)
{
    store_exact(context_of(job), &sums[0], 0, out);
    if (job->axes->components == 2)
        store_exact(context_of(job), &sums[1], 1, out + job->axes->part_step);
}

/* --- rows ------------------------------------------------------------------------------------ */

static void row_again(const gr_axis_job *job, const unsigned char *in, unsigned char *out)
{
    gr_exact sums[2];
    gr_exact_sum_array(in, job->n, job->axes->load, job->axes->components, 1, sums);
    store_accumulators(job, sums, out);
}

/* Adds up rows in float64, and their even and odd elements. Returns whether nothing was rounded. */
static bool add_plainly(const gr_axis_job *job, const unsigned char *in, ptrdiff_t step, size_t n,
                        size_t rows, gr_pair *pairs)
{
    const context *how = context_of(job);
    if (!how->plain_rows || (how->whole ? n > HALF_ROW : !how->flags))
        return false;
    gr_lower_inexact();
    how->plain_rows(in, step, n, rows, pairs);
    for (size_t i = 0; i < rows && job->parts == 1; i++)
        pairs[i][0] += pairs[i][1];
    __asm__ volatile("" : : "g"(pairs) : "memory");
    return how->whole || !gr_inexact();
}

/* Stores exact sums. With initial numbers they are not yet the result. */
static bool store_plain(const gr_axis_job *job, gr_pair pair, unsigned char *out)
{
    const context *how = context_of(job);
    for (int part = 0; part < job->parts; part++, out += job->axes->part_step)
        if (how->initial->count[part] == 0)
            gr_store_float(out, pair[part], how->target);
        else if (!store_proven(how, (gr_proven3){pair[part], 0, 0, 0}, part, out))
            return false;
    return true;
}

/* Adds up rows of float16 piece by piece, each of which is exact in float64. */
static void add_half_rows(const gr_axis_job *job, const unsigned char *in, ptrdiff_t step, size_t n,
                          size_t rows, unsigned char *out, ptrdiff_t out_step, bool *proven)
{
    for (size_t r = 0; r < rows; r++, in += step, out += out_step) {
        gr_proven3 sums[2] = {{0, 0, 0, 0}, {0, 0, 0, 0}};
        for (size_t first = 0; first < n; first += HALF_ROW) {
            gr_pair pair;
            size_t some = n - first < HALF_ROW ? n - first : HALF_ROW;
            gr_cpu_best()->rows_f16(in + 2 * first, 0, some, 1, &pair);
            gr_proven3_add(&sums[0], pair[0]);
            gr_proven3_add(&sums[job->parts - 1], pair[1]);
        }
        proven[r] = true;
        for (int part = 0; part < job->parts; part++)
            proven[r] &=
                store_proven(context_of(job), sums[part], part, out + part * job->axes->part_step);
    }
}

static gr_proven3 sum_at(const double *planes, size_t stride)
{
    return (gr_proven3){planes[0], planes[stride], planes[2 * stride], planes[3 * stride]};
}

/* Stores the sums of one part of rows that are proven. */
static void store_rows(const gr_axis_job *job, const double *planes, size_t rows, int part,
                       unsigned char *out, ptrdiff_t out_step, bool *proven)
{
    const context *how = context_of(job);
    size_t stride = GR_PROVEN_ROWS * how->kernels->vector / 2;
    bool plain = how->target == GR_LOAD_f64 && how->initial->count[part] == 0;
    double rounded[GR_PROVEN_ROWS], margin[GR_PROVEN_ROWS];
    if (plain)
        how->kernels->round_f64(planes, stride, GR_PROVEN_ROWS, how->additions * 0x1p-52, rounded,
                                margin);
    for (size_t i = 0; i < rows; i++, planes++, out += out_step)
        if (plain && margin[i] > 0)
            memcpy(out, &rounded[i], sizeof *rounded);
        else
            proven[i] &= store_proven(how, sum_at(planes, stride), part, out);
}

/* Adds up rows with proof, and stores the sums that are proven. */
static void add_with_proof(const gr_axis_job *job, const unsigned char *in, ptrdiff_t step,
                           size_t n, size_t rows, unsigned char *out, ptrdiff_t out_step,
                           bool *proven)
{
    double planes[4 * GR_PROVEN_ROWS * GR_MOST_VECTOR / 2];
    const context *how = context_of(job);
    if (job->axes->load == GR_LOAD_f16) {
        add_half_rows(job, in, step, n, rows, out, out_step, proven);
        return;
    }
    how->rows(in, step, n, rows, job->parts, planes);
    for (size_t i = 0; i < rows; i++)
        proven[i] = true;
    for (int part = 0; part < job->parts; part++)
        store_rows(job, planes + part * GR_PROVEN_ROWS, rows, part,
                   out + part * job->axes->part_step, out_step, proven);
}

static void add_rows(const gr_axis_job *job, const unsigned char *in, ptrdiff_t step, size_t n,
                     const gr_axis_run *run)
{
    size_t numbers = n * (size_t)job->axes->components;
    if (job->axes->load == GR_LOAD_f64 && numbers >= LONG_ROW) {
        for (size_t i = 0; i < run->count; i++)
            row_again(job, in + (ptrdiff_t)i * step, run->out + (ptrdiff_t)i * run->out_step);
        return;
    }
    size_t most = FLAGGED / numbers < BATCH ? FLAGGED / numbers : BATCH, some;
    most = job->axes->load == GR_LOAD_f64 ? BATCH : most + (most == 0);
    for (size_t first = 0; first < run->count; first += some) {
        some = run->count - first < most ? run->count - first : most;
        const unsigned char *from = in + (ptrdiff_t)first * step;
        unsigned char *out = run->out + (ptrdiff_t)first * run->out_step;
        gr_pair pairs[BATCH];
        bool proven[BATCH];
        gr_arithmetic before = gr_begin_plain();
        if (add_plainly(job, from, step, numbers, some, pairs))
            for (size_t i = 0; i < some; i++)
                proven[i] = store_plain(job, pairs[i], out + (ptrdiff_t)i * run->out_step);
        else
            add_with_proof(job, from, step, numbers, some, out, run->out_step, proven);
        gr_end_plain(before);
        for (size_t i = 0; i < some; i++)
            if (!proven[i])
                row_again(job, from + (ptrdiff_t)i * step, out + (ptrdiff_t)i * run->out_step);
    }
}

/* Long rows are added up in accumulators: their cost does not matter there. */
static void add_piece(const gr_axis_job *job, const gr_axis_run *row, size_t first, size_t n,
                      unsigned char *buffer, void *partial)
{
    gr_exact *sums = partial;
    const unsigned char *in;
    for (int i = 0; i < job->axes->components; i++)
        gr_exact_init(&sums[i]);
    for (size_t some; (some = gr_axis_chunk(job, row, first, n, buffer, &in)) > 0; n -= some) {
        gr_exact_add_array(sums, in, some, job->axes->load, job->axes->components, 1);
        first += some;
    }
}

static void add_pieces(const gr_axis_job *job, const gr_axis_run *row, void *partials,
                       size_t pieces)
{
    gr_exact(*sums)[2] = partials;
    for (size_t i = 1; i < pieces; i++)
        for (int part = 0; part < job->axes->components; part++)
            gr_exact_merge(&sums[0][part], &sums[i][part]);
    store_accumulators(job, sums[0], row->out);
}

/* --- columns --------------------------------------------------------------------------------- */

/* The members of gr_proven3, and a leaf. */
enum { KEPT_PLANES = 4, PLANES };

static int planes(const gr_axis_job *job)
{
    (void)job;
    return PLANES;
}

static void start_columns(const gr_axis_job *job, gr_columns *sums)
{
    (void)job;
    memset(sums->planes, 0, sums->stride * PLANES * sizeof(double));
}

/* Adds up a leaf in float64. Returns whether nothing was rounded. */
static bool add_leaf_plainly(const gr_axis_job *job, gr_columns *sums,
                             const unsigned char *const *rows, size_t count)
{
    const context *how = context_of(job);
    if (!how->plain_columns || !(how->whole || how->flags))
        return false;
    double *leaf = sums->planes + (PLANES - 1) * sums->stride;
    size_t used = gr_columns_used(sums, job->vector);
    memset(leaf + used, 0, (sums->stride - used) * sizeof *leaf);
    gr_lower_inexact();
    __asm__ volatile("" : : "g"(leaf) : "memory");
    how->plain_columns(rows, count, sums->width, leaf);
    __asm__ volatile("" : : "g"(leaf) : "memory");
    if (!how->whole && gr_inexact())
        return false;
    const unsigned char *row = (const unsigned char *)leaf;
    how->kernels->columns_f64(&row, 1, sums->stride, sums->planes, sums->stride);
    return true;
}

static void add_columns(const gr_axis_job *job, gr_columns *sums, const unsigned char *const *rows,
                        size_t count)
{
    gr_arithmetic before = gr_begin_plain();
    for (size_t some; count > 0; rows += some, count -= some) {
        some = count < FLAGGED_ROWS ? count : FLAGGED_ROWS;
        if (!add_leaf_plainly(job, sums, rows, some))
            context_of(job)->columns(rows, some, sums->width, sums->planes, sums->stride);
    }
    gr_end_plain(before);
}

static void end_columns(const gr_axis_job *job, gr_columns *sums)
{
    (void)job;
    (void)sums;
}

static void merge_places(const gr_columns *sums, size_t to, const gr_columns *more, size_t from)
{
    size_t stride = sums->stride;
    gr_proven3 sum = sum_at(sums->planes + to, stride);
    const gr_proven3 other = sum_at(more->planes + from, stride);
    gr_proven3_merge(&sum, &other);
    sums->planes[to] = sum.sum;
    sums->planes[to + stride] = sum.rest;
    sums->planes[to + 2 * stride] = sum.tail;
    sums->planes[to + 3 * stride] = sum.bound;
}

static void merge_columns(const gr_axis_job *job, gr_columns *sums, const double *later)
{
    (void)job;
    gr_columns more = *sums;
    more.planes = (double *)later;
    gr_arithmetic before = gr_begin_plain();
    for (size_t i = 0; i < sums->stride; i++)
        merge_places(sums, i, &more, i);
    gr_end_plain(before);
}

static void fold_columns(const gr_axis_job *job, gr_columns *sums, size_t width)
{
    gr_arithmetic before = gr_begin_plain();
    for (size_t count = sums->width / width, half; count > 1; count = half) {
        half = (count + 1) / 2;
        for (size_t i = 0; i < (count - half) * width; i++)
            merge_places(sums, gr_column_place(sums, job->vector, i), sums,
                         gr_column_place(sums, job->vector, i + half * width));
    }
    gr_end_plain(before);
}

/* Columns that are added up again: their numbers in a run. */
typedef struct {
    size_t column[AGAIN];
    size_t count;
} some_columns;

/* Together, as neighbours share cache lines. */
static void columns_again(const gr_axis_job *job, const some_columns *which, size_t first,
                          const gr_axis_run *run)
{
    gr_exact sums[AGAIN];
    double buffer[AGAIN_ROWS];
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
        store_exact(context_of(job), &sums[i], part,
                    run->out + (ptrdiff_t)which->column[i] * run->out_step);
    }
}

static bool store_column(const gr_axis_job *job, const gr_columns *sums, size_t column,
                         unsigned char *out)
{
    size_t place = gr_column_place(sums, job->vector, column);
    int part = job->parts == 2 ? (int)(column % 2) : 0;
    return store_proven(context_of(job), sum_at(sums->planes + place, sums->stride), part, out);
}

/* Whether the sums of columns are exact in their first number, as those of float32 mostly are. */
static bool are_exact(const gr_columns *sums)
{
    bool exact = true;
    for (int i = 1; i < KEPT_PLANES; i++)
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

/* Stores the sums of up to BLOCK columns in float64 that are in their places. */
static void store_block(const gr_axis_job *job, const gr_columns *sums, size_t first,
                        const gr_axis_run *run, size_t i, size_t n, some_columns *again)
{
    double rounded[BLOCK], margin[BLOCK];
    bool all = true;
    context_of(job)->kernels->round_f64(sums->planes + first + i, sums->stride,
                                        (n - 1) / GR_MOST_VECTOR * GR_MOST_VECTOR + GR_MOST_VECTOR,
                                        context_of(job)->additions * 0x1p-52, rounded, margin);
    for (size_t k = 0; k < n; k++)
        all &= margin[k] > 0;
    if (all)
        gr_store_floats(run->out + (ptrdiff_t)i * run->out_step, run->out_step, rounded, n,
                        GR_LOAD_f64);
    for (size_t k = 0; k < n && !all; k++)
        store_or_note(job, sums, first, run, i + k, again);
}

static void store_columns(const gr_axis_job *job, const gr_columns *sums, size_t first,
                          const gr_axis_run *run)
{
    const context *how = context_of(job);
    some_columns again = {.count = 0};
    bool plain = how->initial->count[0] + how->initial->count[1] == 0;
    size_t whole = sums->width / job->vector * job->vector, i = 0; /* in their places */
    size_t some = first >= whole ? 0 : whole - first < run->count ? whole - first : run->count;
    gr_arithmetic before = gr_begin_plain();
    if (plain && are_exact(sums)) {
        gr_store_floats(run->out, run->out_step, sums->planes + first, some, how->target);
        i = some;
    } else if (plain && how->target == GR_LOAD_f64) {
        for (size_t n; i < some; i += n) {
            n = some - i < BLOCK ? some - i : BLOCK;
            store_block(job, sums, first, run, i, n, &again);
        }
    }
    for (; i < run->count; i++)
        store_or_note(job, sums, first, run, i, &again);
    gr_end_plain(before);
    if (again.count > 0)
        columns_again(job, &again, first, run);
}

/* --- all ------------------------------------------------------------------------------------- */

static const gr_axis_ways exact_ways = {
    .rows = add_rows,
    .partial_size = 2 * sizeof(gr_exact),
    .piece = add_piece,
    .total = add_pieces,
    .kept_planes = KEPT_PLANES,
    .planes = planes,
    .start = start_columns,
    .add = add_columns,
    .end = end_columns,
    .merge = merge_columns,
    .fold = fold_columns,
    .store = store_columns,
};

bool gr_exact_sum_axes(gr_axes *axes, gr_load target, const gr_exact_initial *initial, int threads)
{
    gr_axes_simplify(axes);
    const gr_proven_kernels *kernels = best_kernels();
    const gr_cpu_kernels *plain = gr_cpu_best();
    context how = {
        .target = target,
        .format = gr_format_of(target),
        .initial = initial,
        .additions = (double)gr_axes_size(&axes->reduced) * axes->components + MERGES,
        .kernels = kernels,
        .flags = gr_flags_work(),
        .whole = axes->load == GR_LOAD_f16,
    };
    switch (axes->load) {
    case GR_LOAD_f16:
        how.plain_rows = plain->rows_f16;
        how.plain_columns = plain->columns_f16;
        break;
    case GR_LOAD_bf16:
        how.rows = kernels->rows_bf16;
        how.columns = kernels->columns_bf16;
        how.plain_rows = plain->rows_bf16;
        how.plain_columns = plain->columns_bf16;
        break;
    case GR_LOAD_f32:
        how.rows = kernels->rows_f32;
        how.columns = kernels->columns_f32;
        how.plain_rows = plain->rows_f32;
        how.plain_columns = plain->columns_f32;
        break;
    default:
        how.rows = kernels->rows_f64;
        how.columns = kernels->columns_f64;
        break;
    }
    gr_axis_job job = {
        .ways = &exact_ways,
        .context = &how,
        .axes = axes,
        .short_rows = axes->load == GR_LOAD_f64 ? SHORT_ROW : 0,
        .vector = kernels->vector,
        .tile = TILE,
        .threads = threads,
    };
    bool raised = gr_inexact(); /* rows and columns clear this thread's flag */
    bool done = gr_axis_run_job(&job);
    if (raised)
        gr_raise_inexact();
    return done;
}
