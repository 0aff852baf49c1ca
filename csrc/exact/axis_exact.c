#include "exact/axis_exact_job.h"

#include "cpu/floating_point_mode.h"
#include "cpu/instruction_set.h"
#include "cpu/store.h"

enum {
    BATCH = GR_PROVEN_ROWS,
    TILE = 512,       /* columns, whose sums stay in the first-level cache ... */
    WIDE_TILE = 2048, /* ... or, on one thread, longer streams of memory */
    HALF_ROW = 8192,  /* elements of float16 whose sum is always exact in float64 */
    SHORT_ROW = 8,    /* rows of fewer elements are added up as columns */

    LONG_ROW = 2048, /* elements from which on rows of float64 are added up in pieces */
    PIECE = 1024,    /* least numbers of a piece, which has less than twice as many */
    FLAGGED = 4096,  /* elements of rows that are tried together in plain float64 */
    MERGES = 4096    /* bound of the additions to `tail` beyond one per element */
};

/* Keeps the arrays of these functions from sharing one stack frame: stacks may have 32 KB. */
#define NOINLINE __attribute__((noinline))

static void store_accumulators(const gr_axis_job *job, gr_exact sums[2], unsigned char *out)
{
    gr_store_exact(gr_exact_axes_of(job), &sums[0], 0, out);
    if (job->axes->components == 2)
        gr_store_exact(gr_exact_axes_of(job), &sums[1], 1, out + job->axes->part_step);
}

/* --- rows ------------------------------------------------------------------------------------ */

static void row_again(const gr_axis_job *job, const unsigned char *in, unsigned char *out)
{
    gr_exact sums[2];
    gr_exact_sum_array(in, job->n, job->axes->load, job->axes->components, 1, sums);
    store_accumulators(job, sums, out);
}

/* Adds up rows in float64. Returns whether no addition was rounded. */
static bool add_plainly(const gr_axis_job *job, const unsigned char *in, ptrdiff_t step, size_t n,
                        size_t rows, gr_pair *pairs)
{
    const gr_exact_axes *how = gr_exact_axes_of(job);
    if (!how->plain_rows || (how->whole ? n > HALF_ROW : !how->flags))
        return false;
    gr_lower_inexact();
    how->plain_rows(in, step, n, rows, pairs);
    for (size_t i = 0; i < rows && job->parts == 1; i++)
        pairs[i][0] += pairs[i][1];
    __asm__ volatile("" : : "g"(pairs) : "memory");
    return how->whole || !gr_inexact();
}

static bool store_plain(const gr_axis_job *job, gr_pair pair, unsigned char *out)
{
    const gr_exact_axes *how = gr_exact_axes_of(job);
    for (int part = 0; part < job->parts; part++, out += job->axes->part_step)
        if (gr_only_rounds(how, part))
            gr_store_float(out, pair[part], how->target);
        else if (!gr_store_proven(how, (gr_proven3){pair[part], 0, 0, 0}, part, out))
            return false;
    return true;
}

/* Stores sums of rows, each of which one float64 holds exactly. */
static NOINLINE void store_all_plain(const gr_axis_job *job, const gr_pair *pairs, size_t rows,
                                     unsigned char *out, ptrdiff_t out_step, bool *proven)
{
    double planes[4 * BATCH];
    if (gr_exact_axes_of(job)->apart) {
        memset(planes + BATCH, 0, 3 * BATCH * sizeof *planes);
        for (size_t i = 0; i < rows; i++)
            planes[i] = pairs[i][0];
        if (gr_store_unrounded(gr_exact_axes_of(job), planes, BATCH, rows, out, out_step)) {
            memset(proven, 1, rows * sizeof *proven);
            return;
        }
    }
    for (size_t i = 0; i < rows; i++)
        proven[i] = store_plain(job, pairs[i], out + (ptrdiff_t)i * out_step);
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
            gr_exact_axes_of(job)->plain_rows(in + 2 * first, 0, some, 1, &pair);
            gr_proven3_add(&sums[0], pair[0]);
            gr_proven3_add(&sums[job->parts - 1], pair[1]);
        }
        proven[r] = true;
        for (int part = 0; part < job->parts; part++)
            proven[r] &= gr_store_proven(gr_exact_axes_of(job), sums[part], part,
                                         out + part * job->axes->part_step);
    }
}

