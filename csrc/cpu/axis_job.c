#include "cpu/axis_tasks.h"

#include "cpu/gather.h"
#include "cpu/kernels.h"
#include "threads/interrupts.h"

#include <stdlib.h>

enum { MOST_PIECES = 512 };

static bool has_factors(const gr_axis_job *job)
{
    return job->axes->term == GR_TERM_PRODUCT;
}

/* The part of the buffer for the second factors of products. */
static unsigned char *factors_in(const gr_axis_job *job, unsigned char *buffer)
{
    return buffer + GR_CHUNK_BLOCKS * GR_CPU_BLOCK * job->size;
}

/* Gathers the elements of one row, or of several rows that form one. */
static void gather_from(const gr_axis_job *job, const gr_axes *axes, const unsigned char *in,
                        const unsigned char *mask, size_t first, size_t n, unsigned char *to)
{
    if (n > job->n) {
        gr_spaced from = gr_spaced_of(axes, gr_axis_inner(&axes->reduced), in, mask);
        gr_gather(to, &from, n);
    } else {
        gr_gather_row(to, axes, in, mask, first, n);
    }
}

/* The same, and also gathers the second factors of products. */
static void gather(const gr_axis_job *job, const unsigned char *in, const unsigned char *other,
                   size_t first, size_t n, unsigned char *to, unsigned char *factors)
{
    gather_from(job, job->axes, in, has_factors(job) ? NULL : other, first, n, to);
    if (has_factors(job))
        gather_from(job, job->factors, other, NULL, first, n, factors);
}

size_t gr_axis_chunk(const gr_axis_job *job, const gr_axis_run *row, size_t first, size_t n,
                     unsigned char *buffer, const unsigned char **in, const unsigned char **other)
{
    if (n == 0 || gr_axis_is_interrupted(job))
        return 0;
    if (job->contiguous) {
        *in = row->in + first * job->size;
        if (other)
            *other = has_factors(job) ? row->mask + first * job->size : *in;
        return n;
    }
    n = gr_least(n, GR_CHUNK_BLOCKS * GR_CPU_BLOCK);
    *in = buffer;
    if (other)
        *other = has_factors(job) ? factors_in(job, buffer) : buffer;
    gather(job, row->in, row->mask, first, n, buffer, factors_in(job, buffer));
    return n;
}

/* Whether the elements of all rows are at equal distances, as if they were one row. */
static bool are_one_row(const gr_axis_job *job, const gr_axis_run *run)
{
    const gr_axis *inner = gr_axis_inner(&job->axes->reduced);
    ptrdiff_t n = (ptrdiff_t)job->n;
    return job->axes->reduced.count == 1 && run->in_step == n * inner->in &&
           (!run->mask || run->mask_step == n * inner->mask);
}

/* Adds up rows that must be gathered: as many at a time as fit the buffer. */
static void gather_rows(const gr_axis_job *job, gr_axis_run *run, unsigned char *buffer)
{
    size_t bytes = job->n * job->size, room = GR_CHUNK_BLOCKS * GR_CPU_BLOCK * job->size / bytes;
    unsigned char *factors = factors_in(job, buffer);
    bool at_once = are_one_row(job, run);
    while (run->count > 0) {
        gr_axis_run some = *run;
        some.count = gr_least(run->count, room);
        for (size_t i = 0; i < (at_once ? 1 : some.count); i++) {
            ptrdiff_t at = (ptrdiff_t)i;
            gather(job, run->in + at * run->in_step,
                   run->mask ? run->mask + at * run->mask_step : NULL, 0,
                   at_once ? some.count * job->n : job->n, buffer + i * bytes, factors + i * bytes);
        }
        if (has_factors(job)) {
            some.mask = factors;
            some.mask_step = (ptrdiff_t)bytes;
        }
        job->adder->rows(job, buffer, (ptrdiff_t)bytes, job->n, &some);
        ptrdiff_t done = (ptrdiff_t)some.count;
        run->in += done * run->in_step;
        run->mask += run->mask ? done * run->mask_step : 0;
        run->out += done * run->out_step;
        run->count -= some.count;
    }
}

static void add_rows_of_run(const gr_axis_job *job, gr_axis_run *run, void *buffer)
{
    if (job->contiguous)
        job->adder->rows(job, run->in, run->in_step, job->n, run);
    else
        gather_rows(job, run, buffer);
}

