/* Finishes results in batches. Approximate numbers with error bounds (finish_text.h) nearly always
 * prove how a result is rounded. For the other results, the terms are added up again in wide
 * integers.
 *
 * The groups are divided into tasks whose elements and sums fit the caches, since they are read
 * once for each sum. */
#include "exact/finish.h"

#include "cpu/floating_point_mode.h"
#include "cpu/gather.h"
#include "cpu/store.h"
#include "exact/axis_exact.h"
#include "exact/finish_integers.h"
#include "exact/format.h"
#include "exact/proven.h"
#include "exact/proven_kernels.h"
#include "shared/sizes.h"
#include "threads/interrupts.h"
#include "threads/pool.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    BATCH = GR_FINISH_BATCH,
    TASK_BYTES = 1 << 20, /* of elements as float64 */
    LEAST_ROWS = 64,      /* groups of a task */
    LEAST_COLUMNS = 512,
    MOST_GROUPS = 2048,
    WHOLE_BYTES = 1 << 22,       /* larger tasks run one at a time, each on all threads */
    THREADS_FROM_BYTES = 1 << 19 /* as in cpu_sum.c */
};

/* Keeps the arrays of these functions from sharing one stack frame: stacks may have 32 KB. */
#define NOINLINE __attribute__((noinline))

/* How groups are divided into tasks: by ranges of one kept dimension. */
typedef struct {
    gr_finish_job *job;
    int dim;                     /* -1: there is one group */
    size_t each, per_dim, inner; /* entries of `dim` per task; tasks along it; groups per entry */
    size_t tasks, groups, sums;  /* `groups`: of a task, at most */
    int threads;                 /* of a task */
    bool failed;
} division;

/* --- one task ----------------------------------------------------------------------------------
 */

typedef struct {
    size_t first, groups, at; /* `at`: the first entry of the dimension */
    size_t stride;
    gr_axes axes, room;
    double planes[]; /* four for each sum */
} task_range;

static void push(gr_axis_list *list, size_t size, ptrdiff_t in, ptrdiff_t other, ptrdiff_t out)
{
    gr_axes_push(list, (gr_axis){size, in, other, out});
}

/* Sets range->axes to the groups of a task, whose sums go to `planes`. */
static void describe(const division *of, task_range *range, const gr_finish_sum *sum,
                     double *planes)
{
    const gr_finish_job *job = of->job;
    gr_axes *axes = &range->axes;
    *axes = (gr_axes){.in = sum->in,
                      .mask = sum->other,
                      .out = (unsigned char *)planes,
                      .load = sum->load,
                      .term = sum->term,
                      .components = 1,
                      .part_step = (ptrdiff_t)(range->stride * sizeof(double))};
    size_t outer = of->dim < 0 ? 0 : range->first / of->inner / job->size[of->dim];
    ptrdiff_t out = (ptrdiff_t)(range->groups * sizeof(double));
    for (int i = of->dim; i >= 0; i--) { /* where the task begins */
        size_t at = i == of->dim ? range->at : job->reduced[i] ? 0 : outer % job->size[i];
        outer = i == of->dim || job->reduced[i] ? outer : outer / job->size[i];
        axes->in += (ptrdiff_t)at * sum->in_step[i];
        axes->mask += axes->mask ? (ptrdiff_t)at * sum->other_step[i] : 0;
    }
    for (int i = 0; i < job->dims; i++) {
        size_t size = i == of->dim ? range->groups / of->inner : job->size[i];
        if (job->reduced[i]) {
            push(&axes->reduced, size, sum->in_step[i], sum->other_step[i], 0);
        } else if (i >= of->dim) {
            out /= (ptrdiff_t)size;
            push(&axes->kept, size, sum->in_step[i], sum->other_step[i], out);
        }
    }
}

/* Adds up the terms of one group of the task in an accumulator of products. */
static NOINLINE void add_again(task_range *range, size_t group, gr_products *to)
{
    enum { SOME = 256 };
    unsigned char x[SOME * sizeof(double)], y[SOME * sizeof(double)];
    const gr_axes *axes = &range->axes, *factors = gr_factors_of(axes, &range->room);
    gr_format format = gr_format_of(axes->load);
    uint64_t one = (((uint64_t)1 << (format.exponent - 1)) - 1) << format.fraction;
    size_t n = gr_axes_size(&axes->reduced), size = gr_load_size(axes->load);
    gr_axes_place at;
    gr_axes_go(&at, &axes->kept, axes->kept.count, group);
    const unsigned char *other = axes->mask ? axes->mask + at.mask : NULL;
    gr_products_init(to);
    for (size_t first = 0; first < n && !gr_ask_for_interrupts(); first += SOME) {
        size_t some = gr_least(n - first, SOME);
        gr_gather_row(x, axes, axes->in + at.in, factors ? NULL : other, first, some);
        if (factors)
            gr_gather_row(y, factors, other, NULL, first, some);
        for (size_t i = 0; i < some; i++) {
            uint64_t bits = gr_element_bits(x + i * size, size), factor = bits;
            if (factors)
                factor = gr_element_bits(y + i * size, size);
            else if (axes->term != GR_TERM_SQUARE)
                factor = one;
            bool flips =
                axes->term == GR_TERM_MAGNITUDE && bits >> (format.fraction + format.exponent) & 1;
            gr_products_add(to, bits, factor, flips ? -1 : 1, format);
        }
    }
}

