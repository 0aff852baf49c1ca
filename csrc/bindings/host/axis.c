/* Sums along axes. */
#include "bindings/host/functions.h"

#include "bindings/gil.h"
#include "bindings/numpy_arrays.h"
#include "bindings/results.h"
#include "cpu/axis_sum.h"
#include "exact/axis_exact.h"
#include "exact/format.h"
#include "shared/axes.h"
#include "shared/how.h"
#include "threads/clock.h"

#include <stdlib.h>
#include <string.h>

/* The request: the array, the reduced axes, and how elements are added and stored. */
typedef struct {
    PyArrayObject *array, *out, *mask; /* `out` and `mask` may be NULL */
    bool reduced[GR_MOST_AXES];
    bool keeps_dims, unrounded; /* `unrounded`: `out` has a first axis more, of 4 numbers */
    gr_how how;
    PyArray_Descr *type; /* of the result */
    gr_initial initial;
} request;

static bool take_axis(PyObject *axis, int dims, bool *reduced)
{
    int overflow;
    if (!PyLong_Check(axis) || PyBool_Check(axis))
        return false;
    long number = PyLong_AsLongAndOverflow(axis, &overflow);
    if (overflow || number < -dims || number >= dims)
        return false;
    number += number < 0 ? dims : 0;
    if (reduced[number])
        return false;
    reduced[number] = true;
    return true;
}

bool gr_take_axes(PyObject *axis, int dims, bool *reduced)
{
    memset(reduced, axis == Py_None, (size_t)dims * sizeof *reduced);
    if (axis == Py_None)
        return true;
    if (!PyTuple_Check(axis))
        return take_axis(axis, dims, reduced);
    for (Py_ssize_t i = 0; i < PyTuple_Size(axis); i++)
        if (!take_axis(PyTuple_GetItem(axis, i), dims, reduced))
            return false;
    return true;
}

/* Makes an array for the sums. Its memory order follows that of the input, as NumPy's does. */
static PyArrayObject *new_result(const request *asked)
{
    npy_intp shape[GR_MOST_AXES], steps[GR_MOST_AXES], bytes = PyDataType_ELSIZE(asked->type);
    int dims = 0, order[GR_MOST_AXES], kept = 0, number[GR_MOST_AXES];
    for (int i = 0; i < PyArray_NDIM(asked->array); i++) {
        if (asked->reduced[i]) {
            if (asked->keeps_dims) {
                steps[dims] = bytes;
                shape[dims++] = 1;
            }
            continue;
        }
        npy_intp distance = gr_axis_distance(PyArray_STRIDE(asked->array, i));
        int k = kept++;
        for (; k > 0; k--) {
            if (gr_axis_distance(PyArray_STRIDE(asked->array, order[k - 1])) >= distance)
                break;
            order[k] = order[k - 1];
        }
        order[k] = i;
        number[i] = dims;
        shape[dims++] = PyArray_DIM(asked->array, i);
    }
    for (int k = kept - 1; k >= 0; k--) {
        npy_intp size = PyArray_DIM(asked->array, order[k]);
        steps[number[order[k]]] = bytes;
        bytes *= size > 0 ? size : 1;
    }
    Py_INCREF((PyObject *)asked->type);
    return (PyArrayObject *)PyArray_NewFromDescr(&PyArray_Type, asked->type, dims, shape, steps,
                                                 NULL, 0, NULL);
}

/* Describes the array for C. A sum of no elements is replaced by that of one zero. */
static void describe(const request *asked, PyArrayObject *out, gr_axes *axes)
{
    static const unsigned char zero[16];
    PyArrayObject *array = asked->array, *mask = asked->mask;
    bool empty = PyArray_SIZE(array) == 0;
    *axes = (gr_axes){
        .in = empty ? zero : PyArray_DATA(array),
        .mask = mask && !empty ? PyArray_DATA(mask) : NULL,
        .out = PyArray_DATA(out),
        .load = asked->how.load,
        .components = asked->how.parts,
        .part_step = asked->unrounded ? PyArray_STRIDE(out, 0) : PyArray_ITEMSIZE(out) / 2,
        .swapped = PyArray_ISBYTESWAPPED(array),
    };
    for (int i = 0, k = asked->unrounded; i < PyArray_NDIM(array); i++) {
        gr_axis dim = {
            .size = (size_t)PyArray_DIM(array, i),
            .in = empty ? 0 : PyArray_STRIDE(array, i),
            .mask = axes->mask ? PyArray_STRIDE(mask, i) : 0,
        };
        if (!asked->reduced[i]) {
            dim.out = PyArray_STRIDE(out, k);
            gr_axes_push(&axes->kept, dim);
        } else if (!empty) {
            gr_axes_push(&axes->reduced, dim);
        }
        k += asked->keeps_dims || !asked->reduced[i];
    }
}

