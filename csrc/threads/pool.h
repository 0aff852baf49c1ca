/* A small pool of threads for whatever layer has independent tasks to run. */
#ifndef GPUREDUCE_POOL_H
#define GPUREDUCE_POOL_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Calls run(task, context) for each task in 0..tasks-1, in any order, on up to `threads` threads
 * (gr_thread_count() of processors.h if threads <= 0), of which the caller is one; returns when all
 * have returned.
 *
 * Tasks next to each other are run by the same thread as far as that can be, and in the next region
 * of as many tasks and threads by the same one again: what they read may be in its processor's
 * cache.
 *
 * The pool serves one region at a time. A caller that finds it busy runs its tasks on its own
 * thread, at once; so does a task that itself calls gr_parallel, and who has 2^31 tasks or more.
 * There is nothing to wait for and no deadlock. Fewer threads than asked for may come; the tasks
 * are all run even so.
 *
 * A child made by fork() starts with an empty pool of its own. */
void gr_parallel(int threads, size_t tasks, void (*run)(size_t task, void *context), void *context);

/* The same by a pool of its own, for tasks that wait for a device more than they compute: so they
 * go on while a region of sums has the other one. */
void gr_parallel_beside(int threads, size_t tasks, void (*run)(size_t task, void *context),
                        void *context);

#ifdef __cplusplus
}
#endif

#endif