typedef struct {
    const division *of;
    task_range *range;
} task_groups;

/* Adds up one group again in accumulators, and rounds its result from these integers. */
static bool finish_again(void *context, size_t group, double n, double mean, unsigned char *out)
{
    const division *of = ((task_groups *)context)->of;
    task_range *range = ((task_groups *)context)->range;
    const gr_finish_job *job = of->job;
    size_t count = (size_t)job->how.first_count;
    gr_finish_sums *sums = malloc(sizeof *sums);
    if (!sums)
        return false;
    sums->n = n;
    sums->mean = mean;
    for (size_t i = 0; i < of->sums; i++) {
        describe(of, range, &job->sums[i], range->planes);
        add_again(range, group, i < count ? &sums->first[i] : &sums->second[i - count]);
    }
    if (!gr_interrupted())
        gr_finish_in_integers(&job->how, sums, out);
    free(sums);
    return true;
}

static void take_planes(const double **planes, const task_range *range, size_t first_sum, int count)
{
    for (int i = 0; i < count; i++)
        planes[i] = range->planes + (first_sum + (size_t)i) * 4 * range->stride;
}

static void advance(const double **planes, int count)
{
    for (int i = 0; i < count; i++)
        planes[i] += BATCH;
}

/* Copies n numbers and pads the batch with the first one; with `is_one`, repeats the first. */
static void fill(double to[BATCH], const double *from, size_t n, bool is_one)
{
    n = is_one ? 1 : n;
    memcpy(to, from, n * sizeof *to);
    for (size_t i = n; i < BATCH; i++)
        to[i] = from[0];
}

NOINLINE bool gr_finish_groups(const gr_finish_how *how, gr_finish_planes from, bool one_n,
                               size_t groups, unsigned char *out, gr_finish_unproven *unproven,
                               void *context)
{
    const gr_proven_kernels *kernels = gr_proven_best();
    gr_format format = gr_format_of(how->target);
    double n[BATCH], mean[BATCH], value[4 * BATCH], rounded[BATCH], margin[BATCH];
    gr_finish_planes planes = from;
    size_t size = gr_load_size(how->target);
    planes.n = from.n ? n : NULL;
    planes.mean = mean;
    for (size_t first = 0, some; first < groups && !gr_interrupted(); first += some) {
        some = gr_least(groups - first, BATCH);
        if (from.n)
            fill(n, one_n ? from.n : from.n + first, some, one_n);
        if (from.mean)
            fill(mean, from.mean + first, some, false);
        kernels->finish(how, &planes, some, value);
        bool all = kernels->round_sums(value, BATCH, some, 1, format.fraction, format.unit, rounded,
                                       margin);
        gr_store_floats(out, (ptrdiff_t)size, rounded, some, how->target);
        for (size_t i = 0; i < some && !all; i++) {
            if (margin[i] > 0)
                continue;
            if (gr_proven_round(value[i], value[BATCH + i], 0, value[3 * BATCH + i],
                                format.fraction, format.unit, &rounded[i]))
                gr_store_float(out + i * size, rounded[i], how->target);
            else if (!unproven(context, first + i, from.n ? n[i] : 0, from.mean ? mean[i] : 0,
                               out + i * size))
                return false;
        }
        out += some * size;
        advance(planes.first, how->first_count);
        advance(planes.second, how->second_count);
    }
    return true;
}

static bool finish_task(division *of, task_range *range)
{
    const gr_finish_job *job = of->job;
    gr_finish_planes planes = {.n = job->one_n ? job->n : job->n + range->first,
                               .mean = job->mean ? job->mean + range->first : NULL,
                               .stride = range->stride};
    task_groups task = {of, range};
    take_planes(planes.first, range, 0, job->how.first_count);
    take_planes(planes.second, range, (size_t)job->how.first_count, job->how.second_count);
    return gr_finish_groups(&job->how, planes, job->one_n, range->groups,
                            job->out + range->first * gr_load_size(job->how.target), finish_again,
                            &task);
}

