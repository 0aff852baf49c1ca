/* Sums of several arrays, which may lie on several GPUs. All launches are put on their streams
 * before any result is waited for, by one thread and without Python code in between. */
#include "bindings/device/functions.h"

#include "backend/backend.h"
#include "bindings/device/gpu_job.h"
#include "bindings/device/run.h"
#include "bindings/device/views.h"
#include "bindings/gil.h"

#include <stdio.h>
#include <string.h>

typedef struct {
    PyObject_HEAD PyObject *arrays; /* a tuple, which keeps the arrays alive */
    gr_job *part;                   /* parts that do not lie on a GPU are left to Python */
    Py_ssize_t count, first;        /* the first part on a GPU; `count` if there is none */
} parts_object;

static PyTypeObject *parts_type;

/* --- errors ---------------------------------------------------------------------------------- */

/* Prefixes an exception with the part's number, if its type is used for wrong arrays. Exceptions of
 * other types may come from a signal handler, and stay unchanged. */
static void name_part(gr_job *p, Py_ssize_t number)
{
    PyObject *type, *value, *traceback;
    char message[sizeof p->error.message];
    if (p->error.status != GR_OK) {
        PyErr_Clear();
        snprintf(message, sizeof message, "part %d: %.850s", (int)number, p->error.message);
        memcpy(p->error.message, message, sizeof message);
        gr_raise(&p->error);
        return;
    }
    PyErr_Fetch(&type, &value, &traceback);
    if (value && (type == PyExc_TypeError || type == PyExc_ValueError ||
                  type == PyExc_BufferError || type == PyExc_MemoryError)) {
        PyErr_Format(type, "part %zd: %S", number, value);
        Py_DECREF(type);
        Py_DECREF(value);
        Py_XDECREF(traceback);
    } else {
        PyErr_Restore(type, value, traceback);
    }
}

/* --- begin ----------------------------------------------------------------------------------- */

/* Returns 0 if the part has the dtype of the parts before it, or -1 with an exception set. */
static int check_dtype(const parts_object *self, Py_ssize_t number)
{
    const gr_array *first = &self->part[self->first].array, *own = &self->part[number].array;
    if (first->kind == own->kind && first->bytes == own->bytes)
        return 0;
    PyErr_Format(PyExc_TypeError,
                 "all parts must have one dtype: part %zd has %s%d, and part %zd has %s%d",
                 self->first, gr_kind_name(first->kind), 8 * first->bytes, number,
                 gr_kind_name(own->kind), 8 * own->bytes);
    return -1;
}

static int plan_parts(parts_object *self, gr_asked asked, PyObject *streams)
{
    for (Py_ssize_t i = 0; i < self->count; i++) {
        PyObject *stream = streams == Py_None ? NULL : PyTuple_GetItem(streams, i);
        asked.stream = stream ? PyLong_AsUnsignedLongLong(stream) : 0;
        if (PyErr_Occurred())
            return -1;
        if (gr_plan_job(&asked, PyTuple_GetItem(self->arrays, i), &self->part[i]) < 0) {
            name_part(&self->part[i], i);
            return -1;
        }
        if (self->part[i].on_gpu && self->first == self->count)
            self->first = i;
        if (self->part[i].on_gpu && check_dtype(self, i) < 0)
            return -1;
    }
    return 0;
}

/* Begins or ends the sums of all real parts, or of all imaginary ones. Returns whether all
 * succeeded. */
static bool each_part(parts_object *self, int component, gr_error *error,
                      gr_status (*step)(gr_job *job, int component, gr_error *error))
{
    for (Py_ssize_t i = 0; i < self->count && !gr_interrupted(); i++) {
        gr_job *p = &self->part[i];
        gr_error named;
        if (!p->on_gpu || component >= p->result.components || step(p, component, error) == GR_OK)
            continue;
        gr_blame(error, p);
        named = *error;
        snprintf(error->message, sizeof error->message, "part %d, on %s:%d: %.800s", (int)i,
                 gr_backend_name(), p->array.device, named.message);
        return false;
    }
    return true;
}

static int begin_parts(parts_object *self)
{
    gr_call call = {.error = {.status = GR_OK}};
    gr_begin_call(&call, 0, 0); /* forward, even if this thread's last sum had another order */
    each_part(self, 0, &call.error, gr_begin_job);
    return gr_end_call(&call);
}

static parts_object *new_parts(PyObject *arrays)
{
    parts_object *self = (parts_object *)PyType_GenericAlloc(parts_type, 0);
    if (!self)
        return NULL;
    self->arrays = Py_NewRef(arrays);
    self->part = PyMem_Calloc((size_t)PyTuple_Size(arrays) + 1, sizeof *self->part);
    if (!self->part) {
        Py_DECREF((PyObject *)self);
        return (parts_object *)PyErr_NoMemory();
    }
    self->count = self->first = PyTuple_Size(arrays);
    return self;
}

