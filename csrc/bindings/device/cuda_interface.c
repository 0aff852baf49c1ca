/* Reads __cuda_array_interface__, version 3, and the attributes of CuPy's arrays. */
#include "bindings/device/gpu_array.h"

#include "bindings/locks.h"

#include <limits.h>
#include <stdbool.h>
#include <string.h>

enum { MOST_BYTES = 32 }; /* per element; gpu_sum.c later rejects types that it cannot sum */

/* Parses a typestr such as "<f4": byte order, kind, and bytes per element. */
static int take_typestr(PyObject *typestr, gr_array *array)
{
    Py_ssize_t length;
    const char *text = PyUnicode_Check(typestr) ? PyUnicode_AsUTF8AndSize(typestr, &length) : NULL;
    if (!text) {
        if (!PyErr_Occurred())
            PyErr_Format(PyExc_TypeError, "an array's typestr must be a text such as '<f4', not %R",
                         typestr);
        return -1;
    }
    if ((text[0] != '<' && text[0] != '|') || !text[1] || !strchr("biufc", text[1])) {
        PyErr_Format(
            PyExc_TypeError,
            "arrays of type %R on a GPU cannot be summed: only numbers in native byte order can",
            typestr);
        return -1;
    }
    const char *digit = text + 2;
    int bytes = 0;
    while (*digit >= '0' && *digit <= '9' && bytes <= MOST_BYTES)
        bytes = 10 * bytes + (*digit++ - '0');
    if (digit != text + length || text[2] == '0' || bytes < 1 || bytes > MOST_BYTES) {
        PyErr_Format(PyExc_BufferError, "typestr %R is not a type of numbers of 1 to %d bytes",
                     typestr, MOST_BYTES);
        return -1;
    }
    array->kind = text[1];
    array->bytes = bytes;
    return 0;
}

/* Returns 0, or -1 with an exception set. An item's __index__ may change the producer, but not this
 * tuple. */
static int take_numbers(PyObject *tuple, int64_t *numbers)
{
    Py_ssize_t count = PyTuple_Size(tuple);
    for (Py_ssize_t d = 0; d < count; d++) {
        numbers[d] = PyLong_AsLongLong(PyTuple_GetItem(tuple, d));
        if (numbers[d] == -1 && PyErr_Occurred()) {
            if (PyErr_ExceptionMatches(PyExc_OverflowError))
                PyErr_SetString(PyExc_BufferError,
                                "an array on a GPU has a number of 2^63 or more in its shape or "
                                "strides");
            return -1;
        }
    }
    return 0;
}

/* The caller must own a reference to each tuple, since this may run Python code. */
static int take_shape(PyObject *shape, PyObject *strides, gr_array *array)
{
    Py_ssize_t dims = PyTuple_Check(shape) ? PyTuple_Size(shape) : -1;
    int strided = strides && strides != Py_None;
    if (dims < 0 || dims > GR_ARRAY_MAX_DIMS ||
        (strided && (!PyTuple_Check(strides) || PyTuple_Size(strides) != dims))) {
        PyErr_Format(
            PyExc_BufferError,
            "shape and strides of an array on a GPU must be tuples of equal length, of at most "
            "%d numbers",
            GR_ARRAY_MAX_DIMS);
        return -1;
    }
    array->dims = (int)dims;
    if (take_numbers(shape, array->size) < 0)
        return -1;
    if (!strided) {
        gr_fill_steps(array);
        return gr_check_extent(array);
    }
    if (take_numbers(strides, array->step) < 0)
        return -1;
    for (Py_ssize_t d = 0; d < dims; d++)
        if (array->step[d] % array->bytes && array->size[d] > 1) {
            PyErr_SetString(PyExc_BufferError, "strides must be multiples of the element's size");
            return -1;
        }
    return gr_check_extent(array);
}

