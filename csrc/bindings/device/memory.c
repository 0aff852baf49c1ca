/* Device memory for the sums of arrays whose library cannot provide it: the type Memory, which
 * gpureduce/core/device_array.py wraps. */
#include "bindings/device/functions.h"

#include "backend/backend.h"
#include "bindings/device/dlpack.h"
#include "bindings/device/run.h"
#include "engine/engine.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    PyObject_HEAD char *pointer;
    size_t bytes;
    int device;
    cudaStream_t stream; /* the sums are written on it */
} memory;

static PyTypeObject *memory_type;

/* Frees the memory in the order of the legacy stream, after all work that other streams have been
 * given so far. */
static void drop(PyObject *self)
{
    memory *m = (memory *)self;
    int device = gr_current_device();
    if (m->pointer && cudaSetDevice(m->device) == cudaSuccess)
        (void)cudaFreeAsync(m->pointer, NULL);
    gr_backend_return_to(device);
    gr_free_object(self);
}

static PyObject *get_pointer(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromVoidPtr(((memory *)self)->pointer);
}

/* Copies in pieces, so that signals are handled in between. */
static gr_status copy_to_host(const memory *m, char *to, gr_error *error)
{
    static const size_t piece = (size_t)1 << 26;
    error->status = GR_OK;
    TRY(cudaSetDevice(m->device));
    for (size_t at = 0; at < m->bytes && !gr_ask_for_interrupts(); at += piece) {
        size_t count = m->bytes - at < piece ? m->bytes - at : piece;
        TRY(cudaMemcpyAsync(to + at, m->pointer + at, count, cudaMemcpyDeviceToHost, m->stream));
        TRY(cudaStreamSynchronize(m->stream));
    }
done:
    return error->status;
}

static PyObject *read_bytes(PyObject *self, PyObject *Py_UNUSED(none))
{
    memory *m = (memory *)self;
    gr_call call;
    PyObject *bytes = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)m->bytes);
    if (!bytes || !m->bytes)
        return bytes;
    char *to = PyByteArray_AsString(bytes);
    gr_begin_call(&call, 0, 0);
    copy_to_host(m, to, &call.error);
    if (gr_end_call(&call) < 0)
        Py_CLEAR(bytes);
    return bytes;
}

/* --- export by DLPack --------------------------------------------------------------------------
 */

typedef struct {
    dl_managed managed; /* first: its address is this struct's */
    PyObject *owner;
    int64_t numbers[]; /* the shape, then the strides */
} exported;

static void release(dl_managed *managed)
{
    PyGILState_STATE held = PyGILState_Ensure(); /* consumers call this from any thread */
    Py_XDECREF(((exported *)managed->context)->owner);
    PyGILState_Release(held);
    free(managed->context);
}

static void forget_capsule(PyObject *capsule)
{
    dl_managed *managed =
        PyCapsule_IsValid(capsule, "dltensor") ? PyCapsule_GetPointer(capsule, "dltensor") : NULL;
    if (managed) /* no consumer took the tensor */
        managed->deleter(managed);
}

/* Makes the consumer's stream wait for the sums. */
static gr_status let_wait(const memory *m, cudaStream_t consumer, gr_error *error)
{
    cudaEvent_t event = NULL;
    int device = gr_current_device();
    error->status = GR_OK;
    if (consumer == m->stream)
        return GR_OK;
    TRY(cudaSetDevice(m->device));
    TRY(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    TRY(cudaEventRecord(event, m->stream));
    TRY(cudaStreamWaitEvent(consumer, event, 0));
done:
    if (event)
        (void)cudaEventDestroy(event);
    gr_backend_return_to(device);
    return error->status;
}

static int take_numbers(PyObject *tuple, int64_t *to, int count)
{
    for (int i = 0; i < count; i++) {
        PyObject *number = PyTuple_GetItem(tuple, i);
        to[i] = number ? PyLong_AsLongLong(number) : -1;
    }
    return PyErr_Occurred() ? -1 : 0;
}

/* dlpack(code, bits, shape, strides, stream). `stream` is a cudaStream_t, or -1: the consumer does
 * not want to wait. */
static PyObject *dlpack(PyObject *self, PyObject *args)
{
    memory *m = (memory *)self;
    int code, bits;
    long long stream;
    PyObject *shape, *strides;
    gr_error error;
    if (!PyArg_ParseTuple(args, "iiO!O!L", &code, &bits, &PyTuple_Type, &shape, &PyTuple_Type,
                          &strides, &stream))
        return NULL;
    if (stream >= 0 && let_wait(m, (cudaStream_t)(uintptr_t)stream, &error) != GR_OK)
        return gr_raise(&error);
    int dims = (int)PyTuple_Size(shape);
    exported *made = calloc(1, sizeof *made + 2 * (size_t)dims * sizeof(int64_t));
    if (!made)
        return PyErr_NoMemory();
    if (take_numbers(shape, made->numbers, dims) < 0 ||
        take_numbers(strides, made->numbers + dims, dims) < 0) {
        free(made);
        return NULL;
    }
    made->managed = (dl_managed){
        .tensor = {.data = m->pointer,
                   .device = {DL_CUDA, m->device},
                   .ndim = dims,
                   .dtype = {(uint8_t)code, (uint8_t)bits, 1},
                   .shape = made->numbers,
                   .strides = made->numbers + dims},
        .context = made,
        .deleter = release,
    };
    made->owner = Py_NewRef(self);
    PyObject *capsule = PyCapsule_New(&made->managed, "dltensor", forget_capsule);
    if (!capsule)
        release(&made->managed);
    return capsule;
}

/* --- the type ----------------------------------------------------------------------------------
 */

static PyMethodDef methods[] = {
    {"read", read_bytes, METH_NOARGS,
     "read()\n--\n\nThe bytes, copied to the host when they have been written."},
    {"dlpack", dlpack, METH_VARARGS,
     "dlpack(code, bits, shape, strides, stream)\n--\n\nA DLPack capsule."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef properties[] = {
    {"pointer", get_pointer, NULL, "The address on the device.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_dealloc, drop}, {Py_tp_methods, methods}, {Py_tp_getset, properties}, {0, NULL}};

GR_TYPE(gr_make_memory_type, memory_type, "Memory", memory, GR_MADE_BY_C)

static gr_status allocate(memory *m, gr_error *error)
{
    void *pointer = NULL;
    error->status = GR_OK;
    TRY(cudaSetDevice(m->device));
    if (gr_allocate(m->device, m->bytes ? m->bytes : 1, m->stream, &pointer, error) == GR_OK)
        m->pointer = pointer;
done:
    return error->status;
}

PyObject *gr_py_allocate(PyObject *Py_UNUSED(self), PyObject *args)
{
    Py_ssize_t bytes;
    int device;
    unsigned long long stream;
    gr_call call; /* the emulator fills new memory, which takes long */
    if (!PyArg_ParseTuple(args, "niK", &bytes, &device, &stream))
        return NULL;
    if (bytes < 0) {
        PyErr_SetString(PyExc_ValueError, "memory has at least 0 bytes");
        return NULL;
    }
    memory *made = (memory *)PyType_GenericAlloc(memory_type, 0);
    if (!made)
        return NULL;
    made->bytes = (size_t)bytes;
    made->device = device;
    made->stream = (cudaStream_t)(uintptr_t)stream;
    gr_begin_call(&call, 0, 0);
    allocate(made, &call.error);
    if (gr_end_call(&call) < 0)
        Py_CLEAR(made);
    return (PyObject *)made;
}