static bool add(const request *asked, gr_axes *axes)
{
    if (asked->unrounded)
        return gr_exact_unrounded_axes(axes, NULL, 1); /* Dask runs several chunks at a time */
    if (asked->how.exactly)
        return gr_exact_sum_axes(axes, asked->how.target, &asked->initial, 0);
    return gr_cpu_sum_axes(axes, asked->how.acc, asked->how.target, &asked->initial, 0);
}

/* Adds up, without the GIL if that takes long. Returns 0, or -1 with an exception set. */
static int run(const request *asked, PyArrayObject *out)
{
    gr_axes axes;
    if (PyArray_SIZE(out) == 0)
        return 0;
    describe(asked, out, &axes);
    bool done;
    if (PyArray_NBYTES(asked->array) <= GR_KEEPS_GIL_BYTES &&
        PyArray_NBYTES(out) <= GR_KEEPS_GIL_BYTES) {
        done = add(asked, &axes);
    } else {
        gr_without_gil call;
        gr_drop_gil(&call);
        done = add(asked, &axes);
        if (gr_take_gil(&call) < 0)
            return -1;
    }
    if (!done)
        PyErr_NoMemory();
    return done ? 0 : -1;
}

/* Returns `out`, or a new array or scalar with the sums. */
static PyObject *sums_of(const request *asked)
{
    PyArrayObject *out = asked->out;
    if (out)
        Py_INCREF((PyObject *)out);
    else
        out = new_result(asked);
    if (out && run(asked, out) < 0)
        Py_CLEAR(out);
    if (!out || asked->out)
        return (PyObject *)out;
    return PyArray_Return(out);
}

/* The quick way for arrays that need no conversion. */
static PyObject *sum_plainly(request *asked, PyObject *const *args)
{
    const gr_numpy_type *type = gr_numpy_type_of_elements(args[0]);
    bool is_timed = args[4] != Py_None;
    if (!type || !gr_take_axes(args[1], PyArray_NDIM(asked->array), asked->reduced))
        Py_RETURN_NONE;
    asked->how =
        gr_how_of(gr_dtype_of(type), -1, asked->how.exactly, GR_ON_PROCESSORS, GR_GROUPS_AXES);
    asked->type = gr_result_type(type);
    if (!asked->type)
        return NULL;
    gr_call_facts facts = gr_facts_of_call(asked->array, asked->how.exactly);
    PyObject *value = sums_of(asked);
    double kernel_ms = gr_now_ms() - facts.start_ms;
    Py_DECREF((PyObject *)asked->type);
    if (is_timed)
        return gr_timed_on_host(value, &facts, args[4], kernel_ms);
    Py_DECREF(facts.dtype);
    return gr_untimed(value);
}

static int take_terms(gr_initial *taken, int part, PyObject *terms)
{
    Py_ssize_t count = PyTuple_Size(terms);
    if (count < 0 || count > GR_MOST_TERMS) {
        PyErr_SetString(PyExc_ValueError, "expected a tuple of few floats");
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++)
        taken->terms[part][i] = PyFloat_AsDouble(PyTuple_GetItem(terms, i));
    taken->count[part] = (int)count;
    return PyErr_Occurred() ? -1 : 0;
}

int gr_take_initial(PyObject *initial, gr_initial *taken)
{
    PyObject *real, *imaginary;
    if (PyLong_Check(initial)) {
        taken->integer = PyLong_AsUnsignedLongLongMask(initial);
        return 0;
    }
    if (!PyArg_ParseTuple(initial, "O!O!", &PyTuple_Type, &real, &PyTuple_Type, &imaginary))
        return -1;
    return take_terms(taken, 0, real) < 0 || take_terms(taken, 1, imaginary) < 0 ? -1 : 0;
}

/* Whether items have the size of their types, `out` the shape and item size of the result, and the
 * mask the array's shape. User code may have changed them since Python's check. */
static bool shapes_fit(const request *asked)
{
    PyArrayObject *array = asked->array, *out = asked->out, *mask = asked->mask;
    int dims = PyArray_NDIM(array), k = 0;
    size_t components = (size_t)asked->how.parts;
    bool fits =
        (size_t)PyArray_ITEMSIZE(array) == components * gr_load_size(asked->how.load) &&
        (size_t)PyDataType_ELSIZE(asked->type) == components * gr_load_size(asked->how.target) &&
        (!mask || (PyArray_NDIM(mask) == dims && PyArray_ITEMSIZE(mask) == 1));
    for (int i = 0; fits && i < dims; i++) {
        fits = !mask || PyArray_DIM(mask, i) == PyArray_DIM(array, i);
        bool stays = asked->keeps_dims || !asked->reduced[i];
        if (out && stays && fits) {
            npy_intp size = asked->reduced[i] ? 1 : PyArray_DIM(array, i);
            fits = k < PyArray_NDIM(out) && PyArray_DIM(out, k) == size;
        }
        k += stays;
    }
    return fits && (!out || (PyArray_NDIM(out) == k &&
                             PyArray_ITEMSIZE(out) == (int)PyDataType_ELSIZE(asked->type)));
}

