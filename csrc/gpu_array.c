#include "gpu_array.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* --- DLPack, as its specification 1.x lays it out -------------------------------------------- */

typedef struct {
    int32_t type, id;
} dl_device;

typedef struct {
    uint8_t code, bits;
    uint16_t lanes;
} dl_type;

typedef struct {
    void *data;
    dl_device device;
    int32_t ndim;
    dl_type dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} dl_tensor;

typedef struct dl_managed {
    dl_tensor tensor;
    void *context;
    void (*deleter)(struct dl_managed *);
} dl_managed;

typedef struct {
    uint32_t major, minor;
} dl_version;

typedef struct dl_versioned {
    dl_version version;
    void *context;
    void (*deleter)(struct dl_versioned *);
    uint64_t flags;
    dl_tensor tensor;
} dl_versioned;

/* The table of C functions that newer producers offer, which saves the way through Python. */
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

enum { DL_CPU = 1, DL_CUDA = 2, DL_CUDA_HOST = 3, DL_CUDA_MANAGED = 13 };

/* CUDA's names for its default streams; NULL means "a stream of our own" in the engine. */
#define LEGACY_STREAM ((void *)1)

/* Sizes that some producer has made up. */
static int check_sizes(const gr_gpu_array *array)
{
    int64_t count = 1, bytes;
    bool is_empty = false, overflows = false;
    for (int d = 0; d < array->dims; d++) {
        if (array->size[d] < 0) {
            PyErr_Format(PyExc_BufferError, "an array on a GPU with a size of %lld in its shape",
                         (long long)array->size[d]);
            return -1;
        }
        is_empty |= array->size[d] == 0;
        overflows |= __builtin_mul_overflow(count, array->size[d], &count);
    }
    overflows |= __builtin_mul_overflow(count, array->bytes, &bytes);
    if (is_empty || (!overflows && array->base))
        return 1;
    if (overflows)
        PyErr_SetString(PyExc_BufferError, "an array on a GPU, larger than any memory");
    else
        PyErr_Format(PyExc_BufferError, "an array on a GPU of %lld elements, at no address",
                     (long long)count);
    return -1;
}

/* Wraps around, as it may for arrays without elements. */
static int64_t times(int64_t step, int64_t size)
{
    return (int64_t)((uint64_t)step * (uint64_t)size);
}

static int on_gpu(dl_device device)
{
    return device.type == DL_CUDA || device.type == DL_CUDA_MANAGED;
}

static int take_tensor(const dl_tensor *tensor, gr_gpu_array *array)
{
    static const char kinds[] = {'i', 'u', 'f', 0, 'B', 'c', 'b'};
    int code = tensor->dtype.code;

    if (tensor->ndim < 0 || tensor->ndim > GR_ARRAY_MAX_DIMS || tensor->dtype.lanes != 1 ||
        !tensor->dtype.bits || tensor->dtype.bits % 8 || code >= (int)sizeof kinds ||
        !kinds[code]) {
        PyErr_Format(PyExc_BufferError,
                     "cannot read a DLPack array of type code %d, %d bits, %d lanes, %d dimensions",
                     code, tensor->dtype.bits, tensor->dtype.lanes, tensor->ndim);
        return -1;
    }
    array->base = (const char *)tensor->data + tensor->byte_offset;
    array->device = tensor->device.id;
    array->kind = kinds[code];
    array->bytes = tensor->dtype.bits / 8;
    array->dims = tensor->ndim;
    int64_t step = 1;
    for (int d = tensor->ndim - 1; d >= 0; d--) {
        array->size[d] = tensor->shape[d];
        array->step[d] = tensor->strides ? tensor->strides[d] : step;
        step = times(step, tensor->shape[d]);
    }
    return check_sizes(array);
}

static int by_exchange(PyObject *object, const dl_exchange *table, gr_gpu_array *array)
{
    dl_tensor tensor;
    void *stream = NULL;
    if (table->tensor_from_object(object, &tensor))
        return -1;
    if (!on_gpu(tensor.device))
        return 0;
    if (table->current_stream(DL_CUDA, tensor.device.id, &stream))
        return -1;
    array->stream = stream ? stream : LEGACY_STREAM;
    return take_tensor(&tensor, array);
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
        /* A producer from before DLPack 1.0. */
        PyErr_Clear();
        if (PyDict_DelItemString(words, "max_version") == 0)
            capsule = PyObject_Call(method, none, words);
    }
    Py_XDECREF(method);
    Py_XDECREF(none);
    Py_XDECREF(words);
    return capsule;
}

