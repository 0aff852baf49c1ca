/* Long calls into C without the GIL. Ctrl-C interrupts them all the same. */
#ifndef GPUREDUCE_GIL_H
#define GPUREDUCE_GIL_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "threads/interrupts.h"

typedef struct {
    PyThreadState *saved;
    gr_interrupts watch;
} gr_without_gil;

/* Called once, when the module is loaded: 0, or -1 with an exception. */
int gr_remember_main_thread(void);

/* For modules that keep state per thread. A signal handler may make calls of its own, so
 * `put_aside` saves the state before the handler runs (NULL: no memory, the handler runs later) and
 * `take_up` restores it afterwards. */
void gr_save_around_handlers(void *(*put_aside)(void), void (*take_up)(void *saved));

/* Between the two no Python may be touched. On the main thread, signal handlers run meanwhile. */
void gr_drop_gil(gr_without_gil *call);

/* -1 with an exception set if the call was interrupted: its results are worthless then. */
int gr_take_gil(gr_without_gil *call);

#endif