/* Stores the proven sums of rows, of real or imaginary parts. Clears proven[i] of other rows. */
static void store_rows(const gr_axis_job *job, const double *planes, size_t rows, int part,
                       unsigned char *out, ptrdiff_t out_step, bool *proven)
{
    const gr_exact_axes *how = gr_exact_axes_of(job);
    size_t stride = GR_PROVEN_ROWS * how->kernels->vector / 2;
    bool plain = gr_only_rounds(how, part);
    double rounded[GR_PROVEN_ROWS], margin[GR_PROVEN_ROWS];
    if (plain)
        how->kernels->round_sums(planes, stride, GR_PROVEN_ROWS, how->additions * 0x1p-52,
                                 how->format.fraction, how->format.unit, rounded, margin);
    else if (gr_store_unrounded(how, planes, stride, rows, out, out_step))
        return;
    for (size_t i = 0; i < rows; i++, planes++, out += out_step)
        if (plain && margin[i] > 0)
            gr_store_float(out, rounded[i], how->target);
        else
            proven[i] &= gr_store_proven(how, gr_sum_at(planes, stride), part, out);
}

/* Adds up rows of float64 in bins and stores the sums. Returns whether the bins held all rows. */
static NOINLINE bool add_in_bins(const gr_axis_job *job, const unsigned char *in, ptrdiff_t step,
                                 size_t n, size_t rows, unsigned char *out, ptrdiff_t out_step,
                                 bool *proven)
{
    const gr_exact_axes *how = gr_exact_axes_of(job);
    double planes[8 * BATCH], *sums = planes, *rests = planes + 2 * BATCH;
    if (!how->bin_rows || !how->bin_rows(in, step, n, rows, job->parts, sums, rests))
        return false;
    for (size_t i = 0; i < rows; i++)
        proven[i] = true;
    if (how->apart)
        memset(planes + 4 * BATCH, 0, 4 * BATCH * sizeof *planes);
    if (gr_store_unrounded(how, planes, 2 * BATCH, rows, out, out_step))
        return true;
    for (int part = 0; part < job->parts; part++, out += job->axes->part_step) {
        const double *sum = sums + part * BATCH, *rest = rests + part * BATCH;
        if (how->target == GR_LOAD_f64 && gr_only_rounds(how, part))
            gr_store_floats(out, out_step, sum, rows, how->target);
        else
            for (size_t i = 0; i < rows; i++)
                proven[i] &= gr_store_proven(how, (gr_proven3){sum[i], rest[i], 0, 0}, part,
                                             out + (ptrdiff_t)i * out_step);
    }
    return true;
}

/* Adds up one long row in bins, piece by piece. Returns whether it has stored the proven sum. */
static NOINLINE bool add_long_row(const gr_axis_job *job, const unsigned char *in, size_t n,
                                  unsigned char *out)
{
    const gr_exact_axes *how = gr_exact_axes_of(job);
    size_t parts = (size_t)job->parts, pieces = n / PIECE, piece = n / pieces / parts * parts;
    double sums[2 * BATCH], rests[2 * BATCH];
    gr_proven3 total[2] = {{0, 0, 0, 0}, {0, 0, 0, 0}};
    bool proven = true;
    gr_arithmetic before = gr_begin_plain();
    for (size_t first = 0, some; first < pieces && proven; first += some) {
        some = pieces - first < BATCH ? pieces - first : BATCH;
        ptrdiff_t step = (ptrdiff_t)(piece * sizeof(double));
        proven =
            how->bin_rows(in + (ptrdiff_t)first * step, step, piece, some, job->parts, sums, rests);
        for (size_t part = 0; part < parts && proven; part++)
            for (size_t i = part * BATCH; i < part * BATCH + some; i++) {
                gr_proven3_add(&total[part], sums[i]);
                gr_proven3_add(&total[part], rests[i]);
            }
    }
    for (size_t i = pieces * piece; i < n && proven; i++) {
        double x;
        memcpy(&x, in + i * sizeof x, sizeof x);
        gr_proven3_add(&total[i % parts], x);
    }
    for (size_t part = 0; part < parts && proven; part++)
        proven = gr_store_proven(how, total[part], (int)part,
                                 out + (ptrdiff_t)part * job->axes->part_step);
    gr_end_plain(before);
    return proven;
}