/* Who takes a tensor out of a capsule must free it; a capsule still named "dltensor" frees it
 * itself when it goes, so it is enough to keep the capsule. */
static int by_dlpack(PyObject *object, void *stream, gr_gpu_array *array)
{
    PyObject *capsule = call_dlpack(object, stream);
    const dl_tensor *tensor = NULL;
    if (!capsule)
        return -1;
    if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        dl_versioned *managed = PyCapsule_GetPointer(capsule, "dltensor_versioned");
        if (managed->version.major == 1)
            tensor = &managed->tensor;
    } else if (PyCapsule_IsValid(capsule, "dltensor")) {
        tensor = &((dl_managed *)PyCapsule_GetPointer(capsule, "dltensor"))->tensor;
    }
    array->owner = capsule;
    if (!tensor) {
        PyErr_SetString(PyExc_BufferError, "__dlpack__ returned a capsule of an unknown version");
        return -1;
    }
    return take_tensor(tensor, array);
}

static int dlpack_device(PyObject *object, dl_device *device)
{
    PyObject *pair = PyObject_CallMethod(object, "__dlpack_device__", NULL);
    int ok = pair && PyArg_ParseTuple(pair, "ii", &device->type, &device->id);
    Py_XDECREF(pair);
    return ok ? 1 : -1;
}

/* --- __cuda_array_interface__, version 3 ----------------------------------------------------- */

enum { MOST_BYTES = 32 }; /* of an element; which of them can be summed is settled later */

static int take_typestr(const char *text, gr_gpu_array *array)
{
    if ((text[0] != '<' && text[0] != '|') || !text[1] || !strchr("biufc", text[1])) {
        PyErr_Format(PyExc_TypeError,
                     "arrays of type %s on a GPU cannot be summed: native numbers can", text);
        return -1;
    }
    array->kind = text[1];
    array->bytes = atoi(text + 2);
    if (array->bytes < 1 || array->bytes > MOST_BYTES) {
        PyErr_Format(PyExc_BufferError, "%s is no type of numbers of 1 to %d bytes", text,
                     MOST_BYTES);
        return -1;
    }
    return 1;
}

static int take_shape(PyObject *shape, PyObject *strides, gr_gpu_array *array)
{
    Py_ssize_t dims = PyTuple_Check(shape) ? PyTuple_Size(shape) : -1;
    int strided = strides && strides != Py_None;
    if (dims < 0 || dims > GR_ARRAY_MAX_DIMS ||
        (strided && (!PyTuple_Check(strides) || PyTuple_Size(strides) != dims))) {
        PyErr_SetString(PyExc_BufferError, "__cuda_array_interface__ has an odd shape or strides");
        return -1;
    }
    int64_t step = 1;
    array->dims = (int)dims;
    for (Py_ssize_t d = dims - 1; d >= 0; d--) {
        array->size[d] = PyLong_AsLongLong(PyTuple_GetItem(shape, d));
        array->step[d] = step;
        if (strided) {
            int64_t bytes = PyLong_AsLongLong(PyTuple_GetItem(strides, d));
            if (bytes % array->bytes) {
                PyErr_SetString(PyExc_BufferError,
                                "strides that are no multiple of the element cannot be read");
                return -1;
            }
            array->step[d] = bytes / array->bytes;
        }
        step = times(step, array->size[d]);
    }
    return PyErr_Occurred() ? -1 : check_sizes(array);
}

static int by_interface(PyObject *interface, gr_gpu_array *array)
{
    if (!PyDict_Check(interface)) {
        PyErr_SetString(PyExc_BufferError, "__cuda_array_interface__ is no dict");
        return -1;
    }
    PyObject *typestr = PyDict_GetItemString(interface, "typestr");
    PyObject *shape = PyDict_GetItemString(interface, "shape");
    PyObject *strides = PyDict_GetItemString(interface, "strides");
    PyObject *data = PyDict_GetItemString(interface, "data");
    PyObject *mask = PyDict_GetItemString(interface, "mask");
    PyObject *stream = PyDict_GetItemString(interface, "stream");
    if (!typestr || !shape || !data || !PyTuple_Check(data) || PyTuple_Size(data) < 1) {
        PyErr_SetString(PyExc_BufferError, "__cuda_array_interface__ lacks typestr, shape or data");
        return -1;
    }
    if (mask && mask != Py_None) {
        PyErr_SetString(PyExc_TypeError, "masked arrays on a GPU cannot be summed");
        return -1;
    }
    array->base = PyLong_AsVoidPtr(PyTuple_GetItem(data, 0));
    array->device = -1;
    if (stream && stream != Py_None)
        array->stream = PyLong_AsVoidPtr(stream);
    const char *text = PyErr_Occurred() ? NULL : PyUnicode_AsUTF8AndSize(typestr, NULL);
    return text && take_typestr(text, array) > 0 ? take_shape(shape, strides, array) : -1;
}

