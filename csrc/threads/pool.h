/* A small pool of threads that runs independent tasks. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Calls run(task, context) for each task in 0..tasks-1, in any order, on up to `threads` threads
 * including the caller (gr_thread_count() of processors.h if threads <= 0). Returns when all calls
 * have returned.
 *
 * If possible, the same thread runs adjacent tasks, and runs them again in the next region with the
 * same numbers of tasks and threads: their data may still be in its processor's cache.
 *
 * The pool runs one region at a time. If it is busy, the caller runs all its tasks on its own
 * thread, without waiting. So do nested calls and calls with 2^31 tasks or more. Hence there are no
 * deadlocks. All tasks run, even if fewer threads than requested take part.
 *
 * A child process starts with an empty pool of its own. */
void gr_parallel(int threads, size_t tasks, void (*run)(size_t task, void *context), void *context);

/* The same with pools of their own, for tasks that wait for a device more than they compute. These
 * run while a region of sums uses the first pool. There is a pool per device, `number` from 0 to
 * GR_POOLS_BESIDE - 1, so that devices do not wait for each other. */
enum { GR_POOLS_BESIDE = 8 };
void gr_parallel_beside(int number, int threads, size_t tasks,
                        void (*run)(size_t task, void *context), void *context);

#ifdef __cplusplus
}
#endif
