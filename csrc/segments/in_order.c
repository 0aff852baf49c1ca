/* Segments that lie one after another: offsets define them, or their ids are sorted. A task takes
 * adjacent segments, with about as many elements as the other tasks. It adds up a group of them at
 * a time, in cells that stay in the processor's cache. Unproven sums are added up again in
 * accumulators. Long segments are summed by the code for sums along axes. */
#include "segments/segment_job.h"
#include "shared/sizes.h"

#include "cpu/axis_sum.h"
#include "exact/proven.h"
#include "threads/pool.h"

#include <stdlib.h>
#include <string.h>

enum {
    TASK = 1 << 16,       /* numbers and sums of a task, about */
    CHECKED = 1 << 16,    /* ids that a task checks */
    GROUP_CELLS = 4096,   /* of a group; a wide segment has more */
    LONG = 512,           /* numbers from which on the code of axes is faster, ... */
    LONG_NARROW = 192,    /* ... floats narrower than float64, ... */
    LONG_ROWS = 2048,     /* ... and of several columns */
    SHARED_LONG = 1 << 20 /* numbers from which on threads share a segment */
};

/* Neighbouring segments and their rows. */
typedef struct {
    size_t first, end, row, end_row;
} group;

typedef struct {
    gr_host_segments *job;
    size_t tasks;
    group *shared; /* long segments, which all threads sum together */
    size_t shares, room;
} division;

/* The least numbers of a long segment. */
static size_t long_from(const gr_host_segments *job)
{
    bool narrow = job->adds_floats && job->request->values.load != GR_LOAD_f64;
    return job->columns > 1 ? LONG_ROWS : narrow ? LONG_NARROW : LONG;
}

/* --- which rows ---------------------------------------------------------------------------- */

static int64_t id_of(const gr_host_segments *job, gr_segment_block *block, size_t row)
{
    block->rows = 1;
    gr_read_ids(job, block, row, NULL);
    return block->ids[0];
}

/* Whether a row belongs to an earlier segment than this one. */
static bool is_before(const gr_host_segments *job, gr_segment_block *block, size_t row,
                      size_t segment)
{
    const int64_t *offsets = job->request->ids.offsets;
    return offsets ? row < (size_t)offsets[segment] : id_of(job, block, row) < (int64_t)segment;
}

/* Finds the first row of this segment or of a later one. The row lies from `low` to `high`, and
 * probably about `step` rows after `low`. */
static size_t first_row(const gr_host_segments *job, gr_segment_block *block, size_t segment,
                        size_t low, size_t step, size_t high)
{
    if (job->request->ids.offsets)
        return (size_t)job->request->ids.offsets[segment];
    for (; step < high - low && is_before(job, block, low + step, segment); step *= 2)
        low += step;
    high = gr_least(high, low + step);
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (is_before(job, block, middle, segment))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The first segment of a task: segments are divided by their rows and sums. Offsets or ids count
 * the rows before a segment, or the segments before a row: each value is at least the one before,
 * so the value plus its index grows, and a task begins where that reaches `start`. */
static size_t first_of(const division *all, gr_segment_block *block, size_t task)
{
    const gr_host_segments *job = all->job;
    const int64_t *offsets = job->request->ids.offsets;
    size_t segments = job->request->sums.segments, rows = job->request->values.rows;
    size_t start = (rows + segments) / all->tasks * task;
    size_t low = 0, high = offsets ? segments : rows < start ? rows : start;
    if (task == all->tasks)
        return segments;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        size_t value = (size_t)(offsets ? offsets[middle] : id_of(job, block, middle));
        if (value + middle < start)
            low = middle + 1;
        else
            high = middle;
    }
    size_t first = offsets ? low : start - low;
    return first < segments ? first : segments;
}

/* The first long segment of a group; the group's end if there is none. With ids, it finds no short
 * segments, and all that are more than twice as long as the limit. */
