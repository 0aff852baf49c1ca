/* Sums of columns: tiles of them, added up row by row. axis_job.h says how. */
#include "cpu/axis_tasks.h"

#include "cpu/floating_point_mode.h"
#include "cpu/gather.h"
#include "cpu/store.h"

#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

enum {
    FEW_UNITS = 64,         /* fewer tiles are divided into chunks of rows */
    MOST_CHUNKS = 64,       /* per tile */
    FOLD_BELOW = 64,        /* rows of fewer columns are folded */
    FOLDED = 128,           /* most columns of a folded row */
    FOLD_FROM_BYTES = 2048, /* least bytes of a sum's rows for folding: below, packing is faster */
    PACKED = 128,           /* columns of a packed tile */
    STRIP_BYTES = 4096,     /* input of a strip; its sums are stored before the next strip */
    LEAST_STRIP = 128,      /* columns */
    MOST_STRIP = 512,
    LONG_STRIP = 1024,
    PASS_ROWS = 8,
    FETCHES_FROM_BYTES = 1 << 25,
    CACHE_LINE = 64
};

enum { DIRECT, FOLDED_ROWS, PACKED_ROWS }; /* forms of columns */

/* The memory of a task. */
typedef struct {
    /* The planes follow. Vectors that lie in one cache line are stored twice as fast. */
    alignas(CACHE_LINE) const gr_axis_job *job;
    gr_columns sums;
    unsigned char *buffer; /* packed rows, or the last folded row */
    size_t row_bytes;      /* of a packed row */
    const unsigned char *rows[GR_LEAF_ROWS];
    gr_axis_run runs[PACKED]; /* of a packed tile */
    size_t run_count;
} column_task;

static size_t round_up(size_t n)
{
    return (n + GR_MOST_VECTOR - 1) / GR_MOST_VECTOR * GR_MOST_VECTOR;
}

/* Tiles of few rows are added up and stored strip by strip: their sums stay in the first-level
 * cache, and prefetchers see uninterrupted streams of rows. */
static bool in_strips(const gr_axis_job *job)
{
    return job->form == DIRECT && job->rows <= job->few_rows;
}

static size_t strip_of(const gr_axis_job *job)
{
    size_t columns = STRIP_BYTES / (job->rows * job->size) / LEAST_STRIP * LEAST_STRIP;
    if (job->rows > PASS_ROWS) /* with several passes over the sums, long streams are faster */
        return LONG_STRIP;
    return columns < LEAST_STRIP ? LEAST_STRIP : gr_least(columns, MOST_STRIP);
}

/* The bytes of a unit. Larger units cost less, but a small array needs enough units for all
 * threads. */
static size_t tile_of_strips(const gr_axis_job *job, size_t sums)
{
    size_t most = 4 * GR_AXIS_TASK_BYTES, some = sums * job->rows * job->size / FEW_UNITS;
    return some < GR_AXIS_TASK_BYTES ? GR_AXIS_TASK_BYTES : gr_least(some, most);
}

static size_t stride_of(const gr_axis_job *job)
{
    size_t width = job->form == FOLDED_ROWS ? job->folded * job->width : job->width;
    width = in_strips(job) ? gr_least(width, strip_of(job)) : width;
    return round_up(width) + GR_MOST_VECTOR;
}

void gr_store_columns(const gr_columns *sums, const double *plane, size_t vector, size_t first,
                      const gr_axis_run *run, gr_load target)
{
    size_t whole = gr_columns_whole(sums, vector),
           some = first < whole ? gr_least(whole - first, run->count) : 0;
    gr_store_floats(run->out, run->out_step, plane + first, some, target);
    if (some < run->count) /* the last group overlaps the one before it */
        gr_store_floats(run->out + (ptrdiff_t)some * run->out_step, run->out_step,
                        plane + gr_column_place(sums, vector, first + some), run->count - some,
                        target);
}