static int names_stream(PyObject *interface)
{
    PyObject *stream = PyDict_GetItemString(interface, "stream");
    return stream && stream != Py_None;
}

/* --- CuPy ----------------------------------------------------------------------------------------
 *
 * Its arrays have an interface, but making one up takes CuPy longer than to be asked for what is in
 * it; and where the array lies would have to be asked of CUDA. */

enum { DATA, PTR, DEVICE_ID, DTYPE, SHAPE, STRIDES, NAMES };
static PyObject *names[NAMES], *current_stream; /* the GIL guards them */

/* Whether this is CuPy's own type, and all is there to read its arrays with. */
static int know_cupy(PyTypeObject *type)
{
    static const char *const text[] = {"data", "ptr", "device_id", "dtype", "shape", "strides"};
    PyObject *module = PyObject_GetAttrString((PyObject *)type, "__module__");
    PyObject *name = PyObject_GetAttrString((PyObject *)type, "__name__");
    int same = module && name && PyUnicode_CompareWithASCIIString(module, "cupy") == 0 &&
               PyUnicode_CompareWithASCIIString(name, "ndarray") == 0;
    PyObject *cuda = same ? PyImport_ImportModule("cupy.cuda") : NULL;
    PyObject *found = cuda ? PyObject_GetAttrString(cuda, "get_current_stream") : NULL;
    int known = found != NULL;
    if (known) { /* other types leave what a thread may be about to call */
        PyObject *before = current_stream;
        current_stream = found;
        Py_XDECREF(before);
    }
    for (int i = 0; known && i < NAMES; i++)
        known = names[i] || (names[i] = PyUnicode_InternFromString(text[i]));
    Py_XDECREF(module);
    Py_XDECREF(name);
    Py_XDECREF(cuda);
    PyErr_Clear();
    return known;
}

/* NumPy's types of numbers exist once each. */
static int take_dtype(PyObject *dtype, gr_gpu_array *array)
{
    static PyObject *known;
    static int kind, bytes;
    if (dtype != known) {
        PyObject *typestr = PyObject_GetAttrString(dtype, "str");
        const char *text = typestr ? PyUnicode_AsUTF8AndSize(typestr, NULL) : NULL;
        int taken = text ? take_typestr(text, array) : -1;
        Py_XDECREF(typestr);
        if (taken < 0)
            return -1;
        PyObject *before = known;
        Py_INCREF(dtype);
        known = dtype;
        kind = array->kind;
        bytes = array->bytes;
        Py_XDECREF(before);
    }
    array->kind = kind;
    array->bytes = bytes;
    return 1;
}

static void *take_pointer(PyObject *object)
{
    PyObject *number = PyObject_GetAttr(object, names[PTR]);
    void *pointer = number ? PyLong_AsVoidPtr(number) : NULL;
    Py_XDECREF(number);
    return pointer;
}

static int by_cupy(PyObject *object, gr_gpu_array *array)
{
    PyObject *ask_stream = Py_NewRef(current_stream); /* attributes may let other threads run */
    PyObject *data = PyObject_GetAttr(object, names[DATA]);
    PyObject *device = data ? PyObject_GetAttr(data, names[DEVICE_ID]) : NULL;
    PyObject *dtype = device ? PyObject_GetAttr(object, names[DTYPE]) : NULL;
    PyObject *shape = dtype ? PyObject_GetAttr(object, names[SHAPE]) : NULL;
    PyObject *strides = shape ? PyObject_GetAttr(object, names[STRIDES]) : NULL;
    PyObject *stream = strides ? PyObject_CallNoArgs(ask_stream) : NULL;
    int found = -1;
    if (stream) {
        array->base = take_pointer(data);
        array->device = (int)PyLong_AsLong(device);
        array->stream = take_pointer(stream);
        if (!array->stream)
            array->stream = LEGACY_STREAM;
        if (!PyErr_Occurred() && take_dtype(dtype, array) > 0)
            found = take_shape(shape, strides, array);
    }
    PyObject *asked[] = {ask_stream, data, device, dtype, shape, strides, stream};
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++)
        Py_XDECREF(asked[i]);
    return found;
}