/* Reads an address or a stream handle. */
static int take_pointer(PyObject *number, const char *what, void **pointer)
{
    bool is_number = PyLong_Check(number);
    unsigned long long value = is_number ? PyLong_AsUnsignedLongLong(number) : 0;
    if (!is_number || PyErr_Occurred()) {
        PyErr_Clear();
        PyErr_Format(is_number ? PyExc_BufferError : PyExc_TypeError,
                     "%s of an array on a GPU must be a number from 0 to 2^64 - 1, not %R", what,
                     number);
        return -1;
    }
    *pointer = (void *)(uintptr_t)value;
    return 0;
}

/* --- the interface --------------------------------------------------------------------------- */

enum { STREAM, TYPESTR, SHAPE, DATA, STRIDES, MASK, ITEMS };
static const char *const items[] = {"stream", "typestr", "shape", "data", "strides", "mask"};

/* Returns a new reference. Returns NULL without an exception if the item is missing or None, and
 * with an exception set on failure. */
static PyObject *item_of(PyObject *interface, const char *name)
{
    PyObject *key = PyUnicode_FromString(name);
    PyObject *found = key ? PyDict_GetItemWithError(interface, key) : NULL;
    Py_XDECREF(key);
    return found && found != Py_None ? Py_NewRef(found) : NULL;
}

static int take_items(PyObject *item[ITEMS], gr_array *array)
{
    void *base;
    if (!item[TYPESTR] || !item[SHAPE] || !item[DATA] || !PyTuple_Check(item[DATA]) ||
        PyTuple_Size(item[DATA]) < 1) {
        PyErr_SetString(PyExc_BufferError,
                        "__cuda_array_interface__ must have typestr, shape, and data as a tuple of "
                        "an address and a flag");
        return -1;
    }
    if (item[MASK]) {
        PyErr_SetString(PyExc_TypeError,
                        "masked arrays on a GPU cannot be summed: pass where=~mask");
        return -1;
    }
    if (take_pointer(PyTuple_GetItem(item[DATA], 0), "the address", &base) < 0)
        return -1;
    array->base = base;
    array->device = -1;
    array->read_only = PyTuple_Size(item[DATA]) > 1 && PyTuple_GetItem(item[DATA], 1) == Py_True;
    if (item[STREAM] && take_pointer(item[STREAM], "the stream", &array->stream) < 0)
        return -1;
    if (!array->stream) /* Numba leaves it out for the default stream, which may still be at work */
        array->stream = GR_LEGACY_STREAM;
    if (take_typestr(item[TYPESTR], array) < 0)
        return -1;
    return take_shape(item[SHAPE], item[STRIDES], array);
}

int gr_by_interface(PyObject *interface, bool needs_stream, gr_array *array)
{
    PyObject *item[ITEMS] = {NULL};
    bool is_dict = PyDict_Check(interface);
    if (!is_dict && !needs_stream) {
        PyErr_Format(PyExc_BufferError, "__cuda_array_interface__ must be a dict, not %R",
                     (PyObject *)Py_TYPE(interface));
        return -1;
    }
    if (is_dict)
        item[STREAM] = item_of(interface, items[STREAM]);
    bool is_read = item[STREAM] || !needs_stream;
    for (int i = STREAM + 1; is_read && i < ITEMS && !PyErr_Occurred(); i++)
        item[i] = item_of(interface, items[i]);
    int found = PyErr_Occurred() ? -1 : 0;
    if (found == 0 && is_read) {
        array->owner = Py_NewRef(interface); /* it may keep the memory alive */
        found = take_items(item, array);
    }
    for (int i = 0; i < ITEMS; i++)
        Py_XDECREF(item[i]);
    return found;
}

/* --- CuPy ----------------------------------------------------------------------------------------
 *
 * CuPy's arrays have a __cuda_array_interface__, but building that dict takes longer than reading
 * the attributes. The dict also lacks the device, which would take a CUDA call to find. */

enum { BUFFER, PTR, DEVICE_ID, DTYPE, OWN_SHAPE, OWN_STRIDES, NAMES };
static PyObject *names[NAMES], *current_stream;
static gr_lock lock; /* guards them */

