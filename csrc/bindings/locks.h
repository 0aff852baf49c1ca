/* Locks for free-threaded Python. In other builds of Python the GIL does their work, and they
 * compile to nothing.
 *
 * A gr_lock guards static data; no Python code may run while it is held. Py_BEGIN_CRITICAL_SECTION
 * guards an object's data: like the GIL, it lets other threads in while Python code runs. */
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#ifdef Py_GIL_DISABLED
typedef PyMutex gr_lock;

static inline void gr_take_lock(gr_lock *lock)
{
    PyMutex_Lock(lock);
}

static inline void gr_drop_lock(gr_lock *lock)
{
    PyMutex_Unlock(lock);
}
#else
typedef char gr_lock;

static inline void gr_take_lock(gr_lock *lock)
{
    (void)lock;
}

static inline void gr_drop_lock(gr_lock *lock)
{
    (void)lock;
}
#endif

/* The stable ABI of Python 3.11 does not have them. */
#ifndef Py_BEGIN_CRITICAL_SECTION
#define Py_BEGIN_CRITICAL_SECTION(object)                                                          \
    {                                                                                              \
        (void)(object);
#define Py_END_CRITICAL_SECTION() }
#endif
