/* Running sums. */
#include "bindings/host/functions.h"

#include "bindings/gil.h"
#include "exact/format.h"
#include "exact/rolling.h"
#include "exact/running.h"
#include "exact/words.h"

#include <stdlib.h>

/* Describes the arrays. Returns false if they do not fit: user code may have run since Python has
 * checked them. */
static bool describe(PyArrayObject *array, PyArrayObject *out, int axis, gr_running *of)
{
    int dims = PyArray_NDIM(array);
    bool fits = PyArray_NDIM(out) == dims && axis >= 0 && axis < dims &&
                (size_t)PyArray_ITEMSIZE(array) == gr_load_size(of->load) &&
                (size_t)PyArray_ITEMSIZE(out) == gr_load_size(of->target) &&
                PyArray_ISWRITEABLE(out) && PyArray_ISNOTSWAPPED(out);
    for (int i = 0; i < dims && fits; i++) {
        gr_axis dim = {.size = (size_t)PyArray_DIM(array, i),
                       .in = PyArray_STRIDE(array, i),
                       .out = PyArray_STRIDE(out, i)};
        fits = dim.size > 0 && PyArray_DIM(out, i) == PyArray_DIM(array, i);
        if (i == axis)
            of->axis = dim;
        else
            gr_axes_push(&of->kept, dim);
    }
    of->in = PyArray_DATA(array);
    of->out = PyArray_DATA(out);
    of->swapped = PyArray_ISBYTESWAPPED(array);
    return fits;
}

/* Takes None, or int64 offsets: a copy that Python has made and checked. */
static bool take_offsets(PyObject *offsets, gr_running *of)
{
    PyArrayObject *array = (PyArrayObject *)offsets;
    if (offsets == Py_None)
        return true;
    bool fits = PyArray_Check(offsets) && PyArray_NDIM(array) == 1 && PyArray_DIM(array, 0) > 1 &&
                PyArray_ITEMSIZE(array) == sizeof(int64_t) && PyArray_IS_C_CONTIGUOUS(array);
    if (!fits)
        return false;
    of->offsets = PyArray_DATA(array);
    of->segments = (size_t)PyArray_DIM(array, 0) - 1;
    return (size_t)of->offsets[of->segments] == of->axis.size;
}

/* Takes the digits of the sum before each row. Returns 0, or -1 with an exception set. */
static int take_digits(PyObject *digits, gr_running *of)
{
    size_t rows = gr_axes_size(&of->kept);
    const int64_t *words = gr_data_of(digits, rows * GR_WORDS * sizeof *words);
    gr_load load;
    if (!words || of->offsets) {
        PyErr_SetString(PyExc_ValueError, "expected the digits of each row");
        return -1;
    }
    of->before = malloc(rows * sizeof *of->before);
    if (!of->before) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t i = 0; i < rows; i++, words += GR_WORDS) {
        gr_words_error error = gr_exact_from_words(words, 1, &of->before[i], &load);
        if (error != GR_WORDS_OK)
            return gr_check_words(error, gr_words_added(words));
    }
    return 0;
}

PyObject *gr_py_running_sums(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyArrayObject *array, *out;
    PyObject *offsets, *digits = Py_None;
    gr_running of = {.kept = {.count = 0}};
    int axis, load, target;
    if (!PyArg_ParseTuple(args, "O!iOiiO!|O", &PyArray_Type, &array, &axis, &offsets, &load,
                          &target, &PyArray_Type, &out, &digits))
        return NULL;
    of.load = (gr_load)load;
    of.target = (gr_load)target;
    if (!gr_is_float(of.load) || !gr_is_float(of.target) || !describe(array, out, axis, &of) ||
        !take_offsets(offsets, &of)) {
        PyErr_SetString(PyExc_ValueError, "expected arrays of floats of one shape, not empty");
        return NULL;
    }
    if (digits != Py_None && take_digits(digits, &of) < 0) {
        free(of.before);
        return NULL;
    }
    gr_without_gil call;
    gr_drop_gil(&call);
    bool done = gr_running_sums(&of, 0);
    free(of.before);
    if (gr_take_gil(&call) < 0)
        return NULL;
    return done ? Py_NewRef(Py_None) : PyErr_NoMemory();
}