static PyArrayObject *array_or_none(PyObject *object)
{
    return object == Py_None ? NULL : (PyArrayObject *)object;
}

/* (dtypes of the elements and of the sums, as lines of dtypes.def; that of the sums as NumPy's;
 * out, mask, initial) */
static int take_details(request *asked, PyObject *details)
{
    int source, wanted;
    PyObject *type, *out, *mask, *initial;
    if (!PyArg_ParseTuple(details, "iiOOOO", &source, &wanted, &type, &out, &mask, &initial))
        return -1;
    if (!PyArray_DescrCheck(type) || !(out == Py_None || PyArray_Check(out)) ||
        !(mask == Py_None || PyArray_Check(mask))) {
        PyErr_SetString(PyExc_TypeError, "expected a dtype and arrays");
        return -1;
    }
    asked->how = gr_how_of(source, wanted, asked->how.exactly, GR_ON_PROCESSORS, GR_GROUPS_AXES);
    if (asked->how.refusal || asked->how.elements >= 0) {
        PyErr_SetString(PyExc_ValueError, "no such dtypes, or elements that are to be converted");
        return -1;
    }
    asked->type = (PyArray_Descr *)type;
    asked->out = array_or_none(out);
    asked->mask = array_or_none(mask);
    return gr_take_initial(initial, &asked->initial);
}

PyObject *gr_py_sum_axis(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    request asked;
    if (count < 5 || count > 6 || !PyArray_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "expected an array, axes, two truth values, and what "
                                         "makes a timing's fields or None");
        return NULL;
    }
    asked.array = (PyArrayObject *)args[0];
    asked.out = asked.mask = NULL;
    asked.unrounded = false;
    asked.keeps_dims = args[2] == Py_True;
    asked.how.exactly = args[3] == Py_True;
    asked.initial.integer = 0;
    asked.initial.count[0] = asked.initial.count[1] = 0;
    if (count == 5)
        return sum_plainly(&asked, args);
    if (take_details(&asked, args[5]) < 0)
        return NULL;
    if (!gr_take_axes(args[1], PyArray_NDIM(asked.array), asked.reduced)) {
        PyErr_SetString(PyExc_ValueError, "no such axes");
        return NULL;
    }
    if (!shapes_fit(&asked)) {
        PyErr_SetString(PyExc_ValueError, "the array changed its shape during the call");
        return NULL;
    }
    double start = gr_now_ms();
    PyObject *value = sums_of(&asked);
    return value ? Py_BuildValue("Nd", value, gr_now_ms() - start) : NULL;
}

/* Whether `out` takes unrounded sums: the array's shape after an axis of size 4, with reduced axes
 * of size 1. */
static bool takes_numbers(const request *asked)
{
    PyArrayObject *array = asked->array, *out = asked->out;
    int dims = PyArray_NDIM(array);
    bool fits = PyArray_TYPE(out) == NPY_FLOAT64 && PyArray_IS_C_CONTIGUOUS(out) &&
                PyArray_ISWRITEABLE(out) && PyArray_NDIM(out) == dims + 1 &&
                PyArray_DIM(out, 0) == 4;
    for (int i = 0; i < dims && fits; i++)
        fits = PyArray_DIM(out, i + 1) == (asked->reduced[i] ? 1 : PyArray_DIM(array, i));
    return fits;
}

PyObject *gr_py_unrounded_axes(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *axes;
    request asked = {.keeps_dims = true, .unrounded = true};
    if (!PyArg_ParseTuple(args, "O!OO!", &PyArray_Type, &asked.array, &axes, &PyArray_Type,
                          &asked.out))
        return NULL;
    const gr_numpy_type *type = gr_numpy_type_of_elements((PyObject *)asked.array);
    if (!type || type->components != 1 || !gr_is_float(type->load) ||
        !gr_take_axes(axes, PyArray_NDIM(asked.array), asked.reduced) || !takes_numbers(&asked)) {
        PyErr_SetString(PyExc_ValueError, "expected native floats, axes, and an array for sums");
        return NULL;
    }
    asked.how.load = type->load;
    asked.how.parts = 1;
    if (run(&asked, asked.out) < 0)
        return NULL;
    size_t sums = (size_t)PyArray_SIZE(asked.out) / 4;
    const double *errors = (const double *)PyArray_DATA(asked.out) + 3 * sums;
    bool exact = true;
    for (size_t i = 0; i < sums; i++)
        exact &= errors[i] == 0;
    return PyBool_FromLong(exact);
}