static size_t first_long(const gr_host_segments *job, gr_segment_block *block, const group *of)
{
    const int64_t *offsets = job->request->ids.offsets;
    size_t many = long_from(job) / job->columns + 1;
    for (size_t k = of->first; offsets && k < of->end; k++)
        if ((size_t)(offsets[k + 1] - offsets[k]) >= many)
            return k;
    for (size_t row = of->row; !offsets && row + many < of->end_row; row += many) {
        size_t k = (size_t)id_of(job, block, row);
        bool is_there = k >= of->first && k < of->end; /* another thread may change ids */
        if (is_there && is_before(job, block, row + many, k + 1))
            return k;
    }
    return of->end;
}

/* The group of up to n segments that begins with this segment and row. A long segment is a group of
 * its own. `end` and `end_row` are those of the task. */
static group group_from(const gr_host_segments *job, gr_segment_block *block, group task, size_t n)
{
    group found = task;
    found.end = task.first + gr_least(n, task.end - task.first);
    found.end_row = first_row(job, block, found.end, task.row, n, task.end_row);
    size_t k = first_long(job, block, &found);
    if (k < found.end) {
        found.end = k > task.first ? k : k + 1;
        found.end_row = first_row(job, block, found.end, task.row, n, found.end_row);
    }
    return found;
}

/* Records whether ids decrease. One task checks CHECKED ids and the one after them. */
static void check_task(size_t task, void *context)
{
    gr_host_segments *job = context;
    size_t first = task * CHECKED, end = gr_least(job->request->values.rows, first + CHECKED + 1);
    gr_segment_block *block = malloc(sizeof *block);
    for (size_t row = first; row + 1 < end; row += block->rows - 1) {
        if (!block || gr_is_interrupted(job->watch) || gr_ask_for_interrupts() ||
            !__atomic_load_n(&job->in_order, __ATOMIC_RELAXED))
            break;
        block->rows = gr_least(GR_SEGMENT_BLOCK, end - row);
        gr_read_ids(job, block, row, NULL);
        if (gr_ids_fall(block))
            __atomic_store_n(&job->in_order, false, __ATOMIC_RELAXED);
    }
    if (!block)
        __atomic_store_n(&job->failed, true, __ATOMIC_RELAXED);
    free(block);
}

void gr_look_for_order(gr_host_segments *job)
{
    size_t rows = job->request->values.rows;
    gr_segment_block *block = malloc(sizeof *block);
    job->failed = !block;
    job->in_order = true;
    if (!job->request->ids.data || rows == 0 || !block) {
        free(block);
        return;
    }
    block->rows = gr_least(GR_SEGMENT_BLOCK, rows);
    gr_read_ids(job, block, 0, NULL);
    job->in_order = !gr_ids_fall(block);
    if (job->in_order)
        gr_parallel(job->threads, (rows + CHECKED - 1) / CHECKED, check_task, job);
    size_t segments = job->request->sums.segments;
    if (job->in_order && id_of(job, block, 0) < 0 && job->request->ids.skips)
        job->in_order = false;
    else if (job->in_order && id_of(job, block, 0) < 0)
        job->bad_row = 0;
    else if (job->in_order && id_of(job, block, rows - 1) >= (int64_t)segments)
        job->bad_row = first_row(job, block, segments, 0, rows, rows);
    free(block);
}

/* --- sums ---------------------------------------------------------------------------------- */

