/* Exact: the exact accumulator (exact/exact.h) as a Python object. gpureduce/core/exact.py
 * interprets arrays and dtypes; this file only takes flat arrays of known element types. */
#include "bindings/host/functions.h"

#include "bindings/gil.h"
#include "bindings/locks.h"
#include "bindings/numpy_arrays.h"
#include "exact/exact.h"
#include "exact/words.h"
#include "exact/format.h"
#include "shared/axes.h"
#include "threads/clock.h"

#include <string.h>

typedef struct {
    PyObject_HEAD gr_load load; /* element type: stored, not used for arithmetic */
    int components;             /* 2: real and imaginary parts */
    gr_exact sum[2];
} exact_object;

static exact_object *new_object(PyTypeObject *type, int load, int components)
{
    if (!gr_is_float((gr_load)load) || components < 1 || components > 2) {
        PyErr_SetString(PyExc_ValueError, "an exact sum is of 1 or 2 floats");
        return NULL;
    }
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    exact_object *self = (exact_object *)allocate(type, 0);
    if (self) {
        self->load = (gr_load)load;
        self->components = components;
        gr_exact_init(&self->sum[0]);
        gr_exact_init(&self->sum[1]);
    }
    return self;
}

static PyObject *exact_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(keywords))
{
    int load, components;
    if (!PyArg_ParseTuple(args, "ii", &load, &components))
        return NULL;
    return (PyObject *)new_object(type, load, components);
}

static void exact_dealloc(PyObject *self)
{
    gr_free_object(self);
}

static exact_object *same_shape(exact_object *self, PyObject *other)
{
    if (Py_TYPE(other) != Py_TYPE((PyObject *)self)) {
        PyErr_SetString(PyExc_TypeError, "expected another exact sum");
        return NULL;
    }
    exact_object *found = (exact_object *)other;
    if (found->components != self->components) {
        PyErr_SetString(PyExc_TypeError, "one sum is complex and the other is not");
        return NULL;
    }
    return found;
}

/* Returns whether the count has room for n more elements; false with an exception set. The count
 * must not wrap around: it also bounds the magnitude of the sum. */
static bool has_room(const exact_object *self, uint64_t n)
{
    if (n <= UINT64_MAX - self->sum[0].count)
        return true;
    PyErr_SetString(PyExc_OverflowError, "an accumulator takes fewer than 2^64 elements");
    return false;
}

/* Merges `sum`, the sums of n elements, into components from `first` on. Returns 0, or -1 with an
 * exception set. */
static int merge_sums(exact_object *self, gr_exact *sum, int first, int components, uint64_t n)
{
    bool fits;
    Py_BEGIN_CRITICAL_SECTION((PyObject *)self);
    fits = has_room(self, n);
    for (int i = 0; fits && i < components; i++) {
        sum[i].count = 0;
        gr_exact_merge(&self->sum[first + i], &sum[i]);
    }
    for (int i = 0; fits && i < self->components; i++)
        self->sum[i].count += n;
    Py_END_CRITICAL_SECTION();
    return fits ? 0 : -1;
}

/* Copies the object's sums, all at one moment. */
static void read_sums(exact_object *self, gr_exact sum[2])
{
    Py_BEGIN_CRITICAL_SECTION((PyObject *)self);
    memcpy(sum, self->sum, sizeof self->sum);
    Py_END_CRITICAL_SECTION();
}

/* Describes all elements of an array, as those of one sum. */
static void describe(PyArrayObject *array, gr_load load, int components, gr_axes *axes)
{
    *axes = (gr_axes){.in = PyArray_DATA(array),
                      .load = load,
                      .components = components,
                      .swapped = PyArray_ISBYTESWAPPED(array)};
    for (int i = 0; i < PyArray_NDIM(array); i++)
        gr_axes_push(&axes->reduced, (gr_axis){.size = (size_t)PyArray_DIM(array, i),
                                               .in = PyArray_STRIDE(array, i)});
}

