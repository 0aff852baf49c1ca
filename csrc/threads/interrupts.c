#include "threads/interrupts.h"

#include "threads/clock.h"

/* The watch of this thread; a pool's workers never have one. */
static _Thread_local gr_interrupts *interrupts;

void gr_watch_interrupts(gr_interrupts *watch)
{
    interrupts = watch;
    if (!watch)
        return;
    watch->asked_ms = gr_now_ms();
    watch->interrupted = false;
}

const gr_interrupts *gr_current_watch(void)
{
    return interrupts;
}

bool gr_interrupted(void)
{
    return gr_is_interrupted(interrupts);
}

bool gr_ask_for_interrupts(void)
{
    static const double EVERY_MS = 50;
    gr_interrupts *watch = interrupts;
    if (!watch || watch->interrupted)
        return watch != NULL;
    double now = gr_now_ms();
    if (now - watch->asked_ms < EVERY_MS)
        return false;
    watch->asked_ms = now;
    /* A signal handler may make calls of its own, which this watch must not interrupt. */
    interrupts = NULL;
    int interrupted = watch->check(watch->context) != 0;
    interrupts = watch;
    __atomic_store_n(&watch->interrupted, interrupted, __ATOMIC_RELAXED);
    return interrupted;
}
