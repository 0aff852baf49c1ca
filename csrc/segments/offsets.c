/* Segments that lie one after another, as offsets name them. A task takes neighbouring segments
 * with about as many elements as the other tasks. It adds up a group of them at a time: in cells of
 * its own, or one by one if they are short. Sums that are not proven are added up again in
 * accumulators. Long segments are added up by the code of sums along axes. */
#include "segments/segment_job.h"

#include "cpu/axis_sum.h"
#include "cpu/floating_point_mode.h"
#include "cpu/store.h"
#include "exact/format.h"
#include "exact/proven.h"
#include "threads/pool.h"

#include <stdlib.h>
#include <string.h>

enum {
    TASK = 1 << 16,       /* numbers and sums of a task, about */
    GROUP_CELLS = 512,    /* of a group; a wide segment has more */
    LONG = 512,           /* numbers from which on the code of axes is faster, ... */
    LONG_NARROW = 192,    /* ... floats narrower than float64, ... */
    FEW = 48,             /* numbers in a segment, on average, for which no cells are faster */
    LONG_ROWS = 2048,     /* ... and of several columns */
    SHARED_LONG = 1 << 20 /* from which on threads share a segment */
};

typedef struct {
    gr_segment_job *job;
    size_t tasks;
    bool shares; /* there are segments that threads share */
} division;

static size_t segments_of(const gr_segment_job *job)
{
    return job->request->sums.segments;
}

static size_t numbers_of(const gr_segment_job *job, size_t segment)
{
    const int64_t *offsets = job->request->ids.offsets;
    return (size_t)(offsets[segment + 1] - offsets[segment]) * job->columns;
}

static bool is_long(const gr_segment_job *job, size_t segment)
{
    bool narrow = job->adds_floats && job->request->values.load != GR_LOAD_f64;
    int least = job->columns > 1 ? LONG_ROWS : narrow ? LONG_NARROW : LONG;
    return numbers_of(job, segment) >= (size_t)least;
}

/* Whether the segments first to end - 1 are so short that they are added up one by one. */
static bool has_few_numbers(const gr_segment_job *job, size_t first, size_t end)
{
    const int64_t *offsets = job->request->ids.offsets;
    return job->columns == 1 && job->kind != GR_CELL_WORD &&
           (size_t)(offsets[end] - offsets[first]) < FEW * (end - first);
}

static bool sum_long(const gr_segment_job *job, size_t segment, int threads)
{
    const gr_segment_values *values = &job->request->values;
    const gr_segment_sums *sums = &job->request->sums;
    const int64_t *offsets = job->request->ids.offsets;
    gr_axes axes = {
        .in = values->data + (ptrdiff_t)offsets[segment] * values->row_step,
        .out = sums->data + (ptrdiff_t)segment * sums->row_step,
        .load = values->load,
        .components = values->parts,
        .part_step = (ptrdiff_t)gr_load_size(sums->target),
        .swapped = values->swapped,
    };
    gr_axes_push(&axes.kept, (gr_axis){values->columns, values->column_step, 0, sums->column_step});
    size_t rows = (size_t)(offsets[segment + 1] - offsets[segment]);
    gr_axes_push(&axes.reduced, (gr_axis){rows, values->row_step, 0, 0});
    if (sums->is_float)
        return gr_exact_sum_axes(&axes, sums->target, &job->request->floats, threads);
    gr_cpu_initial initial = {.integer = job->request->integer};
    return gr_cpu_sum_axes(&axes, GR_ACC_u64, sums->target, &initial, threads);
}

