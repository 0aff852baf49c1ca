/* The tasks of one parallel region, split into contiguous shares, one per thread. A thread begins
 * with the share of its own number and then helps with other shares. So in the next region with the
 * same numbers of tasks and threads, the same processor runs the same tasks, whose data may still
 * be in its cache. */
#pragma once

#include <stdalign.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum { GR_CACHE_LINE = 64 };

typedef struct {
    void (*run)(size_t task, void *context);
    void *context;
    size_t each;     /* tasks in a share */
    int more;        /* the first `more` shares have one task more */
    int shares;      /* the caller's, and one for each worker that may help */
    uint32_t number; /* of the region; see gr_numbered() */
} gr_region;

/* How many tasks of a share have been begun. In a cache line of its own, because other threads that
 * look for tasks often take this line from the share's owner. */
typedef struct {
    alignas(GR_CACHE_LINE) atomic_uint_least64_t begun; /* see gr_numbered() */
} gr_share;

/* A count that belongs to one region: the region's number in the high half, the count in the low
 * half. A share's count with another region's number is 0, so no thread has to reset it. */
static inline uint64_t gr_numbered(uint32_t number, size_t count)
{
    return (uint64_t)number << 32 | count;
}

static inline uint32_t gr_number_in(uint64_t numbered)
{
    return (uint32_t)(numbered >> 32);
}

static inline uint32_t gr_count_in(uint64_t numbered)
{
    return (uint32_t)numbered;
}

/* Runs tasks until all of the region's tasks have been begun: first those of share `number`, then
 * those of other shares except each share's last task, and finally these last tasks. A share's
 * owner may be about to begin its last task, and has the data in its cache. After an interruption
 * (interrupts.h), drops the tasks that have not been begun. */
void gr_draw_tasks(const gr_region *region, gr_share *shares, int number);