/* Returns NULL, and fails the job, if there is no memory. */
static column_task *new_task(gr_axis_job *job)
{
    size_t stride = stride_of(job),
           rows = job->form == PACKED_ROWS ? gr_least(job->rows, GR_LEAF_ROWS) : 1;
    size_t factors = job->factors ? rows : 0;
    size_t planes = stride * (size_t)job->planes * sizeof(double), row = stride * job->size;
    size_t bytes = sizeof(column_task) + planes + (rows + factors) * row;
    column_task *task =
        aligned_alloc(CACHE_LINE, (bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE);
    if (!task) {
        gr_axis_fail(job);
        return NULL;
    }
    task->job = job;
    task->sums = (gr_columns){.planes = (double *)(task + 1), .stride = stride};
    task->buffer = (unsigned char *)(task + 1) + planes;
    task->row_bytes = row;
    task->sums.other = (ptrdiff_t)(factors * row);
    return task;
}

static void keep_run(const gr_axis_job *job, gr_axis_run *run, void *context)
{
    (void)job;
    column_task *task = context;
    task->runs[task->run_count++] = *run;
}

/* Sets the sums of a unit, and the number of its columns. */
static void set_unit(column_task *task, size_t unit)
{
    const gr_axis_job *job = task->job;
    task->run_count = 0;
    if (job->form == PACKED_ROWS) {
        size_t first = unit * job->width, n = gr_least(job->width, job->unit_sums - first);
        gr_axis_for_runs(job, first, n, keep_run, task);
        task->sums.width = round_up(n);
        size_t rows = gr_least(job->rows, GR_LEAF_ROWS) * (job->factors ? 2 : 1);
        for (size_t i = 0; n < task->sums.width && i < rows; i++)
            memset(task->buffer + i * task->row_bytes + n * job->size, 0,
                   (task->sums.width - n) * job->size);
        return;
    }
    size_t inner = gr_axis_inner(&job->axes->kept)->size, first = unit % job->tiles * job->width;
    size_t n = gr_least(job->width, inner - first);
    gr_axis_for_runs(job, unit / job->tiles * inner + first, n, keep_run, task);
    task->sums.width = n * job->folded;
}

static void pack_row(const column_task *task, const gr_axes_place *at, unsigned char *to)
{
    const gr_axis_job *job = task->job;
    const gr_axis *inner = gr_axis_inner(&job->axes->kept);
    for (size_t i = 0; i < task->run_count; i++) {
        const gr_axis_run *run = &task->runs[i];
        const unsigned char *other = run->mask ? run->mask + at->mask : NULL;
        gr_spaced from =
            gr_spaced_of(job->axes, inner, run->in + at->in, job->factors ? NULL : other);
        gr_gather(to, &from, run->count);
        if (job->factors) {
            from.in = other;
            from.in_step = from.mask_step;
            gr_gather(to + task->sums.other, &from, run->count);
        }
        to += run->count * job->size;
    }
}

/* Finds `count` rows, from `first` on. */
static void find_rows(column_task *task, gr_axes_place *at, size_t first, size_t count)
{
    const gr_axis_job *job = task->job;
    if (job->form == FOLDED_ROWS) {
        size_t row = task->sums.width * job->size, bytes = job->n * job->width * job->size;
        for (size_t i = 0; i < count; i++)
            task->rows[i] = task->runs[0].in + (first + i) * row;
        size_t last = (first + count - 1) * row;
        if (bytes - last < row) { /* padded with zeros, which change no sum */
            memset(task->buffer, 0, row);
            memcpy(task->buffer, task->runs[0].in + last, bytes - last);
            task->rows[count - 1] = task->buffer;
        }
        return;
    }
    if (job->form == DIRECT && job->axes->reduced.count == 1) {
        ptrdiff_t step = job->axes->reduced.dim[0].in;
        for (size_t i = 0; i < count; i++)
            task->rows[i] = task->runs[0].in + (ptrdiff_t)(first + i) * step;
        return;
    }
    for (size_t i = 0; i < count; i++) {
        if (job->form == PACKED_ROWS) {
            unsigned char *to = task->buffer + i * task->row_bytes;
            pack_row(task, at, to);
            task->rows[i] = to;
        } else {
            task->rows[i] = task->runs[0].in + at->in;
        }
        gr_axes_next(at);
    }
}

/* Adds up rows first to end of a unit. */
static void add_chunk(column_task *task, size_t first, size_t end)
{
    const gr_axis_job *job = task->job;
    const gr_axis_list *reduced = &job->axes->reduced;
    gr_axes_place at;
    gr_axes_go(&at, reduced, reduced->count, first);
    job->adder->start(job, &task->sums);
    for (size_t count; first < end && !gr_axis_is_interrupted(job); first += count) {
        count = gr_least(end - first, GR_LEAF_ROWS);
        find_rows(task, &at, first, count);
        gr_arithmetic before = gr_begin_plain();
        job->adder->add(job, &task->sums, task->rows, count);
        gr_end_plain(before);
    }
    gr_arithmetic before = gr_begin_plain();
    job->adder->end(job, &task->sums);
    gr_end_plain(before);
}

static void store_unit(column_task *task)
{
    const gr_axis_job *job = task->job;
    gr_arithmetic before = gr_begin_plain();
    if (job->folded > 1)
        job->adder->fold(job, &task->sums, job->width);
    for (size_t i = 0, first = 0; i < task->run_count; first += task->runs[i++].count)
        job->adder->store(job, &task->sums, first, &task->runs[i]);
    gr_end_plain(before);
}

/* The columns between the last cache-line boundary and the first column. A first strip that is so
 * much narrower keeps vectors of later strips within cache lines, if all rows are aligned alike. */
static size_t past_line(const gr_axis_job *job, const unsigned char *in)
{
    size_t bytes = (uintptr_t)in % CACHE_LINE;
    return bytes % job->size == 0 ? bytes / job->size : 0;
}

static void sum_strips(column_task *task)
{
    const gr_axis_job *job = task->job;
    const gr_axis_list *reduced = &job->axes->reduced;
    gr_axis_run strip = task->runs[0];
    size_t whole = strip_of(job), most = whole - past_line(job, strip.in);
    gr_axes_place at;
    gr_axes_go(&at, reduced, reduced->count, 0);
    find_rows(task, &at, 0, job->rows);
    for (size_t left = task->runs[0].count; left > 0; left -= strip.count, most = whole) {
        strip.count = gr_least(left, most);
        task->sums.width = strip.count;
        job->adder->start(job, &task->sums);
        job->adder->add(job, &task->sums, task->rows, job->rows);
        job->adder->end(job, &task->sums);
        job->adder->store(job, &task->sums, 0, &strip);
        for (size_t i = 0; i < job->rows; i++)
            task->rows[i] += strip.count * job->size;
        strip.in += strip.count * job->size;
        strip.out += (ptrdiff_t)strip.count * strip.out_step;
    }
}

/* Adds up and stores a unit of few rows. */
static void sum_unit(column_task *task)
{
    const gr_axis_job *job = task->job;
    if (gr_axis_is_interrupted(job))
        return;
    gr_arithmetic before = gr_begin_plain();
    task->sums.assumed = job->adder->assume && job->adder->assume(job, &task->sums);
    sum_strips(task);
    if (task->sums.assumed && !task->sums.right) {
        task->sums.assumed = false;
        sum_strips(task);
    }
    gr_end_plain(before);
}

static void columns_task(size_t number, void *context)
{
    gr_axis_job *job = context;
    column_task *task = new_task(job);
    if (!task)
        return;
    size_t first = number * job->each, end = gr_least(first + job->each, job->units);
    for (size_t unit = first; unit < end && !gr_interrupted(); unit++) {
        set_unit(task, unit);
        if (gr_interrupted())
            break;
        if (in_strips(job)) {
            sum_unit(task);
            continue;
        }
        add_chunk(task, 0, job->rows);
        if (!gr_interrupted())
            store_unit(task);
    }
    free(task);
}

static double *partial_planes(const gr_axis_job *job, size_t unit, size_t chunk)
{
    size_t planes = stride_of(job) * (size_t)job->adder->kept_planes;
    return (double *)job->partials + (unit * job->chunks + chunk) * planes;
}

static void chunk_task(size_t number, void *context)
{
    gr_axis_job *job = context;
    column_task *task = new_task(job);
    if (!task)
        return;
    size_t unit = number / job->chunks, chunk = number % job->chunks, first = chunk * job->chunk;
    set_unit(task, unit);
    if (!gr_interrupted()) {
        add_chunk(task, first, gr_least(first + job->chunk, job->rows));
        memcpy(partial_planes(job, unit, chunk), task->sums.planes,
               task->sums.stride * (size_t)job->adder->kept_planes * sizeof(double));
    }
    free(task);
}

static void merge_task(size_t unit, void *context)
{
    gr_axis_job *job = context;
    column_task *task = new_task(job);
    if (!task)
        return;
    set_unit(task, unit);
    if (!gr_interrupted()) {
        gr_arithmetic before = gr_begin_plain();
        job->adder->start(job, &task->sums);
        for (size_t i = 0; i < job->chunks; i++)
            job->adder->merge(job, &task->sums, partial_planes(job, unit, i));
        job->adder->end(job, &task->sums);
        gr_end_plain(before);
        store_unit(task);
    }
    free(task);
}

static bool run_chunks(gr_axis_job *job)
{
    size_t planes = stride_of(job) * (size_t)job->adder->kept_planes;
    job->partials = malloc(job->units * job->chunks * planes * sizeof(double));
    if (!job->partials)
        return false;
    gr_axis_run_tasks(job, job->units * job->chunks, chunk_task);
    if (!job->failed && !gr_interrupted())
        gr_axis_run_tasks(job, job->units, merge_task);
    free(job->partials);
    return !job->failed;
}

/* Makes the parts of complex elements a dimension of adjacent columns. */
static void split_parts(gr_axes *axes)
{
    if (axes->components == 1)
        return;
    size_t size = gr_load_size(axes->load);
    gr_axis parts = {2, (ptrdiff_t)size, 0, axes->part_step};
    gr_axes_push(&axes->kept, parts);
    gr_axes_merge(&axes->kept);
    axes->components = 1;
}

static void choose_form(gr_axis_job *job)
{
    const gr_axes *axes = job->axes;
    const gr_axis *inner = gr_axis_inner(&axes->kept), *row = gr_axis_inner(&axes->reduced);
    size_t sums = gr_axes_size(&axes->kept), outer = sums / inner->size;
    bool flat = gr_axis_is_plain(axes) && !job->factors && inner->in == (ptrdiff_t)job->size;
    size_t row_bytes = inner->size * job->size;
    job->folded = 1;
    job->rows = job->n;
    if (flat && inner->size >= FOLD_BELOW) {
        job->form = DIRECT;
        if (in_strips(job))
            job->tile = tile_of_strips(job, sums) / (job->rows * job->size);
        job->tiles = (inner->size - 1) / job->tile + 1;
        job->width = round_up((inner->size - 1) / job->tiles + 1);
        if (in_strips(job))
            job->width = (job->width + MOST_STRIP - 1) / MOST_STRIP * MOST_STRIP;
        job->tiles = (inner->size - 1) / job->width + 1;
        job->units = outer * job->tiles;
    } else if (flat && axes->reduced.count == 1 && row->in == (ptrdiff_t)row_bytes &&
               job->n * row_bytes >= FOLD_FROM_BYTES) {
        job->form = FOLDED_ROWS;
        job->width = inner->size;
        job->tiles = 1;
        job->folded = FOLDED / inner->size;
        job->rows = (job->n - 1) / job->folded + 1;
        job->units = outer;
    } else {
        job->form = PACKED_ROWS;
        job->width = gr_least(sums, PACKED);
        job->unit_sums = sums;
        job->units = (sums - 1) / job->width + 1;
    }
}

bool gr_axis_run_columns(gr_axis_job *job)
{
    job->size = gr_load_size(job->axes->load);
    split_parts(job->axes);
    choose_form(job);
    size_t row = job->width * job->folded * job->size, bytes = row * job->rows;
    job->each = bytes < GR_AXIS_TASK_BYTES ? GR_AXIS_TASK_BYTES / bytes : 1;
    job->fetches = gr_axes_size(&job->axes->kept) * job->n * job->size >= FETCHES_FROM_BYTES;
    job->chunks = 1;
    job->planes = job->adder->planes(job);
    if (job->units < FEW_UNITS && job->threads != 1) {
        size_t most = MOST_CHUNKS / job->units;
        job->chunk = GR_LEAF_ROWS;
        while (job->chunk * row < GR_AXIS_TASK_BYTES || (job->rows - 1) / job->chunk >= most)
            job->chunk *= 2;
        job->chunks = (job->rows - 1) / job->chunk + 1;
    }
    if (job->chunks > 1)
        return run_chunks(job);
    gr_axis_run_tasks(job, (job->units - 1) / job->each + 1, columns_task);
    return !job->failed;
}
