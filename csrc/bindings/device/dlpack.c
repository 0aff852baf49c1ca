/* Reads DLPack arrays. */
#include "bindings/device/dlpack.h"
#include "bindings/device/gpu_array.h"

#include <limits.h>
#include <string.h>

/* The table of C functions that newer producers offer. It avoids calls through Python. */
typedef struct {
    dl_version version;
    void *previous;
    int (*allocate)(dl_tensor *, dl_versioned **, void *,
                    void (*)(void *, const char *, const char *));
    int (*managed_from_object)(void *, dl_versioned **);
    int (*managed_to_object)(dl_versioned *, void **);
    int (*tensor_from_object)(void *object, dl_tensor *out);
    int (*current_stream)(int32_t device_type, int32_t device, void **stream);
} dl_exchange;

static int on_gpu(dl_device device)
{
    return device.type == DL_CUDA || device.type == DL_CUDA_MANAGED;
}

/* Indexed by DLPack's type code. `kind` is NumPy's kind, 'B' for bfloat16, or 0 for types that
 * cannot be summed here. With `has_bits`, the number of bits is appended to the name. */
static const struct {
    char kind, has_bits;
    const char *name;
} types[] = {
    {'i', 1, "int"},          {'u', 1, "uint"},          {'f', 1, "float"},
    {0, 0, "opaque handles"}, {'B', 1, "bfloat"},        {'c', 1, "complex"},
    {'b', 0, "bool"},         {0, 0, "float8_e3m4"},     {0, 0, "float8_e4m3"},
    {0, 0, "float8_e4m3b11"}, {0, 0, "float8_e4m3fn"},   {0, 0, "float8_e4m3fnuz"},
    {0, 0, "float8_e5m2"},    {0, 0, "float8_e5m2fnuz"}, {0, 0, "float8_e8m0fnu"},
    {0, 0, "float6_e2m3fn"},  {0, 0, "float6_e3m2fn"},   {0, 0, "float4_e2m1fn"},
};

/* Sets an exception that names a type that cannot be summed. Returns -1. */
static int refuse_type(dl_type type)
{
    char bits[8] = "", lanes[32] = "";
    if (type.code >= sizeof types / sizeof types[0]) {
        PyErr_Format(PyExc_TypeError, "arrays on a GPU of DLPack's type %d cannot be summed",
                     type.code);
        return -1;
    }
    if (types[type.code].has_bits)
        PyOS_snprintf(bits, sizeof bits, "%d", type.bits);
    if (type.lanes != 1)
        PyOS_snprintf(lanes, sizeof lanes, " in vectors of %d", type.lanes);
    PyErr_Format(PyExc_TypeError, "arrays of %s%s%s on a GPU cannot be summed",
                 types[type.code].name, bits, lanes);
    return -1;
}

static int take_tensor(const dl_tensor *tensor, gr_array *array)
{
    dl_type type = tensor->dtype;
    if (type.code >= sizeof types / sizeof types[0] || !types[type.code].kind || type.lanes != 1 ||
        !type.bits || type.bits % 8)
        return refuse_type(type);
    if (tensor->ndim < 0 || tensor->ndim > GR_ARRAY_MAX_DIMS) {
        PyErr_Format(PyExc_BufferError,
                     "an array on a GPU has %d dimensions; at most %d can be read", tensor->ndim,
                     GR_ARRAY_MAX_DIMS);
        return -1;
    }
    if (tensor->ndim && !tensor->shape) {
        PyErr_Format(PyExc_BufferError, "a DLPack array of %d dimensions has no shape",
                     tensor->ndim);
        return -1;
    }
    uintptr_t base;
    if (__builtin_add_overflow((uintptr_t)tensor->data, tensor->byte_offset, &base)) {
        PyErr_SetString(PyExc_BufferError,
                        "a DLPack array's byte_offset exceeds the address space");
        return -1;
    }
    array->base = tensor->data ? (const char *)base : NULL;
    array->device = tensor->device.id;
    array->kind = types[type.code].kind;
    array->bytes = type.bits / 8;
    array->dims = tensor->ndim;
    if (array->dims)
        memcpy(array->size, tensor->shape, (size_t)array->dims * sizeof array->size[0]);
    if (!tensor->strides)
        gr_fill_steps(array);
    for (int d = 0; tensor->strides && d < array->dims; d++)
        if (__builtin_mul_overflow(tensor->strides[d], array->bytes, &array->step[d]))
            array->step[d] = INT64_MAX; /* which leads out of all memory, if it is ever taken */
    return gr_check_extent(array);
}

/* Called when a producer's C function has failed. Returns -1 with an exception set. Some producers
 * fail without an exception: sets one. Others append a stack trace of their C++ code to the message
 * of a RuntimeError: keeps the first line only. */
static int failed_in(const char *what)
{
    PyObject *type = NULL, *value = NULL, *traceback = NULL;
    if (!PyErr_Occurred()) {
        PyErr_Format(PyExc_BufferError, "DLPack's %s failed and gave no reason", what);
        return -1;
    }
    if (PyErr_Occurred() != PyExc_RuntimeError)
        return -1;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *told = value ? PyObject_Str(value) : NULL;
    PyObject *lines = told ? PyUnicode_Splitlines(told, 0) : NULL;
    if (lines && PyList_Size(lines) > 1) {
        PyErr_SetObject(type, PyList_GetItem(lines, 0));
        Py_CLEAR(type);
        Py_CLEAR(value);
        Py_CLEAR(traceback);
    } else {
        PyErr_Restore(type, value, traceback);
    }
    Py_XDECREF(told);
    Py_XDECREF(lines);
    return -1;
}

