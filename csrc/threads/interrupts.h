/* Interrupts long calls. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A watch. In regions (pool.h) that the watching thread opens, that thread calls `check` between
 * its own tasks and while it waits for helpers, at most every 50 ms. Once `check` returns nonzero,
 * tasks that no thread has begun are skipped, in this region and in all others that the thread
 * opens until it stops watching. The results of these regions are then invalid. */
typedef struct {
    int (*check)(void *context);
    void *context;
    int interrupted; /* read by other threads, too: see gr_is_interrupted() */
    double asked_ms;
} gr_interrupts;

/* Starts a watch, which lasts until the next call. NULL starts none. */
void gr_watch_interrupts(gr_interrupts *watch);

/* Returns this thread's watch; NULL if there is none. */
const gr_interrupts *gr_current_watch(void);

/* Whether a call was interrupted. Any thread may call this while the call lasts. */
static inline bool gr_is_interrupted(const gr_interrupts *watch)
{
    return watch != NULL && __atomic_load_n(&watch->interrupted, __ATOMIC_RELAXED);
}

/* Whether any thread of this process runs `check`: `check` may run a signal handler, which may wait
 * for any other thread. */
bool gr_is_checking(void);

/* Whether this thread's call was interrupted. */
bool gr_interrupted(void);

/* Like gr_interrupted(), but first calls `check` if that is due. For tasks that take long. */
bool gr_ask_for_interrupts(void);

#ifdef __cplusplus
}
#endif
