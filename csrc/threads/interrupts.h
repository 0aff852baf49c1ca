/* How a long call is broken off. */
#ifndef GPUREDUCE_INTERRUPTS_H
#define GPUREDUCE_INTERRUPTS_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Regions that the watching thread opens (pool.h) ask `check` between its own tasks, every 50 ms at
 * most; once that returns nonzero, the tasks that nobody has begun are left out, of this region and
 * of all that this thread opens until it stops watching. What the tasks were to compute is then
 * worthless. */
typedef struct {
    int (*check)(void *context);
    void *context;
    bool interrupted;
    double asked_ms;
} gr_interrupts;

/* Until it is called again with NULL, or with another one. */
void gr_watch_interrupts(gr_interrupts *watch);

/* Whether what this thread is at was broken off. */
bool gr_interrupted(void);

/* The same, after a look whether it is to be: for a task that takes long. */
bool gr_ask_for_interrupts(void);

#ifdef __cplusplus
}
#endif

#endif