/* Adds up rows in numbers with an error bound, and stores the sums that the bound proves. */
static NOINLINE void add_with_proof(const gr_axis_job *job, const unsigned char *in, ptrdiff_t step,
                                    size_t n, size_t rows, unsigned char *out, ptrdiff_t out_step,
                                    bool *proven)
{
    double planes[4 * GR_PROVEN_ROWS * GR_MOST_VECTOR / 2];
    const gr_exact_axes *how = gr_exact_axes_of(job);
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
    int pause = 0;
    if (job->axes->load == GR_LOAD_f64 && numbers >= LONG_ROW) {
        for (size_t i = 0; i < run->count; i++) {
            const unsigned char *row = in + (ptrdiff_t)i * step;
            unsigned char *out = run->out + (ptrdiff_t)i * run->out_step;
            if (!gr_exact_tries(&pause, pause == 0 && add_long_row(job, row, numbers, out)))
                row_again(job, row, out);
        }
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
            store_all_plain(job, pairs, some, out, run->out_step, proven);
        else if (!gr_exact_tries(&pause, pause == 0 && add_in_bins(job, from, step, numbers, some,
                                                                   out, run->out_step, proven)))
            add_with_proof(job, from, step, numbers, some, out, run->out_step, proven);
        gr_end_plain(before);
        for (size_t i = 0; i < some; i++)
            if (!proven[i])
                row_again(job, from + (ptrdiff_t)i * step, out + (ptrdiff_t)i * run->out_step);
    }
}

