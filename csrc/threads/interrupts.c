#include "threads/interrupts.h"

#include "threads/clock.h"
#include "threads/forks.h"

#include <stdatomic.h>

/* The watch of this thread. Workers of a pool never have one. */
static _Thread_local gr_interrupts *interrupts;

/* The number of checks that are running, in all threads and in this thread. */
static atomic_int checks;
static _Thread_local int own_checks;

/* A child process has only the thread that called fork(). */
static void count_own_checks(void)
{
    atomic_store_explicit(&checks, own_checks, memory_order_relaxed);
}

GR_AROUND_FORK(NULL, NULL, count_own_checks)

bool gr_is_checking(void)
{
    return atomic_load_explicit(&checks, memory_order_relaxed) > 0;
}

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
    /* A Python signal handler may itself call this library. The outer call's check for signals must
     * not cancel that call. */
    interrupts = NULL;
    own_checks++;
    atomic_fetch_add_explicit(&checks, 1, memory_order_relaxed);
    int interrupted = watch->check(watch->context) != 0;
    atomic_fetch_sub_explicit(&checks, 1, memory_order_relaxed);
    own_checks--;
    interrupts = watch;
    __atomic_store_n(&watch->interrupted, interrupted, __ATOMIC_RELAXED);
    return interrupted;
}
