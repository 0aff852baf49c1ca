/* Splits an array into tasks, and adds up their sums. */
#include "exact/exact.h"
#include "shared/sizes.h"

#include "threads/pool.h"
#include "cpu/floating_point_mode.h"
#include "cpu/gather.h"
#include "exact/range_sum.h"

#include <stdalign.h>
#include <stdatomic.h>
#include <stdlib.h>

enum {
    /* Elements of a task; even, so that it starts with a real part. */
    LEAST_TASK = 1 << 13,
    MOST_TASK = 1 << 16,
    TASKS = 64, /* at most, as long as tasks do not exceed MOST_TASK */
    /* Below this, the thread pool costs more than it saves: some microseconds if its threads are
     * awake. */
    THREADS_FROM = 1 << 16,
    PLACES = 16, /* slots for the partial sums of threads */
    /* Bytes of the copies of elements with gaps, and their bytes if memory is short. */
    COPIED = 1 << 15,
    COPIED_AT_LEAST = 512
};

/* A slot for partial sums. There are several, so that threads do not wait for each other. */
typedef struct {
    alignas(64) atomic_bool taken;
    bool used; /* the sums are initialized */
    gr_bin_sums kept;
    gr_exact sums[2];
} place;

typedef struct {
    const unsigned char *data;
    const gr_axes *axes; /* NULL: the elements have no gaps */
    size_t n, task;
    gr_load load;
    size_t size; /* of an element, in bytes */
    int components;
    int power; /* the first elements are below 2^power in size */
    place *places;
} sum_job;

/* Whether anything has been added. */
static bool is_used(const gr_exact *acc)
{
    return acc->fill || acc->flags;
}

static void put_down(place *places, const gr_bin_sums *kept, gr_exact own[2], int components)
{
    static atomic_uint numbers;
    static _Thread_local unsigned number; /* from 1: selects the first slot it tries */
    if (!number)
        number = atomic_fetch_add_explicit(&numbers, 1, memory_order_relaxed) + 1;
    unsigned i = number % PLACES;
    while (atomic_exchange_explicit(&places[i].taken, true, memory_order_acquire))
        i = (i + 1) % PLACES;
    gr_exact *sums[2] = {&own[0], &own[components - 1]};
    if (!gr_bins_add(&places[i].kept, kept))
        gr_bins_deposit(kept, sums);
    bool used = is_used(sums[0]) || is_used(sums[1]);
    for (int c = 0; used && c < components; c++) {
        if (places[i].used)
            gr_exact_merge(&places[i].sums[c], &own[c]);
        else
            places[i].sums[c] = own[c];
    }
    places[i].used |= used;
    atomic_store_explicit(&places[i].taken, false, memory_order_release);
}

/* Copies n parts of elements from `first` on. */
static void copy(const sum_job *job, unsigned char *to, size_t first, size_t n)
{
    size_t parts = (size_t)job->components;
    gr_gather_row(to, job->axes, job->axes->in, NULL, first / parts, n / parts);
}

static void add_range(const sum_job *job, size_t first, size_t n, gr_bin_sums *kept,
                      gr_exact *const sums[2])
{
    if (!job->axes) {
        gr_add_range(job->load, job->power, job->data + first * job->size, n, kept, sums);
        return;
    }
    unsigned char few[COPIED_AT_LEAST], *buffer = malloc(COPIED);
    size_t room = (buffer ? COPIED : sizeof few) / job->size;
    for (size_t some; n > 0; first += some, n -= some) {
        some = gr_least(n, room);
        copy(job, buffer ? buffer : few, first, some);
        gr_add_range(job->load, job->power, buffer ? buffer : few, some, kept, sums);
    }
    free(buffer);
}