/* Whether the items of an array have the size of these elements. */
static bool items_fit(PyObject *object, int load, int components)
{
    return PyArray_Check(object) && (size_t)PyArray_ITEMSIZE((PyArrayObject *)object) ==
                                        gr_load_size((gr_load)load) * (size_t)components;
}

/* Sums the array into a local accumulator without the GIL, then merges that into the object. So
 * several threads may add to the same object. */
static PyObject *exact_add(PyObject *object, PyObject *args)
{
    exact_object *self = (exact_object *)object;
    PyObject *data;
    int load, components, counts, threads;
    if (!PyArg_ParseTuple(args, "Oiipi", &data, &load, &components, &counts, &threads))
        return NULL;
    if (!gr_is_float((gr_load)load) || components > self->components) {
        PyErr_SetString(PyExc_ValueError, "no such element type, or complex into real");
        return NULL;
    }
    if (components < 1 || !items_fit(data, load, components)) {
        PyErr_SetString(PyExc_ValueError, "expected a NumPy array of such elements");
        return NULL;
    }

    gr_axes axes;
    gr_exact sum[2];
    PyArrayObject *array = (PyArrayObject *)data;
    const void *bytes = PyArray_DATA(array);
    size_t n = (size_t)PyArray_SIZE(array);
    bool flat = PyArray_ISCARRAY_RO(array) || n == 0;
    if (!flat)
        describe(array, (gr_load)load, components, &axes);
    gr_without_gil call;
    gr_drop_gil(&call);
    double start = gr_now_ms();
    if (flat)
        gr_exact_sum_array(bytes, n, (gr_load)load, components, threads, sum);
    else
        gr_exact_sum_elements(&axes, threads, sum);
    double ms = gr_now_ms() - start;
    if (gr_take_gil(&call) < 0 || merge_sums(self, sum, 0, components, counts ? n : 0) < 0)
        return NULL;
    return PyFloat_FromDouble(ms);
}

