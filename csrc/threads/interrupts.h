/* How a long call is interrupted. */
#ifndef GPUREDUCE_INTERRUPTS_H
#define GPUREDUCE_INTERRUPTS_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Regions that the watching thread opens (pool.h) call `check` between tasks of its own and while
 * it waits for its helpers, every 50 ms at most. Once `check` returns nonzero, tasks that no thread
 * has begun are left out, of this region and of all that this thread opens until it stops watching.
 * The results of those tasks are then worthless. */
typedef struct {
    int (*check)(void *context);
    void *context;
    int interrupted; /* read by other threads, too: see gr_is_interrupted() */
    double asked_ms;
} gr_interrupts;

/* Until it is called again with NULL, or with another one. */
void gr_watch_interrupts(gr_interrupts *watch);

/* What this thread watches; NULL: nothing. */
const gr_interrupts *gr_current_watch(void);

/* Whether a call was interrupted; from any thread, for as long as the call lasts. */
static inline bool gr_is_interrupted(const gr_interrupts *watch)
{
    return watch != NULL && __atomic_load_n(&watch->interrupted, __ATOMIC_RELAXED);
}

/* Whether a thread of this process runs `check`, and so perhaps a signal handler, which may wait
 * for any other thread. */
bool gr_is_checking(void);

/* Whether this thread's call was interrupted. */
bool gr_interrupted(void);

/* The same, after a check if one is due. For tasks that take long. */
bool gr_ask_for_interrupts(void);

#ifdef __cplusplus
}
#endif

#endif