/* Takes the memory of the rows and of their windows' results. Returns false if these do not fit. */
static bool take_rows(PyArrayObject *array, PyArrayObject *out, gr_rolling *of)
{
    ptrdiff_t size = (ptrdiff_t)gr_load_size(of->how.target), wide = sizeof(double);
    bool any_step = of->rows >= GR_ROLL_ROWS && !of->starts;
    if (PyArray_NDIM(out) != 2 || PyArray_ITEMSIZE(out) != size || !PyArray_ISBEHAVED(out) ||
        PyArray_ITEMSIZE(array) != wide || !PyArray_ISBEHAVED_RO(array) ||
        PyArray_DIM(out, 0) != (npy_intp)of->rows || PyArray_DIM(out, 1) != (npy_intp)of->windows)
        return false;
    of->in = PyArray_DATA(array);
    of->out = PyArray_DATA(out);
    of->row = PyArray_STRIDE(array, 0) / wide;
    of->step = of->n > 1 ? PyArray_STRIDE(array, 1) / wide : 1;
    of->out_row = PyArray_STRIDE(out, 0);
    of->out_step = of->windows > 1 ? PyArray_STRIDE(out, 1) : size;
    return (of->step == 1 || any_step) &&
           (of->out_step == size || (of->out_row == size && any_step));
}

PyObject *gr_py_rolling(PyObject *Py_UNUSED(module), PyObject *args)
{
    gr_rolling of = {.how = {.first_count = 1, .parts = 1}};
    PyObject *array, *starts, *ends;
    PyArrayObject *out;
    int kind, root, divides, target;
    if (!PyArg_ParseTuple(args, "ippdOOOnnniO!", &kind, &root, &divides, &of.how.ddof, &array,
                          &starts, &ends, &of.size, &of.after, &of.least, &target, &PyArray_Type,
                          &out))
        return NULL;
    of.how.kind = (gr_finish_kind)kind;
    of.how.root = root;
    of.how.second_count = kind == GR_FINISH_VARIANCE;
    of.how.target = (gr_load)target;
    of.divides = divides;
    bool fits = PyArray_Check(array) && PyArray_NDIM((PyArrayObject *)array) == 2 &&
                (starts == Py_None || PyArray_Check(starts)) && gr_is_float(of.how.target) &&
                (kind == GR_FINISH_VARIANCE || kind == GR_FINISH_RATIO);
    of.rows = fits ? (size_t)PyArray_DIM((PyArrayObject *)array, 0) : 0;
    of.n = fits ? (size_t)PyArray_DIM((PyArrayObject *)array, 1) : 0;
    of.windows = of.n;
    if (fits && starts != Py_None) {
        of.windows = (size_t)PyArray_SIZE((PyArrayObject *)starts);
        of.starts = gr_data_of(starts, of.windows * sizeof(int64_t));
        of.ends = gr_data_of(ends, of.windows * sizeof(int64_t));
        fits = of.starts && of.ends;
    }
    fits = fits && take_rows((PyArrayObject *)array, out, &of);
    for (size_t i = 0; i < of.windows && fits && of.starts; i++)
        fits = of.starts[i] >= 0 && of.starts[i] <= of.ends[i] && (size_t)of.ends[i] <= of.n;
    fits = fits && of.windows > 0 && of.size >= 0 && (size_t)of.size / 2 <= of.n && of.after >= 0 &&
           of.after <= of.size;
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "expected rows, windows of them, and results");
        return NULL;
    }
    gr_without_gil call;
    gr_drop_gil(&call);
    bool done = gr_rolling_results(&of);
    if (gr_take_gil(&call) < 0)
        return NULL;
    return done ? Py_NewRef(Py_None) : PyErr_NoMemory();
}
