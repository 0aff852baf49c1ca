#include "interrupts.h"

#include "../clock.h"

#include <stddef.h>

/* Who watches on this thread; a pool's workers never do. */
static _Thread_local gr_interrupts *interrupts;

void gr_watch_interrupts(gr_interrupts *watch)
{
    interrupts = watch;
    if (!watch)
        return;
    watch->asked_ms = gr_now_ms();
    watch->interrupted = false;
}

bool gr_interrupted(void)
{
    return interrupts && interrupts->interrupted;
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
    /* A signal handler may make calls of its own, which are not this watch's to break off. */
    interrupts = NULL;
    watch->interrupted = watch->check(watch->context) != 0;
    interrupts = watch;
    return watch->interrupted;
}