static void run_task(size_t task, void *context)
{
    division *of = context;
    const gr_finish_job *job = of->job;
    size_t stride = of->groups + BATCH, planes = of->sums * 4 * stride * sizeof(double);
    task_range *range = malloc(sizeof *range + planes);
    bool done = range != NULL;
    if (done) {
        range->at = range->first = 0;
        range->groups = 1;
        range->stride = stride;
        if (of->groups < BATCH) /* vectors also read the lanes without a group */
            memset(range->planes, 0, planes);
    }
    if (done && of->dim >= 0) {
        size_t size = job->size[of->dim], part = task % of->per_dim;
        range->at = part * of->each;
        range->first = (task / of->per_dim * size + range->at) * of->inner;
        range->groups = gr_least(of->each, size - range->at) * of->inner;
    }
    for (size_t i = 0; done && i < of->sums && !gr_interrupted(); i++) {
        describe(of, range, &job->sums[i], range->planes + i * 4 * stride);
        done = gr_exact_unrounded_axes(&range->axes, &range->room, of->threads);
    }
    if (done && !gr_interrupted()) {
        gr_arithmetic before = gr_begin_plain();
        done = finish_task(of, range);
        gr_end_plain(before);
    }
    if (!done)
        __atomic_store_n(&of->failed, true, __ATOMIC_RELAXED);
    free(range);
}

/* --- all tasks ---------------------------------------------------------------------------------
 */

/* The step of the fastest dimension among the reduced or the kept ones; 0 if there is none. */
static ptrdiff_t inner_step(const gr_finish_job *job, bool reduced)
{
    for (int i = job->dims - 1; i >= 0; i--)
        if (job->reduced[i] == reduced && job->size[i] > 1)
            return gr_axis_distance(job->sums[0].in_step[i]);
    return 0;
}

static void divide(division *of, size_t group_bytes)
{
    const gr_finish_job *job = of->job;
    bool in_columns = inner_step(job, false) < inner_step(job, true);
    size_t least = in_columns ? LEAST_COLUMNS : LEAST_ROWS, most = TASK_BYTES / group_bytes;
    most = most < least ? least : gr_least(most, MOST_GROUPS);
    of->dim = job->dims - 1;
    while (of->dim >= 0 && job->reduced[of->dim])
        of->dim--;
    of->inner = of->tasks = of->per_dim = of->each = 1;
    of->groups = 1;
    if (of->dim < 0)
        return;
    for (int i = of->dim - 1; i >= 0; i--)
        if (!job->reduced[i] && of->inner * job->size[of->dim] <= most) {
            of->inner *= job->size[of->dim];
            of->dim = i;
        }
    size_t size = job->size[of->dim];
    of->each = gr_least(most / of->inner + (most < of->inner), size);
    of->per_dim = (size - 1) / of->each + 1;
    of->groups = of->each * of->inner;
    of->tasks = of->per_dim;
    for (int i = 0; i < of->dim; i++)
        of->tasks *= job->reduced[i] ? 1 : job->size[i];
}

bool gr_finish_axes(gr_finish_job *job)
{
    division of = {.job = job, .threads = 1};
    size_t group_bytes = sizeof(double);
    for (int i = 0; i < job->dims; i++)
        group_bytes *= job->reduced[i] ? job->size[i] : 1;
    divide(&of, group_bytes);
    of.sums = (size_t)(job->how.first_count + job->how.second_count);
    bool is_whole = of.tasks == 1 || of.groups * group_bytes >= WHOLE_BYTES;
    of.threads = is_whole ? 0 : 1;
    if (!is_whole)
        gr_parallel(of.tasks * of.groups * group_bytes < THREADS_FROM_BYTES ? 1 : 0, of.tasks,
                    run_task, &of);
    for (size_t i = 0; is_whole && i < of.tasks && !of.failed && !gr_interrupted(); i++)
        run_task(i, &of);
    return !of.failed;
}

static bool mark_unknown(void *context, size_t group, double n, double mean, unsigned char *out)
{
    (void)n;
    (void)mean;
    (void)out;
    ((unsigned char *)context)[group] = 1;
    return true;
}

size_t gr_finish_sums_of(const gr_finish_how *how, gr_finish_planes planes, size_t groups,
                         unsigned char *out, unsigned char *unknown)
{
    size_t count = 0;
    gr_arithmetic before = gr_begin_plain();
    (void)gr_finish_groups(how, planes, false, groups, out, mark_unknown, unknown);
    gr_end_plain(before);
    for (size_t i = 0; i < groups; i++)
        count += unknown[i];
    return count;
}