static void run_task(size_t task, void *context)
{
    sum_job *job = context;
    size_t first = task * job->task;
    gr_bin_sums kept = {.any = false};
    gr_exact own[2];
    gr_exact *sums[2] = {&own[0], &own[job->components - 1]};
    for (int c = 0; c < job->components; c++)
        gr_exact_init(&own[c]);
    add_range(job, first, gr_least(job->n - first, job->task), &kept, sums);
    put_down(job->places, &kept, own, job->components);
}

static void add_by_one(const sum_job *job, gr_exact *const sums[2])
{
    gr_bin_sums kept = {.any = false};
    add_range(job, 0, job->n, &kept, sums);
    gr_bins_deposit(&kept, sums);
}

/* The slots are allocated, as they are too large for the stacks of some threads. */
static void add_by_threads(sum_job *job, gr_exact *const sums[2], int threads)
{
    place *places = aligned_alloc(alignof(place), PLACES * sizeof *places);
    if (!places) {
        add_by_one(job, sums);
        return;
    }
    for (int i = 0; i < PLACES; i++) {
        atomic_init(&places[i].taken, false);
        places[i].used = places[i].kept.any = false;
    }
    job->places = places;
    job->task = LEAST_TASK;
    while (job->task < MOST_TASK && job->task * TASKS < job->n)
        job->task *= 2;
    gr_parallel(threads, (job->n - 1) / job->task + 1, run_task, job);
    gr_bin_sums kept = {.any = false};
    for (int i = 0; i < PLACES; i++) {
        gr_bins_keep(&kept, &places[i].kept, sums);
        for (int c = 0; places[i].used && c < job->components; c++)
            gr_exact_merge(sums[c], &places[i].sums[c]);
    }
    gr_bins_deposit(&kept, sums);
    free(places);
}

static void add(sum_job *job, gr_exact *acc, int threads)
{
    gr_exact *sums[2] = {acc, acc + job->components - 1};
    for (int i = 0; i < job->components; i++)
        acc[i].count += job->n / (size_t)job->components;
    /* Kernels clear this thread's inexact flag. If it was set before, it is set again at the end.
     */
    bool raised = job->n >= GR_FLAGS_FROM && job->load != GR_LOAD_f16 && gr_inexact();
    if (job->n < THREADS_FROM || (threads == 1 && !job->axes))
        add_by_one(job, sums);
    else
        add_by_threads(job, sums, threads);
    if (raised)
        gr_raise_inexact();
}

void gr_exact_add_array(gr_exact *acc, const void *data, size_t n, gr_load load, int components,
                        int threads)
{
    sum_job job = {.data = data,
                   .n = n * (size_t)components,
                   .load = load,
                   .size = gr_load_size(load),
                   .components = components};
    job.power = gr_first_power(load, data, job.n);
    add(&job, acc, threads);
}

void gr_exact_sum_array(const void *data, size_t n, gr_load load, int components, int threads,
                        gr_exact *out)
{
    for (int i = 0; i < components; i++)
        gr_exact_init(&out[i]);
    gr_exact_add_array(out, data, n, load, components, threads);
}

void gr_exact_sum_elements(gr_axes *axes, int threads, gr_exact *out)
{
    unsigned char start[COPIED_AT_LEAST];
    const gr_axis *inner = &axes->reduced.dim[0];
    gr_axes_simplify(axes);
    sum_job job = {.axes = axes,
                   .n = gr_axes_size(&axes->reduced) * (size_t)axes->components,
                   .load = axes->load,
                   .size = gr_load_size(axes->load),
                   .components = axes->components};
    ptrdiff_t next = (ptrdiff_t)(job.size * (size_t)job.components);
    if (axes->reduced.count == 1 && inner->in == next && !axes->swapped) {
        gr_exact_sum_array(axes->in, inner->size, job.load, job.components, threads, out);
        return;
    }
    for (int i = 0; i < axes->components; i++)
        gr_exact_init(&out[i]);
    size_t some = gr_least(job.n, sizeof start / job.size);
    copy(&job, start, 0, some);
    job.power = gr_first_power(job.load, start, some);
    add(&job, out, threads);
}
