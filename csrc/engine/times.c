/* The events of timed sums. Waiting for an event and reading its time takes longer than a small
 * sum, so it is done at the first access to the time, which most callers never make. */
#include "engine/times.h"

#include "threads/forks.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct gr_times {
    gr_times *next;
    int device;
    unsigned process;               /* the number of forks between the first process and this one */
    cudaEvent_t events[GR_MOMENTS]; /* NULL: never needed so far */
    unsigned recorded;              /* a bit per moment of the last piece */
    gr_milliseconds before;         /* of the pieces before the last one */
};

enum { MOST_IDLE = 64, MANY_IN_USE = 1024 };

GR_FILE_LOCK
static gr_times *idle;
static unsigned idle_count, in_use, process;

/* CUDA's events are of no use in a child process, not even to be destroyed. */
static void forget_events(void)
{
    idle = NULL;
    idle_count = in_use = 0;
    process++;
    pthread_mutex_unlock(&lock);
}

GR_AROUND_FORK(take_lock, give_lock_back, forget_events)

gr_times *gr_take_times(int device)
{
    gr_times *found = NULL;
    pthread_mutex_lock(&lock);
    for (gr_times **at = &idle; *at; at = &(*at)->next)
        if ((*at)->device == device) {
            found = *at;
            *at = found->next;
            idle_count--;
            break;
        }
    if (!found)
        found = calloc(1, sizeof *found);
    if (found) {
        in_use++;
        found->device = device;
        found->process = process;
        found->recorded = 0;
        found->before = (gr_milliseconds){0, 0, 0};
    }
    pthread_mutex_unlock(&lock);
    return found;
}

static void destroy(gr_times *times)
{
    for (int i = 0; i < GR_MOMENTS; i++)
        if (times->events[i])
            (void)cudaEventDestroy(times->events[i]);
    free(times);
}

void gr_drop_times(gr_times *times, int ended_well)
{
    if (!times)
        return;
    if (times->process != process) {
        free(times);
        return;
    }
    pthread_mutex_lock(&lock);
    in_use--;
    int is_kept = ended_well && idle_count < MOST_IDLE;
    if (is_kept) {
        times->next = idle;
        idle = times;
        idle_count++;
    }
    pthread_mutex_unlock(&lock);
    if (!is_kept)
        destroy(times);
}

int gr_many_times_in_use(void)
{
    pthread_mutex_lock(&lock);
    int many = in_use > MANY_IN_USE;
    pthread_mutex_unlock(&lock);
    return many;
}

void gr_release_times(void)
{
    pthread_mutex_lock(&lock);
    gr_times *list = idle;
    idle = NULL;
    idle_count = 0;
    pthread_mutex_unlock(&lock);
    while (list) {
        gr_times *next = list->next;
        destroy(list);
        list = next;
    }
}

/* A signal handler may fork in the middle of a sum. The child continues with new events, and
 * without the times that its parent began. */
static void go_on_in_child(gr_times *times)
{
    memset(times->events, 0, sizeof times->events);
    times->recorded = 0;
    times->process = process;
    pthread_mutex_lock(&lock);
    in_use++;
    pthread_mutex_unlock(&lock);
}

gr_status gr_record_time(gr_times *times, gr_moment moment, cudaStream_t stream, gr_error *error)
{
    error->status = GR_OK;
    if (!times)
        return GR_OK;
    if (times->process != process)
        go_on_in_child(times);
    if (!times->events[moment])
        TRY(cudaEventCreate(&times->events[moment]));
    TRY(cudaEventRecord(times->events[moment], stream));
    times->recorded |= 1U << moment;
done:
    return error->status;
}

/* Adds the time from one moment to the next, if both are recorded. */
static gr_status add_elapsed(const gr_times *times, gr_moment first, double *total, gr_error *error)
{
    float ms = 0;
    unsigned both = 3U << first;
    error->status = GR_OK;
    if ((times->recorded & both) != both)
        return GR_OK;
    TRY(cudaEventSynchronize(times->events[first + 1]));
    TRY(cudaEventElapsedTime(&ms, times->events[first], times->events[first + 1]));
    *total += ms;
done:
    return error->status;
}

gr_status gr_read_times(const gr_times *times, gr_milliseconds *ms, gr_error *error)
{
    *ms = times->before;
    if (times->process != process)
        return gr_fail(error, GR_CUDA_ERROR,
                       "this sum was timed by CUDA events of the parent process, which a child "
                       "process cannot read: look at its kernel_ms before the fork");
    if (add_elapsed(times, GR_AT_START, &ms->h2d, error) == GR_OK &&
        add_elapsed(times, GR_AT_COPIED, &ms->kernel, error) == GR_OK)
        add_elapsed(times, GR_AT_SUMMED, &ms->d2h, error);
    return error->status;
}

gr_status gr_begin_piece(gr_times *times, gr_error *error)
{
    gr_milliseconds ms;
    if (!times || !times->recorded)
        return error->status = GR_OK;
    if (gr_read_times(times, &ms, error) == GR_OK) {
        times->before = ms;
        times->recorded = 0;
    }
    return error->status;
}