/* Whether the tensor's method says that PyTorch conjugates or negates the elements in memory when
 * they are read. The table of C functions does not tell. Sets an exception unless the result is 0.
 */
static int is_changed(PyObject *tensor, const char *method)
{
    PyObject *says;
    if (gr_optional_attribute(tensor, method, 0, &says) < 0)
        return -1;
    PyObject *found = says ? PyObject_CallNoArgs(says) : Py_NewRef(Py_False);
    int is = found ? PyObject_IsTrue(found) : -1;
    Py_XDECREF(found);
    Py_XDECREF(says);
    if (is > 0)
        PyErr_Format(PyExc_BufferError,
                     "%s() of this tensor is True: pass x.resolve_conj().resolve_neg(), whose "
                     "elements in memory are its values",
                     method);
    return is;
}

int gr_by_exchange(PyObject *object, const void *functions, gr_array *array)
{
    const dl_exchange *table = functions;
    dl_tensor tensor;
    void *stream = NULL;
    memset(&tensor, 0, sizeof tensor);
    if (table->tensor_from_object(object, &tensor))
        return failed_in("dltensor_from_py_object_no_sync");
    if (!on_gpu(tensor.device))
        return 0;
    if (table->current_stream(DL_CUDA, tensor.device.id, &stream))
        return failed_in("current_work_stream");
    array->stream = stream ? stream : GR_LEGACY_STREAM;
    int found = take_tensor(&tensor, array);
    if (found > 0 &&
        (is_changed(object, "is_neg") || (array->kind == 'c' && is_changed(object, "is_conj"))))
        return -1;
    return found;
}

/* __dlpack__(stream=ours, max_version=(1, 1)): the producer makes our stream wait for its own. */
static PyObject *call_dlpack(PyObject *object, void *stream)
{
    PyObject *method = PyObject_GetAttrString(object, "__dlpack__");
    PyObject *none = PyTuple_New(0), *capsule = NULL;
    PyObject *words =
        Py_BuildValue("{s:n,s:(ii)}", "stream", (Py_ssize_t)stream, "max_version", 1, 1);
    if (method && none && words)
        capsule = PyObject_Call(method, none, words);
    if (!capsule && method && none && words && PyErr_ExceptionMatches(PyExc_TypeError)) {
        /* A producer older than DLPack 1.0. */
        PyErr_Clear();
        if (PyDict_DelItemString(words, "max_version") == 0)
            capsule = PyObject_Call(method, none, words);
    }
    Py_XDECREF(method);
    Py_XDECREF(none);
    Py_XDECREF(words);
    return capsule;
}

static const dl_tensor *tensor_in(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        dl_versioned *managed = PyCapsule_GetPointer(capsule, "dltensor_versioned");
        return managed->version.major == 1 ? &managed->tensor : NULL;
    }
    if (PyCapsule_IsValid(capsule, "dltensor"))
        return &((dl_managed *)PyCapsule_GetPointer(capsule, "dltensor"))->tensor;
    return NULL;
}

static int small_number(PyObject *number, int32_t *found)
{
    long value = number && PyLong_Check(number) ? PyLong_AsLong(number) : -1;
    *found = (int32_t)value;
    return !PyErr_Occurred() && value >= 0 && value <= INT_MAX;
}

static int announced_device(PyObject *object, dl_device *device)
{
    PyObject *pair = PyObject_CallMethod(object, "__dlpack_device__", NULL);
    if (!pair)
        return -1;
    int is_pair = PyTuple_Check(pair) && PyTuple_Size(pair) == 2 &&
                  small_number(PyTuple_GetItem(pair, 0), &device->type) &&
                  small_number(PyTuple_GetItem(pair, 1), &device->id);
    if (!is_pair) {
        PyErr_Clear();
        PyErr_Format(PyExc_BufferError,
                     "__dlpack_device__() must return the numbers of a device type and of a device,"
                     " not %R",
                     pair);
    }
    Py_DECREF(pair);
    return is_pair ? 0 : -1;
}

/* Reads the tensor and keeps the capsule. A consumer that takes the tensor out renames the capsule
 * and must free the tensor. A capsule that keeps its name frees the tensor itself. */
int gr_by_dlpack(PyObject *object, void *(*our_stream)(void *context, int device), void *context,
                 gr_array *array)
{
    dl_device device;
    if (announced_device(object, &device) < 0)
        return -1;
    if (!on_gpu(device))
        return 0;
    void *stream = our_stream(context, device.id);
    PyObject *capsule = stream ? call_dlpack(object, stream) : NULL;
    if (!capsule)
        return -1;
    array->owner = capsule;
    const dl_tensor *tensor = tensor_in(capsule);
    if (!tensor) {
        PyErr_SetString(PyExc_BufferError, "__dlpack__ returned a capsule of an unknown version");
        return -1;
    }
    if (!on_gpu(tensor->device) || tensor->device.id != device.id) {
        PyErr_Format(PyExc_BufferError,
                     "__dlpack_device__() announced device %d of type %d, and __dlpack__() returned"
                     " an array on device %d of type %d",
                     device.id, device.type, tensor->device.id, tensor->device.type);
        return -1;
    }
    return take_tensor(tensor, array);
}

int gr_find_exchange(PyTypeObject *type, const void **table)
{
    PyObject *capsule;
    *table = NULL;
    if (gr_optional_attribute((PyObject *)type, "__dlpack_c_exchange_api__", 0, &capsule) < 0)
        return -1;
    const dl_exchange *found = NULL;
    if (capsule && PyCapsule_IsValid(capsule, "dlpack_exchange_api"))
        found = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    Py_XDECREF(capsule);
    if (found && found->version.major == 1 && found->tensor_from_object && found->current_stream)
        *table = found;
    return 0;
}
