/* Long C calls without the GIL. Ctrl-C still interrupts them. */
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "threads/interrupts.h"

/* Sums of at most this many bytes keep the GIL: to hand it over takes longer than to add up. */
enum { GR_KEEPS_GIL_BYTES = 1 << 16 };

typedef struct {
    PyThreadState *saved;
    gr_interrupts watch;
} gr_without_gil;

/* Called once, when the module is loaded. Returns 0, or -1 with an exception set. */
int gr_remember_main_thread(void);

/* For modules that keep state per thread. A signal handler may call the module, so `put_aside`
 * saves the state before the handler runs, and `take_up` restores it afterwards. If `put_aside`
 * returns NULL (no memory), the handler runs later. */
void gr_save_around_handlers(void *(*put_aside)(void), void (*take_up)(void *saved));

/* No Python API may be used between gr_drop_gil() and gr_take_gil(). On the main thread, signal
 * handlers run in between. */
void gr_drop_gil(gr_without_gil *call);

/* Returns 0, or -1 with an exception set if the call was interrupted. The call's results are then
 * invalid. */
int gr_take_gil(gr_without_gil *call);