/* Adds up a segment in accumulators, column by column. */
static void sum_again(gr_segment_job *own, gr_segment_block *block, size_t segment)
{
    const int64_t *offsets = own->request->ids.offsets;
    size_t end = (size_t)offsets[segment + 1];
    own->first_segment = segment;
    for (size_t column = 0; column < own->columns; column++) {
        size_t part = column % (size_t)own->request->values.parts;
        block->first_column = column - part;
        gr_exact sum;
        gr_exact_init(&sum);
        for (size_t row = (size_t)offsets[segment]; row < end; row += block->rows) {
            block->columns = (size_t)own->request->values.parts;
            block->rows = GR_SEGMENT_BLOCK / block->columns;
            block->rows = block->rows < end - row ? block->rows : end - row;
            gr_read_numbers(own, block, row);
            for (size_t i = 0; i < block->rows; i++)
                gr_exact_add_f64(&sum, ((const double *)block->numbers)[i * block->columns + part]);
        }
        gr_store_accumulator(own, &sum, column);
    }
}

/* Adds up the segments first to end - 1 in cells. */
static void sum_group(gr_segment_job *own, gr_segment_block *block, size_t first, size_t end)
{
    const int64_t *offsets = own->request->ids.offsets;
    size_t row = (size_t)offsets[first], end_row = (size_t)offsets[end];
    gr_cell_kind kind = own->kind;
    own->first_segment = first;
    own->segments = end - first;
    own->outliers->count = 0;
    own->most_outliers = (end_row - row) * own->columns / 16;
    own->too_wide = false;
    for (int again = 0; again < 2; again++) {
        memset(own->cells, 0, (end - first + 1) * own->columns * own->cell_bytes);
        gr_add_rows(own, block, row, end_row, 0);
        if (kind != GR_CELL_PAIR || !own->too_wide)
            break;
        kind = own->kind = GR_CELL_PROVEN; /* for this group */
        own->cell_bytes = sizeof(gr_proven3);
        own->too_wide = false;
        own->outliers->count = 0;
    }
    if (own->failed)
        return;
    gr_join_outliers(own);
    gr_finish_cells(own, 0, (end - first) * own->columns);
    for (size_t i = first; i < end && own->kind == GR_CELL_PROVEN; i++)
        if (own->unproven[i])
            sum_again(own, block, i);
}

/* Rows that are read block by block. */
typedef struct {
    gr_segment_job *job;
    gr_segment_block *block;
    size_t row, at, end_row; /* of the block; in the block; of all */
} row_reader;

/* Adds up the next floats, of one column. */
static gr_proven3 sum_next(row_reader *from, size_t count)
{
    gr_segment_block *block = from->block;
    gr_proven3 sum = {0, 0, 0, 0};
    bool is_first = true;
    while (count > 0) {
        if (from->at == block->rows) {
            size_t left = from->end_row - (from->row += from->at);
            from->at = 0;
            block->rows = left < GR_SEGMENT_BLOCK ? left : GR_SEGMENT_BLOCK;
            gr_read_numbers(from->job, block, from->row);
        }
        size_t n = count < block->rows - from->at ? count : block->rows - from->at, i = 0;
        const double *x = (const double *)block->numbers + from->at;
        if (is_first)
            sum.sum += x[i++];
        is_first = false;
        for (; i < n; i++)
            gr_proven3_add(&sum, x[i]);
        count -= n;
        from->at += n;
    }
    return sum;
}

/* Adds up the segments first to end - 1 of single floats, one after another, without cells. */
static void sum_each(gr_segment_job *own, gr_segment_block *block, size_t first, size_t end)
{
    const int64_t *offsets = own->request->ids.offsets;
    const gr_exact_initial *floats = &own->request->floats;
    const gr_load target = own->request->sums.target;
    const gr_format format = gr_format_of(target);
    row_reader from = {own, block, (size_t)offsets[first], 0, (size_t)offsets[end]};
    size_t again = 0;
    gr_arithmetic before = gr_begin_plain();
    own->first_segment = first;
    block->rows = 0;
    block->columns = 1;
    block->first_column = 0;
    for (size_t k = first; k < end; k++) {
        size_t count = numbers_of(own, k);
        double additions = (double)count + floats->count[0], rounded;
        gr_proven3 sum = sum_next(&from, count);
        for (int i = 0; i < floats->count[0]; i++)
            gr_proven3_add(&sum, floats->terms[0][i]);
        bool is_exact = sum.rest == 0 && sum.bound == 0 && sum.sum - sum.sum == 0;
        rounded = sum.sum;
        if (is_exact ||
            gr_proven3_finish(&sum, additions, format.fraction, format.unit, &rounded)) {
            uint64_t bits = 0;
            gr_store_float((unsigned char *)&bits, rounded, target);
            gr_store_sum(own, k - first, bits);
        } else {
            own->unproven[k] = 1;
            again++;
        }
    }
    gr_end_plain(before);
    for (size_t k = first; k < end && again > 0; k++)
        if (own->unproven[k]) {
            sum_again(own, block, k);
            again--;
        }
}