/* --- what it comes to ------------------------------------------------------------------------ */

static const dl_exchange *find_exchange(PyTypeObject *type)
{
    const dl_exchange *table = NULL;
    PyObject *capsule = PyObject_GetAttrString((PyObject *)type, "__dlpack_c_exchange_api__");
    if (capsule)
        table = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    Py_XDECREF(capsule);
    PyErr_Clear();
    if (table &&
        (table->version.major != 1 || !table->tensor_from_object || !table->current_stream))
        return NULL;
    return table;
}

/* What is known of a type of arrays. */
typedef struct {
    PyTypeObject *type;
    const dl_exchange *table; /* NULL: it has none */
    int cupy;
} producer;

/* The last type is remembered: a program mostly sums arrays of one library. The GIL guards it; but
 * what Python runs in between may let go of it. */
static producer producer_of(PyTypeObject *type)
{
    static producer last;
    if (type == last.type)
        return last;
    producer found = {type, find_exchange(type), 0};
    found.cupy = !found.table && know_cupy(type);
    PyTypeObject *before = last.type;
    Py_INCREF((PyObject *)type);
    last = found;
    Py_XDECREF((PyObject *)before);
    return found;
}

int gr_gpu_array_of(PyObject *object, void *(*our_stream)(void *context, int device), void *context,
                    gr_gpu_array *array)
{
    memset(array, 0, offsetof(gr_gpu_array, size));
    array->stream = NULL;
    array->owner = NULL;

    const producer known = producer_of(Py_TYPE(object));
    if (known.table)
        return by_exchange(object, known.table, array);
    if (known.cupy)
        return by_cupy(object, array);

    /* An interface that names its stream is taken first: the sum is put on that stream, which saves
     * the producer the event, and us the wait, that DLPack's way of ordering costs. */
    PyObject *interface = PyObject_GetAttrString(object, "__cuda_array_interface__");
    if (!interface)
        PyErr_Clear();
    int ordered = interface && PyDict_Check(interface) && names_stream(interface);
    if (!ordered && PyObject_HasAttrString(object, "__dlpack_device__")) {
        Py_XDECREF(interface);
        dl_device device;
        if (dlpack_device(object, &device) < 0)
            return -1;
        if (!on_gpu(device))
            return 0;
        void *stream = our_stream(context, device.id);
        return stream ? by_dlpack(object, stream, array) : -1;
    }

    if (!interface)
        return 0;
    int found = by_interface(interface, array);
    Py_DECREF(interface);
    return found;
}

void gr_gpu_array_done(gr_gpu_array *array)
{
    Py_CLEAR(array->owner);
}

/* The order of additions does not matter, so dimensions may be sorted, turned around and merged. */
int gr_flatten(const gr_gpu_array *array, gr_elements *elements, size_t *count)
{
    int64_t size[GR_ARRAY_MAX_DIMS], step[GR_ARRAY_MAX_DIMS];
    const char *base = array->base;
    int dims = 0;

    *count = 1;
    for (int d = 0; d < array->dims; d++)
        *count *= (size_t)array->size[d];
    for (int d = 0; d < array->dims && *count; d++) {
        int64_t length = array->size[d], stride = array->step[d];
        if (length == 1)
            continue;
        if (stride < 0) {
            base += (length - 1) * stride * array->bytes;
            stride = -stride;
        }
        int at = dims++;
        for (; at > 0 && step[at - 1] < stride; at--) {
            size[at] = size[at - 1];
            step[at] = step[at - 1];
        }
        size[at] = length;
        step[at] = stride;
    }
    int merged = 0;
    for (int d = 1; d < dims; d++) {
        if (step[merged] == step[d] * size[d]) {
            size[merged] *= size[d];
            step[merged] = step[d];
        } else {
            merged++;
            size[merged] = size[d];
            step[merged] = step[d];
        }
    }
    dims = dims ? merged + 1 : 0;
    if (dims > GR_MAX_DIMS) {
        PyErr_Format(PyExc_BufferError,
                     "an array on a GPU with %d dimensions that do not merge; "
                     "make it contiguous",
                     dims);
        return -1;
    }
    elements->base = base;
    elements->dims = dims ? dims : 1;
    elements->size[0] = 1;
    elements->step[0] = 1;
    for (int d = 0; d < dims; d++) {
        elements->size[d] = (uint64_t)size[d];
        elements->step[d] = step[d];
    }
    return dims == 0 || (dims == 1 && step[0] == 1);
}