/* Computes the results of one segment, whose parts are adjacent columns. */
static bool finish_long(const gr_host_segments *job, const gr_axes *like, const group *one,
                        int threads)
{
    const gr_segment_values *values = &job->request->values;
    const gr_finish_how *how = &job->request->sums.finish->how;
    size_t parts = (size_t)how->parts, results = job->columns / parts;
    size_t stride = results + GR_FINISH_BATCH;
    size_t planes = 4 * (size_t)(how->first_count + how->second_count);
    double *sums = calloc(planes * stride, sizeof *sums), *to = sums;
    bool done = sums;
    for (size_t i = 0; done && i < planes / 4; i++, to += 4 * stride) {
        gr_axes axes = *like;
        axes.in += (ptrdiff_t)(i % parts) * values->column_step;
        axes.out = (unsigned char *)to;
        axes.part_step = (ptrdiff_t)(stride * sizeof *to);
        axes.term = i < parts ? GR_TERM_ELEMENT : GR_TERM_SQUARE;
        axes.kept.count = 0;
        gr_axes_push(&axes.kept,
                     (gr_axis){results, values->column_step * (ptrdiff_t)parts, 0, sizeof *to});
        done = gr_exact_unrounded_axes(&axes, NULL, threads);
    }
    if (done)
        gr_store_results(job, sums, stride, one->first * results, results);
    free(sums);
    return done;
}

static bool sum_long(const gr_host_segments *job, const group *one, int threads)
{
    const gr_segment_values *values = &job->request->values;
    const gr_segment_sums *sums = &job->request->sums;
    gr_axes axes = {
        .in = values->data + (ptrdiff_t)one->row * values->row_step,
        .out = sums->data + (ptrdiff_t)one->first * sums->row_step,
        .load = values->load,
        .components = values->parts,
        .part_step = (ptrdiff_t)gr_load_size(sums->target),
        .swapped = values->swapped,
    };
    gr_axes_push(&axes.kept, (gr_axis){values->columns, values->column_step, 0, sums->column_step});
    gr_axes_push(&axes.reduced, (gr_axis){one->end_row - one->row, values->row_step, 0, 0});
    if (sums->finish)
        return finish_long(job, &axes, one, threads);
    if (sums->is_float)
        return gr_exact_sum_axes(&axes, sums->target, &job->request->initial, threads);
    return gr_cpu_sum_axes(&axes, GR_ACC_u64, sums->target, &job->request->initial, threads);
}

/* Adds up a segment in accumulators, column by column. */
static void sum_again(gr_host_segments *own, gr_segment_block *block, const group *one)
{
    own->first_segment = one->first;
    for (size_t column = 0; column < own->columns; column++) {
        size_t part = column % (size_t)own->request->values.parts;
        block->first_column = column - part;
        gr_exact sum;
        gr_exact_init(&sum);
        for (size_t row = one->row; row < one->end_row; row += block->rows) {
            block->columns = (size_t)own->request->values.parts;
            block->rows = GR_SEGMENT_BLOCK / block->columns;
            block->rows = gr_least(block->rows, one->end_row - row);
            gr_read_numbers(own, block, row);
            for (size_t i = 0; i < block->rows; i++)
                gr_exact_add_f64(&sum, ((const double *)block->numbers)[i * block->columns + part]);
        }
        gr_store_accumulator(own, &sum, column);
    }
}

/* Adds up a group in cells of the first kind that can hold its numbers. */
static void sum_group(gr_host_segments *own, gr_segment_block *block, const group *some)
{
    const gr_pair_window wide = own->window;
    const size_t sizes[] = {[GR_CELL_WORD] = sizeof(uint64_t),
                            [GR_CELL_SHORT] = sizeof(uint64_t),
                            [GR_CELL_PAIR] = 2 * sizeof(uint64_t),
                            [GR_CELL_LEVELS] = GR_LEVELS * sizeof(int64_t),
                            [GR_CELL_PROVEN] = sizeof(gr_proven3) * (1 + gr_has_squares(own))};
    gr_cell_kind first_kind = own->kind;
    bool is_short = own->kind == GR_CELL_PAIR && own->narrow.most >= 0;
    own->first_segment = some->first;
    own->segments = some->end - some->first;
    own->most_outliers = (some->end_row - some->row) * own->columns / 16;
    own->kind = is_short ? GR_CELL_SHORT : own->kind;
    for (;; own->kind = own->kind == GR_CELL_SHORT ? GR_CELL_PAIR : GR_CELL_PROVEN) {
        own->window = own->kind == GR_CELL_SHORT ? own->narrow : wide;
        own->cell_bytes = sizes[own->kind];
        own->outliers->count = 0;
        own->too_wide = false;
        memset(own->cells, 0, (own->segments + 1) * own->columns * own->cell_bytes);
        gr_add_rows(own, block, some->row, some->end_row, 0);
        if (!own->too_wide)
            break;
    }
    if (!own->failed)
        gr_join_outliers(own);
    if (!own->failed)
        gr_finish_cells(own, 0, own->segments * own->columns);
    group one = *some;
    for (; one.first < some->end && own->kind == GR_CELL_PROVEN && !own->failed; one.first++) {
        one.end = one.first + 1;
        if (!own->unproven[one.first])
            continue;
        one.row = first_row(own, block, one.first, some->row, 1, some->end_row);
        one.end_row = first_row(own, block, one.end, one.row, 1, some->end_row);
        sum_again(own, block, &one);
    }
    own->kind = first_kind;
    own->window = wide;
}