PyObject *gr_py_begin_parts(PyObject *Py_UNUSED(module), PyObject *args)
{
    gr_asked asked = {.dtype = NULL};
    PyObject *arrays, *dtype, *launch, *streams;
    int timed;
    if (!PyArg_ParseTuple(args, "OOOOp", &arrays, &dtype, &launch, &streams, &timed) ||
        gr_read_asked(dtype, launch, &asked) < 0)
        return NULL;
    asked.timed = timed;
    if (!PyTuple_Check(arrays) ||
        (streams != Py_None &&
         (!PyTuple_Check(streams) || PyTuple_Size(streams) != PyTuple_Size(arrays)))) {
        PyErr_SetString(PyExc_TypeError, "expected a tuple of arrays, and as many streams");
        return NULL;
    }
    int device = gr_current_device();
    parts_object *self = new_parts(arrays);
    if (self && (plan_parts(self, asked, streams) < 0 || begin_parts(self) < 0)) {
        Py_DECREF((PyObject *)self);
        self = NULL;
    }
    gr_backend_return_to(device);
    return (PyObject *)self;
}

/* --- end ------------------------------------------------------------------------------------- */

static int end_parts(parts_object *self)
{
    gr_call call = {.error = {.status = GR_OK}};
    gr_error *error = &call.error;
    gr_begin_call(&call, 0, 0);
    if (each_part(self, 0, error, gr_end_job) && each_part(self, 1, error, gr_begin_job))
        each_part(self, 1, error, gr_end_job);
    return gr_end_call(&call);
}

static void close_parts(parts_object *self)
{
    for (Py_ssize_t i = 0; i < self->count; i++)
        gr_close_job(&self->part[i]);
}

static PyObject *bits_of(const gr_job *job, int component)
{
    const gr_outcome *outcome = &job->outcome[component];
    if (component >= job->result.components)
        Py_RETURN_NONE;
    return gr_makes_digits(job->request.strategy)
               ? PyBytes_FromStringAndSize((const char *)&outcome->exact, sizeof outcome->exact)
               : PyBytes_FromStringAndSize((const char *)&outcome->value, sizeof outcome->value);
}

static PyObject *row_of(gr_job *p)
{
    const gr_outcome *outcome = p->outcome;
    gr_times *times = p->request.times;
    p->request.times = NULL; /* gr_times_of() takes them over */
    return Py_BuildValue("iiNNNndIIIi", p->array.device, p->request.strategy,
                         gr_times_of(times, false), bits_of(p, 0), bits_of(p, 1),
                         (Py_ssize_t)p->request.n, outcome->init_ms, outcome->block, outcome->grid,
                         outcome->launches, (int)outcome->finish);
}

static PyObject *result_of(parts_object *self)
{
    const gr_array *array = &self->part[self->first].array;
    PyObject *rows = self->first < self->count ? PyList_New(0) : Py_NewRef(Py_None);
    for (Py_ssize_t i = self->first; rows && i < self->count; i++) {
        PyObject *row = self->part[i].on_gpu ? row_of(&self->part[i]) : Py_NewRef(Py_None);
        if (!row || (row != Py_None && PyList_Append(rows, row) < 0))
            Py_CLEAR(rows);
        Py_XDECREF(row);
    }
    return !rows || rows == Py_None ? rows : Py_BuildValue("CiN", array->kind, array->bytes, rows);
}

static PyObject *parts_end(PyObject *object, PyObject *Py_UNUSED(none))
{
    parts_object *self = (parts_object *)object;
    int device = gr_current_device();
    PyObject *result = end_parts(self) < 0 ? NULL : result_of(self);
    close_parts(self);
    gr_backend_return_to(device);
    return result;
}

static PyObject *parts_on_gpu(PyObject *object, PyObject *Py_UNUSED(none))
{
    const parts_object *self = (parts_object *)object;
    PyObject *found = PyTuple_New(self->count);
    for (Py_ssize_t i = 0; found && i < self->count; i++)
        PyTuple_SetItem(found, i, PyBool_FromLong(self->part[i].on_gpu));
    return found;
}

static void parts_dealloc(PyObject *object)
{
    parts_object *self = (parts_object *)object;
    int device = gr_current_device();
    close_parts(self);
    gr_backend_return_to(device);
    PyMem_Free(self->part);
    Py_XDECREF(self->arrays);
    gr_free_object(object);
}

static PyMethodDef methods[] = {
    {"end", parts_end, METH_NOARGS,
     "end()\n--\n\n"
     "Waits for the sums: (kind, bytes per element, rows), or None if no array lies on a GPU. An "
     "array's row: (device, strategy, times or None, bits, imaginary bits or None, n, init ms, "
     "block, grid, launches, finish)."},
    {"on_gpu", parts_on_gpu, METH_NOARGS,
     "on_gpu()\n--\n\nFor each array, whether it lies on a GPU, where its sum has begun."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_dealloc, (void *)parts_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_doc, "Sums of several arrays that have begun."},
    {0, NULL},
};

GR_TYPE(gr_make_parts_type, parts_type, "Parts", parts_object, GR_MADE_BY_C)