static PyObject *exact_add_state(PyObject *object, PyObject *args)
{
    exact_object *self = (exact_object *)object;
    const char *bytes;
    Py_ssize_t size;
    int component, counts;
    gr_exact state;
    if (!PyArg_ParseTuple(args, "y#ip", &bytes, &size, &component, &counts))
        return NULL;
    if ((size_t)size != sizeof state || component < 0 || component >= self->components) {
        PyErr_SetString(PyExc_ValueError, "no state of such an exact sum");
        return NULL;
    }
    memcpy(&state, bytes, sizeof state);
    if (merge_sums(self, &state, component, 1, counts ? state.count : 0) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* Subtracts other sums and their count. Returns 0, or -1 with an exception set if the remaining
 * count is too small for the remaining sum. */
static int take_away(exact_object *self, gr_exact sum[2], uint64_t n)
{
    gr_exact left[2];
    bool fits;
    Py_BEGIN_CRITICAL_SECTION((PyObject *)self);
    fits = n <= self->sum[0].count;
    memcpy(left, self->sum, sizeof left);
    for (int i = 0; i < self->components; i++) {
        gr_exact_negate(&sum[i]);
        sum[i].count = 0;
        gr_exact_merge(&left[i], &sum[i]);
        gr_exact_normalize(&left[i]);
        left[i].count -= n;
        fits = fits && gr_exact_fits_count(&left[i]);
    }
    if (fits)
        memcpy(self->sum, left, sizeof left);
    Py_END_CRITICAL_SECTION();
    if (!fits)
        PyErr_SetString(PyExc_ValueError,
                        "only elements that were added before can be subtracted: for other "
                        "elements, add their negatives");
    return fits ? 0 : -1;
}

static PyObject *exact_merge(PyObject *object, PyObject *args)
{
    exact_object *self = (exact_object *)object, *more;
    PyObject *other;
    gr_exact sum[2];
    int negative = 0;
    if (!PyArg_ParseTuple(args, "O|p", &other, &negative) || !(more = same_shape(self, other)))
        return NULL;
    read_sums(more, sum);
    if (negative ? take_away(self, sum, sum[0].count) < 0
                 : merge_sums(self, sum, 0, self->components, sum[0].count) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *exact_copy(PyObject *object, PyObject *Py_UNUSED(none))
{
    exact_object *self = (exact_object *)object;
    exact_object *copy = new_object(Py_TYPE(object), self->load, self->components);
    if (copy)
        read_sums(self, copy->sum);
    return (PyObject *)copy;
}

static PyObject *exact_round(PyObject *object, PyObject *args)
{
    exact_object *self = (exact_object *)object;
    unsigned char bytes[16];
    int target;
    if (!PyArg_ParseTuple(args, "i", &target))
        return NULL;
    if (!gr_is_float((gr_load)target)) {
        PyErr_SetString(PyExc_ValueError, "a sum is rounded to a float type");
        return NULL;
    }
    gr_exact sum[2];
    read_sums(self, sum);
    size_t size = gr_load_size((gr_load)target);
    for (int i = 0; i < self->components; i++) {
        /* Copies the low bytes first: all processors that this builds for are little-endian. */
        uint64_t bits = gr_exact_round(&sum[i], (gr_load)target);
        memcpy(bytes + (size_t)i * size, &bits, size);
    }
    return PyBytes_FromStringAndSize((char *)bytes, (Py_ssize_t)(size * (size_t)self->components));
}

static PyObject *exact_to_bytes(PyObject *object, PyObject *Py_UNUSED(none))
{
    exact_object *self = (exact_object *)object;
    unsigned char bytes[GR_EXACT_MOST_BYTES];
    gr_exact sum[2];
    read_sums(self, sum);
    size_t size = gr_exact_to_bytes(sum, self->components, self->load, bytes);
    if (!size) {
        PyErr_SetString(PyExc_OverflowError, "the sum is larger than 2^64 elements can make it");
        return NULL;
    }
    return PyBytes_FromStringAndSize((char *)bytes, (Py_ssize_t)size);
}

static PyObject *exact_from_bytes(PyObject *type, PyObject *args)
{
    const char *bytes;
    Py_ssize_t size;
    gr_exact sum[2];
    gr_load load;
    int components;
    if (!PyArg_ParseTuple(args, "y#", &bytes, &size))
        return NULL;
    gr_exact_error error =
        gr_exact_from_bytes((const unsigned char *)bytes, (size_t)size, sum, &components, &load);
    for (int i = 0; error == GR_EXACT_OK && i < components; i++)
        if (!gr_exact_fits_count(&sum[i]))
            error = GR_EXACT_BAD_CONTENT;
    if (error != GR_EXACT_OK) {
        PyErr_Format(PyExc_ValueError, "these bytes are not an accumulator: %s",
                     gr_exact_error_text(error));
        return NULL;
    }
    exact_object *self = new_object((PyTypeObject *)type, load, components);
    if (self)
        memcpy(self->sum, sum, (size_t)components * sizeof *sum);
    return (PyObject *)self;
}

static PyObject *exact_to_digits(PyObject *object, PyObject *Py_UNUSED(none))
{
    exact_object *self = (exact_object *)object;
    int64_t words[2 * GR_WORDS];
    gr_exact sum[2];
    read_sums(self, sum);
    if (!gr_exact_to_words(sum, self->components, self->load, words)) {
        PyErr_SetString(PyExc_OverflowError, "the sum is larger than 2^64 elements can make it");
        return NULL;
    }
    size_t size = gr_exact_words(self->components) * sizeof *words;
    return PyBytes_FromStringAndSize((char *)words, (Py_ssize_t)size);
}

static PyObject *exact_from_digits(PyObject *type, PyObject *args)
{
    const char *bytes;
    Py_ssize_t size;
    int64_t words[2 * GR_WORDS];
    gr_exact sum[2];
    gr_load load;
    if (!PyArg_ParseTuple(args, "y#", &bytes, &size))
        return NULL;
    int components = (size_t)size == gr_exact_words(2) * sizeof *words ? 2 : 1;
    if ((size_t)size != gr_exact_words(components) * sizeof *words) {
        PyErr_SetString(PyExc_ValueError, "no array of digits is so long");
        return NULL;
    }
    memcpy(words, bytes, (size_t)size);
    gr_words_error error = gr_exact_from_words(words, components, sum, &load);
    if (gr_check_words(error, gr_words_added(words)) < 0)
        return NULL;
    exact_object *self = new_object((PyTypeObject *)type, load, components);
    if (self)
        memcpy(self->sum, sum, (size_t)components * sizeof *sum);
    return (PyObject *)self;
}

static PyObject *get_count(PyObject *object, void *Py_UNUSED(closure))
{
    gr_exact sum[2];
    read_sums((exact_object *)object, sum);
    return PyLong_FromUnsignedLongLong(sum[0].count);
}

static PyObject *get_flags(PyObject *object, void *Py_UNUSED(closure))
{
    gr_exact sum[2];
    read_sums((exact_object *)object, sum);
    return PyLong_FromUnsignedLong(sum[0].flags | sum[1].flags << 4);
}

static PyObject *get_load(PyObject *object, void *Py_UNUSED(closure))
{
    return PyLong_FromLong((long)((exact_object *)object)->load);
}

static PyObject *get_components(PyObject *object, void *Py_UNUSED(closure))
{
    return PyLong_FromLong(((exact_object *)object)->components);
}

static PyMethodDef methods[] = {
    {"add", exact_add, METH_VARARGS,
     "add(array, load, components, counts, threads)\n--\n\n"
     "Add the elements of a flat array. `counts`: also add their number to `count`. Returns the "
     "time in ms."},
    {"add_state", exact_add_state, METH_VARARGS,
     "add_state(bytes, component, counts)\n--\n\n"
     "Add a gr_exact that a device's kernel has filled. `counts`: also add its count."},
    {"merge", exact_merge, METH_VARARGS,
     "merge(other, negative=False)\n--\n\nAdd another accumulator, or take it away."},
    {"copy", exact_copy, METH_NOARGS, "copy()\n--\n\nA copy of the accumulator."},
    {"round", exact_round, METH_VARARGS,
     "round(load)\n--\n\nThe sum, rounded once to that element type, as bytes."},
    {"to_bytes", exact_to_bytes, METH_NOARGS,
     "to_bytes()\n--\n\nThe accumulator as bytes: the format is in exact/exact.h."},
    {"from_bytes", exact_from_bytes, METH_VARARGS | METH_CLASS,
     "from_bytes(bytes)\n--\n\nAn accumulator from the bytes of to_bytes()."},
    {"to_digits", exact_to_digits, METH_NOARGS,
     "to_digits()\n--\n\nThe words of exact/words.h, as bytes."},
    {"from_digits", exact_from_digits, METH_VARARGS | METH_CLASS,
     "from_digits(bytes)\n--\n\nThe sum of accumulators from the sum of their words."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef properties[] = {
    {"count", get_count, NULL, "The number of elements that were added.", NULL},
    {"flags", get_flags, NULL, "The flags of nan 1, inf 2 and -inf 4; times 16 of component 1.",
     NULL},
    {"load", get_load, NULL, "The element type, as a number of gr_load.", NULL},
    {"components", get_components, NULL, "2 for complex sums, else 1.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, (void *)exact_new},
    {Py_tp_dealloc, (void *)exact_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_getset, properties},
    {Py_tp_doc, "Exact(load, components)\n--\n\nAn exact accumulator."},
    {0, NULL},
};

static PyTypeObject *exact_type;

GR_TYPE(gr_add_exact_type, exact_type, "_host.Exact", exact_object, 0)
