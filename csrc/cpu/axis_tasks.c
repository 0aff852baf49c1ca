#include "cpu/axis_tasks.h"

#include "cpu/gather.h"
#include "threads/interrupts.h"
#include "threads/pool.h"

enum { THREADS_FROM_BYTES = 1 << 19 }; /* as in cpu_sum.c */

bool gr_axis_is_plain(const gr_axes *axes)
{
    return (!axes->mask || axes->term == GR_TERM_PRODUCT) && !axes->swapped;
}

void gr_axis_run_tasks(gr_axis_job *job, size_t tasks, void (*run)(size_t task, void *context))
{
    size_t bytes = job->size * job->n * gr_axes_size(&job->axes->kept);
    gr_parallel(bytes < THREADS_FROM_BYTES ? 1 : job->threads, tasks, run, job);
}

bool gr_axis_is_interrupted(const gr_axis_job *job)
{
    return gr_is_interrupted(job->watch) || gr_ask_for_interrupts();
}

void gr_axis_fail(gr_axis_job *job)
{
    __atomic_store_n(&job->failed, true, __ATOMIC_RELAXED);
}

/* Describes at most `most` sums at equal distances, from sum `skip` of `place` on. */
static gr_axis_run run_at(const gr_axis_job *job, const gr_axes_place *place, size_t skip,
                          size_t most)
{
    const gr_axes *axes = job->axes;
    const gr_axis *inner = gr_axis_inner(&axes->kept);
    ptrdiff_t at = (ptrdiff_t)skip;
    return (gr_axis_run){
        .in = axes->in + place->in + at * inner->in,
        .mask = axes->mask ? axes->mask + place->mask + at * inner->mask : NULL,
        .out = axes->out + place->out + at * inner->out,
        .in_step = inner->in,
        .mask_step = inner->mask,
        .out_step = inner->out,
        .count = gr_least(inner->size - skip, most),
    };
}

void gr_axis_for_runs(const gr_axis_job *job, size_t first, size_t n,
                      void (*each)(const gr_axis_job *job, gr_axis_run *run, void *context),
                      void *context)
{
    const gr_axis_list *kept = &job->axes->kept;
    size_t inner = gr_axis_inner(kept)->size, skip = first % inner;
    gr_axes_place place;
    gr_axes_go(&place, kept, kept->count - (kept->count > 0), first / inner);
    while (n > 0 && !gr_interrupted()) {
        gr_axis_run run = run_at(job, &place, skip, n);
        n -= run.count;
        skip = 0;
        each(job, &run, context);
        gr_axes_next(&place);
    }
}