/* The first segment of a task: segments are divided by their elements and sums. */
static size_t first_of(const division *all, size_t task)
{
    const int64_t *offsets = all->job->request->ids.offsets;
    size_t segments = segments_of(all->job), low = 0, high = segments;
    size_t whole = (size_t)offsets[segments] + segments;
    size_t start = whole / all->tasks * task;
    if (task == all->tasks)
        return segments;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if ((size_t)offsets[middle] + middle < start)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The end of the group that begins with this segment. */
static size_t end_of_group(const gr_segment_job *job, size_t first, size_t end)
{
    size_t most = GROUP_CELLS / job->columns, k = first + 1;
    while (k < end && k - first < most && !is_long(job, k))
        k++;
    return k;
}

static void sum_task(size_t task, void *context)
{
    division *all = context;
    gr_segment_job *job = all->job, own = *job;
    gr_outliers outliers = {NULL, 0, 0};
    size_t cells = (job->columns < GROUP_CELLS ? GROUP_CELLS : job->columns) + job->columns;
    own.copies = 1;
    own.outliers = &outliers;
    own.cells = malloc(cells * sizeof(gr_proven3));
    gr_segment_block *block = malloc(sizeof *block);
    bool failed = !own.cells || !block;
    size_t end = first_of(all, task + 1);
    for (size_t k = first_of(all, task), next; k < end && !failed; k = next) {
        next = k + 1;
        if (gr_is_interrupted(job->watch) || gr_ask_for_interrupts())
            break;
        if (is_long(job, k)) {
            if (numbers_of(job, k) < SHARED_LONG || job->threads == 1)
                failed = !sum_long(job, k, 1);
            else
                __atomic_store_n(&all->shares, true, __ATOMIC_RELAXED);
            continue;
        }
        next = end_of_group(job, k, end);
        if (has_few_numbers(job, k, next)) {
            sum_each(&own, block, k, next);
            continue;
        }
        own.kind = job->kind;
        own.cell_bytes = job->cell_bytes;
        sum_group(&own, block, k, next);
        failed = own.failed;
    }
    if (failed)
        __atomic_store_n(&job->failed, true, __ATOMIC_RELAXED);
    free(outliers.list);
    free(own.cells);
    free(block);
}

void gr_sum_by_offsets(gr_segment_job *job)
{
    size_t segments = segments_of(job), rows = job->request->values.rows;
    if (job->too_wide)
        job->kind = GR_CELL_PROVEN;
    job->cell_bytes = job->kind == GR_CELL_WORD   ? sizeof(uint64_t)
                      : job->kind == GR_CELL_PAIR ? 2 * sizeof(uint64_t)
                                                  : sizeof(gr_proven3);
    job->too_wide = false;
    division all = {job, (rows + segments) / (TASK / job->columns + 1) + 1, false};
    gr_parallel(job->threads, all.tasks, sum_task, &all);
    for (size_t k = 0; k < segments && all.shares && !job->failed && !gr_interrupted(); k++)
        if (numbers_of(job, k) >= SHARED_LONG && is_long(job, k))
            job->failed = !sum_long(job, k, job->threads);
}