static int is_cupys(PyTypeObject *type)
{
    PyObject *module = NULL, *name = NULL;
    int same = -1;
    if (gr_optional_attribute((PyObject *)type, "__module__", 0, &module) == 0 &&
        gr_optional_attribute((PyObject *)type, "__name__", 0, &name) == 0)
        same = module && name && PyUnicode_Check(module) && PyUnicode_Check(name) &&
               PyUnicode_CompareWithASCIIString(module, "cupy") == 0 &&
               PyUnicode_CompareWithASCIIString(name, "ndarray") == 0;
    Py_XDECREF(module);
    Py_XDECREF(name);
    return same;
}

int gr_know_cupy(PyTypeObject *type)
{
    static const char *const text[] = {"data", "ptr", "device_id", "dtype", "shape", "strides"};
    int known = is_cupys(type);
    if (known <= 0)
        return known;
    PyObject *cuda = PyImport_ImportModule("cupy.cuda"), *found = NULL;
    if (!cuda || gr_optional_attribute(cuda, "get_current_stream", 0, &found) < 0)
        known = -1;
    Py_XDECREF(cuda);
    if (known < 0 && PyErr_ExceptionMatches(PyExc_ImportError)) {
        PyErr_Clear();
        known = 0;
    }
    if (!found)
        return known < 0 ? -1 : 0;
    gr_take_lock(&lock);
    PyObject *before = current_stream;
    current_stream = found;
    for (int i = 0; i < NAMES; i++)
        if (!names[i] && !(names[i] = PyUnicode_InternFromString(text[i])))
            known = -1;
    gr_drop_lock(&lock);
    Py_XDECREF(before); /* may run Python code */
    return known;
}

static int take_dtype(PyObject *dtype, gr_array *array)
{
    PyObject *typestr = PyObject_GetAttrString(dtype, "str");
    int taken = typestr ? take_typestr(typestr, array) : -1;
    Py_XDECREF(typestr);
    return taken;
}

static int take_attribute(PyObject *object, const char *what, void **pointer)
{
    PyObject *number = PyObject_GetAttr(object, names[PTR]);
    int taken = number ? take_pointer(number, what, pointer) : -1;
    Py_XDECREF(number);
    return taken;
}

static int take_device(PyObject *number, gr_array *array)
{
    long device = PyLong_AsLong(number);
    if (device == -1 && PyErr_Occurred())
        return -1;
    if (device < 0 || device > INT_MAX) {
        PyErr_Format(PyExc_BufferError, "an array on a GPU names %ld as its device", device);
        return -1;
    }
    array->device = (int)device;
    return 0;
}

int gr_by_cupy(PyObject *object, gr_array *array)
{
    gr_take_lock(&lock);
    PyObject *ask_stream = Py_NewRef(current_stream); /* other threads may replace it meanwhile */
    gr_drop_lock(&lock);
    PyObject *data = PyObject_GetAttr(object, names[BUFFER]);
    PyObject *device = data ? PyObject_GetAttr(data, names[DEVICE_ID]) : NULL;
    PyObject *dtype = device ? PyObject_GetAttr(object, names[DTYPE]) : NULL;
    PyObject *shape = dtype ? PyObject_GetAttr(object, names[OWN_SHAPE]) : NULL;
    PyObject *strides = shape ? PyObject_GetAttr(object, names[OWN_STRIDES]) : NULL;
    PyObject *stream = strides ? PyObject_CallNoArgs(ask_stream) : NULL;
    void *base;
    int found = -1;
    if (stream && take_attribute(data, "the address", &base) == 0 &&
        take_attribute(stream, "the stream", &array->stream) == 0 &&
        take_device(device, array) == 0 && take_dtype(dtype, array) == 0) {
        array->base = base;
        if (!array->stream)
            array->stream = GR_LEGACY_STREAM;
        found = take_shape(shape, strides, array);
    }
    array->owner = data; /* keeps the memory alive */
    PyObject *asked[] = {ask_stream, device, dtype, shape, strides, stream};
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++)
        Py_XDECREF(asked[i]);
    return found;
}
