#include "cpu/bools.h"

#include "threads/pool.h"

#include <stdatomic.h>

enum { TASK_BYTES = 1 << 17 };

typedef struct {
    const unsigned char *data;
    size_t n;
    atomic_uint bits; /* of all bytes */
} bools_job;

/* The compiler vectorizes this loop. */
static unsigned all_bits(const unsigned char *data, size_t n)
{
    unsigned char bits = 0;
    for (size_t i = 0; i < n; i++)
        bits |= data[i];
    return bits;
}

static void run_task(size_t task, void *context)
{
    bools_job *job = context;
    size_t first = task * TASK_BYTES, left = job->n - first;
    unsigned bits = all_bits(job->data + first, left < TASK_BYTES ? left : TASK_BYTES);
    atomic_fetch_or_explicit(&job->bits, bits, memory_order_relaxed);
}

bool gr_cpu_are_bools(const void *data, size_t n)
{
    if (n <= TASK_BYTES)
        return all_bits(data, n) <= 1;
    bools_job job = {.data = data, .n = n};
    gr_parallel(0, (n + TASK_BYTES - 1) / TASK_BYTES, run_task, &job);
    return atomic_load(&job.bits) <= 1;
}