/* Adds up a piece of a long row in accumulators, whose setup cost does not matter there. */
static void add_piece(const gr_axis_job *job, const gr_axis_run *row, size_t first, size_t n,
                      unsigned char *buffer, void *partial)
{
    gr_exact *sums = partial;
    const unsigned char *in;
    for (int i = 0; i < job->axes->components; i++)
        gr_exact_init(&sums[i]);
    for (size_t some; (some = gr_axis_chunk(job, row, first, n, buffer, &in, NULL)) > 0;
         n -= some) {
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

GR_CHOOSE_TABLE(gr_proven_best, gr_proven_kernels, gr_proven_baseline, gr_proven_avx2,
                gr_proven_avx512, gr_proven_avx512)

/* --- terms ----------------------------------------------------------------------------------- */

/* Stores the sums of terms of rows. */
static void add_terms(const gr_axis_job *job, const unsigned char *in, ptrdiff_t step, size_t n,
                      const gr_axis_run *run)
{
    const gr_axes *axes = job->axes;
    const gr_exact_axes *how = gr_exact_axes_of(job);
    double planes[4 * GR_PROVEN_ROWS * GR_MOST_VECTOR / 2];
    gr_term_rows rows = {axes->term, axes->load, in, in, step, step, n};
    if (job->factors) {
        rows.other = run->mask;
        rows.other_step = run->mask_step;
    }
    gr_arithmetic before = gr_begin_plain();
    for (size_t first = 0, some; first < run->count; first += some) {
        bool proven[BATCH];
        unsigned char *out = run->out + (ptrdiff_t)first * run->out_step;
        some = run->count - first < BATCH ? run->count - first : BATCH;
        for (size_t i = 0; i < some; i++)
            proven[i] = true;
        how->kernels->term_rows(&rows, some, planes);
        store_rows(job, planes, some, 0, out, run->out_step, proven);
        for (size_t i = 0; i < some; i++)
            if (!proven[i])
                gr_store_unknown(how, out + (ptrdiff_t)i * run->out_step);
        rows.in += (ptrdiff_t)some * step;
        rows.other += (ptrdiff_t)some * rows.other_step;
    }
    gr_end_plain(before);
}

static void add_term_piece(const gr_axis_job *job, const gr_axis_run *row, size_t first, size_t n,
                           unsigned char *buffer, void *partial)
{
    const gr_exact_axes *how = gr_exact_axes_of(job);
    double planes[4 * GR_PROVEN_ROWS * GR_MOST_VECTOR / 2];
    size_t stride = GR_PROVEN_ROWS * how->kernels->vector / 2;
    gr_proven3 *total = partial;
    gr_term_rows rows = {.term = job->axes->term, .load = job->axes->load};
    *total = (gr_proven3){0, 0, 0, 0};
    gr_arithmetic before = gr_begin_plain();
    for (; (rows.n = gr_axis_chunk(job, row, first, n, buffer, &rows.in, &rows.other)) > 0;
         n -= rows.n) {
        how->kernels->term_rows(&rows, 1, planes);
        gr_proven3 sum = gr_sum_at(planes, stride);
        gr_proven3_merge(total, &sum);
        first += rows.n;
    }
    gr_end_plain(before);
}

static void add_term_pieces(const gr_axis_job *job, const gr_axis_run *row, void *partials,
                            size_t pieces)
{
    gr_proven3 *sums = partials;
    gr_arithmetic before = gr_begin_plain();
    for (size_t i = 1; i < pieces; i++)
        gr_proven3_merge(&sums[0], &sums[i]);
    if (!gr_store_proven(gr_exact_axes_of(job), sums[0], 0, row->out))
        gr_store_unknown(gr_exact_axes_of(job), row->out);
    gr_end_plain(before);
}

/* What both adders do with columns, except for `add`. */
#define OF_COLUMNS                                                                                 \
    .kept_planes = GR_EXACT_PLANES, .planes = gr_exact_planes, .start = gr_exact_start,            \
    .end = gr_exact_end, .merge = gr_exact_merge_columns, .fold = gr_exact_fold,                   \
    .store = gr_exact_store

static const gr_axis_adder term_adder = {
    .rows = add_terms,
    .partial_size = sizeof(gr_proven3),
    .piece = add_term_piece,
    .total = add_term_pieces,
    .add = gr_exact_add_terms,
    OF_COLUMNS,
};

/* --- all ------------------------------------------------------------------------------------- */

static const gr_axis_adder exact_adder = {
    .rows = add_rows,
    .partial_size = 2 * sizeof(gr_exact),
    .piece = add_piece,
    .total = add_pieces,
    .add = gr_exact_add,
    OF_COLUMNS,
    .assume = gr_exact_assume,
};

const gr_axes *gr_factors_of(const gr_axes *axes, gr_axes *room)
{
    if (axes->term != GR_TERM_PRODUCT)
        return NULL;
    *room = *axes;
    for (int i = 0; i < room->reduced.count; i++)
        room->reduced.dim[i].in = room->reduced.dim[i].mask;
    return room;
}

static bool sum_axes(gr_axes *axes, gr_axes *room, gr_load target, ptrdiff_t apart,
                     const gr_initial *initial, int threads)
{
    gr_axes_simplify(axes);
    const gr_proven_kernels *kernels = gr_proven_best();
    bool has_terms = axes->term != GR_TERM_ELEMENT;
    gr_exact_axes how = {
        .target = target,
        .format = gr_format_of(target),
        .initial = initial,
        .apart = apart,
        .has_terms = has_terms,
        .additions =
            (double)gr_axes_size(&axes->reduced) * (has_terms ? 2 : axes->components) + MERGES,
        .kernels = kernels,
        .flags = gr_flags_work(),
        .whole = axes->load == GR_LOAD_f16,
        .rows = kernels->rows[axes->load],
        .columns = kernels->columns[axes->load],
        .plain_rows = gr_cpu_best()->float_rows[axes->load],
        .plain_columns = gr_cpu_best()->float_columns[axes->load],
    };
    if (axes->load == GR_LOAD_f64) {
        /* The float64 sum of two elements is rounded once, so it is the correct result. */
        how.whole = gr_axes_size(&axes->reduced) <= 2 && target == GR_LOAD_f64 &&
                    gr_only_rounds(&how, 0) && gr_only_rounds(&how, 1);
        how.plain_rows = NULL;
        how.plain_columns = how.whole ? how.plain_columns : NULL;
        how.bin_rows = kernels->bin_rows_f64;
        how.bin_columns = how.whole ? NULL : kernels->bin_columns_f64;
    }
    gr_axis_job job = {
        .adder = has_terms ? &term_adder : &exact_adder,
        .context = &how,
        .axes = axes,
        .factors = gr_factors_of(axes, room),
        .short_rows = axes->load == GR_LOAD_f64 && !has_terms ? SHORT_ROW : 0,
        .few_rows = 128,
        .vector = kernels->vector,
        .tile = threads == 1 ? WIDE_TILE : TILE,
        .threads = threads,
    };
    bool raised = gr_inexact(); /* rows and columns clear this thread's flag */
    bool done = gr_axis_run_job(&job);
    if (raised)
        gr_raise_inexact();
    return done;
}

bool gr_exact_sum_axes(gr_axes *axes, gr_load target, const gr_initial *initial, int threads)
{
    return sum_axes(axes, NULL, target, 0, initial, threads);
}

bool gr_exact_unrounded_axes(gr_axes *axes, gr_axes *room, int threads)
{
    static const gr_initial nothing;
    return sum_axes(axes, room, GR_LOAD_f64, axes->part_step, &nothing, threads);
}