/* Adds up a long segment, or leaves it to all threads. The list has room for all such segments that
 * do not overlap. They overlap only if another thread changes ids, and then no sum is right. */
static bool take_long(division *all, const group *one)
{
    const gr_host_segments *job = all->job;
    if ((one->end_row - one->row) * job->columns < SHARED_LONG || job->threads == 1)
        return sum_long(job, one, 1);
    size_t place = __atomic_fetch_add(&all->shares, 1, __ATOMIC_RELAXED);
    if (place < all->room)
        all->shared[place] = *one;
    return true;
}

static void sum_task(size_t task, void *context)
{
    division *all = context;
    gr_host_segments *job = all->job, own = *job;
    gr_outliers outliers = {NULL, 0, 0};
    size_t most = GROUP_CELLS / job->columns + 1, n = most;
    gr_segment_block *block = malloc(sizeof *block);
    own.copies = 1;
    own.outliers = &outliers;
    own.cells = aligned_alloc(64, (most + 1) * job->columns * 64);
    bool failed = !own.cells || !block;
    group left = {0, 0, 0, job->request->values.rows}; /* the rest of the task */
    if (!failed) {
        left.first = first_of(all, block, task);
        left.end = first_of(all, block, task + 1);
        left.row = first_row(job, block, left.first, 0, left.end_row, left.end_row);
        left.end_row = first_row(job, block, left.end, left.row, TASK, left.end_row);
    }
    while (left.first < left.end && !failed && !gr_is_interrupted(job->watch) &&
           !gr_ask_for_interrupts()) {
        group some = group_from(job, block, left, n);
        n = gr_least(4 * (some.end - some.first), most);
        if (some.end - some.first == 1 &&
            (some.end_row - some.row) * job->columns >= long_from(job)) {
            failed = !take_long(all, &some);
        } else {
            sum_group(&own, block, &some);
            failed = own.failed;
        }
        left.first = some.end;
        left.row = some.end_row;
    }
    if (failed)
        __atomic_store_n(&job->failed, true, __ATOMIC_RELAXED);
    free(outliers.list);
    free(own.cells);
    free(block);
}

void gr_sum_in_order(gr_host_segments *job)
{
    size_t segments = job->request->sums.segments, rows = job->request->values.rows;
    if (job->too_wide)
        job->kind = GR_CELL_PROVEN;
    job->too_wide = false;
    division all = {.job = job, .tasks = (rows + segments) / (TASK / job->columns + 1) + 1};
    all.room = gr_least(rows * job->columns / SHARED_LONG, segments);
    all.shared = malloc((all.room + 1) * sizeof *all.shared);
    job->failed = !all.shared;
    if (!job->failed)
        gr_parallel(job->threads, all.tasks, sum_task, &all);
    for (size_t i = 0; i < gr_least(all.shares, all.room) && !job->failed && !gr_interrupted(); i++)
        job->failed = !sum_long(job, &all.shared[i], job->threads);
    free(all.shared);
}