static unsigned char *new_buffer(const gr_axis_job *job)
{
    size_t bytes = GR_CHUNK_BLOCKS * GR_CPU_BLOCK * job->size;
    return job->contiguous ? NULL : malloc(has_factors(job) ? 2 * bytes : bytes);
}

static void rows_task(size_t task, void *context)
{
    gr_axis_job *job = context;
    unsigned char *buffer = new_buffer(job);
    size_t first = task * job->each;
    if (buffer || job->contiguous)
        gr_axis_for_runs(job, first, gr_least(job->each, job->units - first), add_rows_of_run,
                         buffer);
    else
        gr_axis_fail(job);
    free(buffer);
}

static void take_row(const gr_axis_job *job, gr_axis_run *run, void *row)
{
    (void)job;
    *(gr_axis_run *)row = *run;
}

static unsigned char *partial_of(const gr_axis_job *job, size_t row, size_t piece)
{
    return (unsigned char *)job->partials + (row * job->pieces + piece) * job->adder->partial_size;
}

static void piece_task(size_t task, void *context)
{
    gr_axis_job *job = context;
    size_t number = task / job->pieces, piece = task % job->pieces, first = piece * job->piece;
    unsigned char *buffer = new_buffer(job);
    gr_axis_run row;
    if (buffer || job->contiguous) {
        gr_axis_for_runs(job, job->each + number, 1, take_row, &row);
        if (!gr_interrupted())
            job->adder->piece(job, &row, first, gr_least(job->piece, job->n - first), buffer,
                              partial_of(job, number, piece));
    } else {
        gr_axis_fail(job);
    }
    free(buffer);
}

/* Adds up long rows, a few at a time, whose pieces have partial sums. `job->each` is the number of
 * the first of these rows. */
static bool run_long_rows(gr_axis_job *job)
{
    size_t block = GR_CPU_BLOCK;
    job->piece = GR_PIECE_BLOCKS * block;
    while ((job->n - 1) / job->piece >= MOST_PIECES)
        job->piece *= 2;
    job->pieces = (job->n - 1) / job->piece + 1;
    size_t together = gr_least(job->units, 1 + MOST_PIECES / job->pieces);
    job->partials = malloc(together * job->pieces * job->adder->partial_size);
    if (!job->partials)
        return false;
    for (job->each = 0; job->each < job->units && !job->failed; job->each += together) {
        together = gr_least(together, job->units - job->each);
        gr_axis_run_tasks(job, together * job->pieces, piece_task);
        for (size_t i = 0; i < together && !gr_interrupted() && !job->failed; i++) {
            gr_axis_run row;
            gr_axis_for_runs(job, job->each + i, 1, take_row, &row);
            if (!gr_interrupted())
                job->adder->total(job, &row, partial_of(job, i, 0), job->pieces);
        }
        if (gr_interrupted())
            break;
    }
    free(job->partials);
    return !job->failed;
}

static bool run_rows(gr_axis_job *job)
{
    const gr_axes *axes = job->axes;
    const gr_axis *inner = gr_axis_inner(&axes->reduced);
    job->size = gr_load_size(axes->load) * (size_t)axes->components;
    ptrdiff_t size = (ptrdiff_t)job->size;
    job->contiguous =
        gr_axis_is_plain(axes) && axes->reduced.count <= 1 &&
        (job->n == 1 || (inner->in == size && (!has_factors(job) || inner->mask == size)));
    job->units = gr_axes_size(&axes->kept);
    if (job->n > (size_t)(job->contiguous ? GR_PIECE_BLOCKS : GR_CHUNK_BLOCKS) * GR_CPU_BLOCK)
        return run_long_rows(job);
    size_t bytes = job->n * job->size;
    job->each = bytes < GR_AXIS_TASK_BYTES ? GR_AXIS_TASK_BYTES / bytes : 1;
    gr_axis_run_tasks(job, (job->units - 1) / job->each + 1, rows_task);
    return !job->failed;
}

bool gr_axis_run_job(gr_axis_job *job)
{
    const gr_axes *axes = job->axes;
    const gr_axis *kept = gr_axis_inner(&axes->kept), *reduced = gr_axis_inner(&axes->reduced);
    job->n = gr_axes_size(&axes->reduced);
    job->parts = axes->components;
    job->failed = false;
    job->watch = gr_current_watch();
    bool in_rows = axes->kept.count == 0 || (axes->reduced.count > 0 && reduced->in <= kept->in);
    if (in_rows && (job->n >= job->short_rows || axes->kept.count == 0))
        return run_rows(job);
    return gr_axis_run_columns(job);
}
