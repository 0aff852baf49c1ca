#include "gil.h"

/* Python runs its signal handlers where it is asked to, with the GIL. */
static int check_signals(void *context)
{
    gr_without_gil *call = context;
    PyEval_RestoreThread(call->saved);
    int raised = PyErr_CheckSignals();
    call->saved = PyEval_SaveThread();
    return raised;
}

void gr_drop_gil(gr_without_gil *call)
{
    call->watch.check = check_signals;
    call->watch.context = call;
    gr_watch_interrupts(&call->watch);
    call->saved = PyEval_SaveThread();
}

int gr_take_gil(gr_without_gil *call)
{
    PyEval_RestoreThread(call->saved);
    gr_watch_interrupts(NULL);
    return call->watch.interrupted ? -1 : 0;
}
