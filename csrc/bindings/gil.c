#include "bindings/gil.h"

#include "threads/forks.h"
#include "threads/processors.h"

#include <pthread.h>

/* Python runs signal handlers on the main thread only, so only that thread takes the GIL to check
 * for signals. While the interpreter shuts down, taking the GIL ends any other thread: it would end
 * in the middle of a region whose helpers still read its stack. */
static unsigned long main_thread; /* its ident in Python's threading */

static void become_main_thread(void)
{
    main_thread = (unsigned long)pthread_self();
}

/* In a child process, the thread that called fork() is the main thread. */
GR_AROUND_FORK(NULL, NULL, become_main_thread)

int gr_remember_main_thread(void)
{
    PyObject *threading = PyImport_ImportModule("threading");
    PyObject *thread = threading ? PyObject_CallMethod(threading, "main_thread", NULL) : NULL;
    PyObject *ident = thread ? PyObject_GetAttrString(thread, "ident") : NULL;
    if (ident)
        main_thread = PyLong_AsUnsignedLong(ident);
    Py_XDECREF(ident);
    Py_XDECREF(thread);
    Py_XDECREF(threading);
    return PyErr_Occurred() ? -1 : 0;
}

static void *(*save_state)(void);
static void (*restore_state)(void *saved);

void gr_save_around_handlers(void *(*put_aside)(void), void (*take_up)(void *saved))
{
    save_state = put_aside;
    restore_state = take_up;
}

static int check_signals(void *context)
{
    gr_without_gil *call = context;
    void *saved = save_state ? save_state() : NULL;
    if (save_state && !saved)
        return 0;
    PyEval_RestoreThread(call->saved);
    int raised = PyErr_CheckSignals();
    call->saved = PyEval_SaveThread();
    if (saved)
        restore_state(saved);
    return raised;
}

void gr_drop_gil(gr_without_gil *call)
{
    gr_read_environment();
    call->watch = (gr_interrupts){.check = check_signals, .context = call};
    bool is_main = (unsigned long)pthread_self() == main_thread;
    gr_watch_interrupts(is_main ? &call->watch : NULL);
    call->saved = PyEval_SaveThread();
}

int gr_take_gil(gr_without_gil *call)
{
    PyEval_RestoreThread(call->saved);
    gr_watch_interrupts(NULL);
    return call->watch.interrupted ? -1 : 0;
}
