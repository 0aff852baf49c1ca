/* The type Elapsed: the kernel time of a sum on a card, read at the first access. */
#include "bindings/device/functions.h"
#include "bindings/device/run.h"
#include "bindings/locks.h"

#include <stdbool.h>

typedef struct {
    PyObject_HEAD gr_times *times; /* NULL once they are read */
    gr_milliseconds ms;
    int readers; /* threads that read `times` without the GIL */
    bool is_read, failed;
} elapsed_object;

static PyTypeObject *elapsed_type;

/* Reads the times once. They are read without the GIL: a host function that the caller has put on
 * the stream may wait for it. The last of several readers gives the events back. */
static int read_once(elapsed_object *self)
{
    gr_error error;
    gr_milliseconds ms;
    if (self->is_read)
        return 0;
    self->readers++;
    Py_BEGIN_ALLOW_THREADS;
    gr_read_times(self->times, &ms, &error);
    Py_END_ALLOW_THREADS;
    self->readers--;
    if (error.status == GR_OK && !self->is_read) {
        self->ms = ms;
        self->is_read = true;
    }
    if (self->is_read && self->readers == 0) {
        gr_drop_times(self->times, !self->failed);
        self->times = NULL;
    }
    if (!self->is_read) {
        self->failed = true;
        gr_raise(&error);
    }
    return self->is_read ? 0 : -1;
}

static PyObject *elapsed_read(PyObject *object, PyObject *Py_UNUSED(none))
{
    elapsed_object *self = (elapsed_object *)object;
    int read;
    Py_BEGIN_CRITICAL_SECTION(object);
    read = read_once(self);
    Py_END_CRITICAL_SECTION();
    return read < 0 ? NULL : Py_BuildValue("dd", self->ms.kernel, self->ms.d2h);
}

static void elapsed_dealloc(PyObject *object)
{
    elapsed_object *self = (elapsed_object *)object;
    gr_drop_times(self->times, !self->failed);
    gr_free_object(object);
}

static PyMethodDef methods[] = {
    {"read", elapsed_read, METH_NOARGS,
     "read()\n--\n\nMilliseconds of the launches, and of the copy of their result."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_dealloc, (void *)elapsed_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_doc, "The kernel time of a sum, read when it is looked at."},
    {0, NULL},
};

GR_TYPE(gr_make_elapsed_type, elapsed_type, "Elapsed", elapsed_object, GR_MADE_BY_C)

PyObject *gr_elapsed_of(gr_times *times)
{
    PyObject *made = PyType_GenericAlloc(elapsed_type, 0);
    if (!made) {
        gr_drop_times(times, 1);
        return NULL;
    }
    elapsed_object *self = (elapsed_object *)made;
    self->times = times;
    if (gr_many_times_in_use() && read_once(self) < 0)
        Py_CLEAR(made);
    return made;
}
