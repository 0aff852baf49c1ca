/* Sums by segment. */
#include "bindings/host/functions.h"

#include "bindings/gil.h"
#include "exact/format.h"
#include "segments/segments.h"
#include "shared/how.h"
#include "threads/clock.h"

#include <string.h>

enum {
    KEEPS_GIL_BYTES = 1 << 14, /* of values and sums */
    KEEPS_GIL_ROWS = 1 << 14   /* which may have no columns, and so no bytes */
};

typedef struct {
    PyArrayObject *values, *ids, *offsets, *out; /* one of `ids` and `offsets` is NULL */
    gr_segments segments;
} request;

/* Whether `out` has one more axis than sums have, for digits. */
static bool takes_digits(const request *asked)
{
    return PyArray_NDIM(asked->out) == PyArray_NDIM(asked->values) + 1;
}

/* Whether the items of `out` are sums of the target's type, or the digits of sums. */
static bool items_fit(const request *asked)
{
    const gr_segment_sums *sums = &asked->segments.sums;
    PyArrayObject *out = asked->out;
    int dims = PyArray_NDIM(asked->values);
    size_t size = gr_load_size(sums->target) * (size_t)sums->parts;
    if (!takes_digits(asked))
        return PyArray_NDIM(out) == dims && (size_t)PyArray_ITEMSIZE(out) == size;
    return PyArray_TYPE(out) == NPY_INT64 && PyArray_IS_C_CONTIGUOUS(out) &&
           PyArray_ISWRITEABLE(out) && sums->parts == asked->segments.values.parts &&
           sums->is_float && (size_t)PyArray_DIM(out, dims) == gr_exact_words(sums->parts);
}

/* Whether the inputs still have the shapes and item sizes that Python checked: user code may have
 * run since. */
static bool inputs_fit(const request *asked, npy_intp segments)
{
    const gr_segments *all = &asked->segments;
    PyArrayObject *values = asked->values;
    int dims = PyArray_NDIM(values);
    size_t size = gr_load_size(all->values.load) * (size_t)all->values.parts;
    bool fits = (dims == 1 || dims == 2) && !gr_holds_objects(values) &&
                (size_t)PyArray_ITEMSIZE(values) == size;
    if (fits && asked->ids)
        return PyArray_NDIM(asked->ids) == 1 && PyArray_ISINTEGER(asked->ids) &&
               PyArray_DIM(asked->ids, 0) == PyArray_DIM(values, 0);
    return fits && PyArray_NDIM(asked->offsets) == 1 && PyArray_ITEMSIZE(asked->offsets) == 8 &&
           PyArray_ISINTEGER(asked->offsets) && PyArray_ISNOTSWAPPED(asked->offsets) &&
           PyArray_IS_C_CONTIGUOUS(asked->offsets) &&
           PyArray_DIM(asked->offsets, 0) == segments + 1;
}

/* The same check for all arrays of the request. */
static bool shapes_fit(const request *asked)
{
    PyArrayObject *values = asked->values, *out = asked->out;
    return items_fit(asked) && !gr_holds_objects(out) && inputs_fit(asked, PyArray_DIM(out, 0)) &&
           (PyArray_NDIM(values) == 1 || PyArray_DIM(values, 1) == PyArray_DIM(out, 1));
}

static void describe_inputs(request *asked)
{
    gr_segments *all = &asked->segments;
    PyArrayObject *values = asked->values, *ids = asked->ids;
    bool columns = PyArray_NDIM(values) == 2;
    all->values.data = PyArray_DATA(values);
    all->values.rows = (size_t)PyArray_DIM(values, 0);
    all->values.row_step = PyArray_STRIDE(values, 0);
    all->values.columns = columns ? (size_t)PyArray_DIM(values, 1) : 1;
    all->values.column_step = columns ? PyArray_STRIDE(values, 1) : 0;
    all->values.swapped = PyArray_ISBYTESWAPPED(values);
    if (!ids) {
        all->ids.offsets = PyArray_DATA(asked->offsets);
        return;
    }
    all->ids.data = PyArray_DATA(ids);
    all->ids.step = PyArray_STRIDE(ids, 0);
    all->ids.size = (size_t)PyArray_ITEMSIZE(ids);
    all->ids.is_signed = PyArray_ISSIGNED(ids);
    all->ids.swapped = PyArray_ISBYTESWAPPED(ids);
}

static void describe(request *asked)
{
    gr_segments *all = &asked->segments;
    PyArrayObject *out = asked->out;
    describe_inputs(asked);
    all->sums.data = PyArray_DATA(out);
    all->sums.words = takes_digits(asked) ? PyArray_DATA(out) : NULL;
    all->sums.segments = (size_t)PyArray_DIM(out, 0);
    all->sums.row_step = PyArray_STRIDE(out, 0);
    all->sums.column_step = PyArray_NDIM(asked->values) == 2 ? PyArray_STRIDE(out, 1) : 0;
}

/* Adds up, without the GIL if that takes long. Returns a status, or -1 with an exception set. */
static int run(const request *asked, size_t *bad_row)
{
    const gr_segments *all = &asked->segments;
    if (PyArray_NBYTES(asked->values) + PyArray_NBYTES(asked->out) <= KEEPS_GIL_BYTES &&
        all->values.rows <= KEEPS_GIL_ROWS)
        return gr_sum_segments_on_host(all, 1, bad_row);
    gr_without_gil call;
    gr_drop_gil(&call);
    int status = gr_sum_segments_on_host(all, 0, bad_row);
    return gr_take_gil(&call) < 0 ? -1 : status;
}

/* Takes ids and offsets, one of which is None. Returns 0, or -1 with an exception set. */
static int take_groups(request *asked, PyObject *ids, PyObject *offsets)
{
    asked->ids = ids == Py_None ? NULL : (PyArrayObject *)ids;
    asked->offsets = offsets == Py_None ? NULL : (PyArrayObject *)offsets;
    if ((!asked->ids || PyArray_Check(ids)) && (!asked->offsets || PyArray_Check(offsets)) &&
        !asked->ids != !asked->offsets)
        return 0;
    PyErr_SetString(PyExc_TypeError, "expected an array of ids or of offsets");
    return -1;
}

static int refuse_shapes(void)
{
    PyErr_SetString(PyExc_ValueError, "an array changed its shape during the call");
    return -1;
}

/* The first row whose id is out of range, or -1. Returns -2 with an exception set. */
static Py_ssize_t first_bad(const request *asked)
{
    size_t bad_row = 0;
    int status = run(asked, &bad_row);
    if (status == GR_SEGMENTS_NO_MEMORY)
        PyErr_NoMemory();
    if (status == GR_SEGMENTS_NO_MEMORY || status < 0)
        return -2;
    return status == GR_SEGMENTS_BAD_ID ? (Py_ssize_t)bad_row : -1;
}

PyObject *gr_py_sum_segments(PyObject *Py_UNUSED(module), PyObject *args)
{
    request asked = {.values = NULL};
    gr_segments *all = &asked.segments;
    int source, wanted, skips = 0;
    PyObject *ids, *offsets, *initial;
    if (!PyArg_ParseTuple(args, "O!OOO!iiO|p", &PyArray_Type, &asked.values, &ids, &offsets,
                          &PyArray_Type, &asked.out, &source, &wanted, &initial, &skips))
        return NULL;
    all->ids.skips = skips;
    if (take_groups(&asked, ids, offsets) < 0)
        return NULL;
    gr_how how = gr_how_of(source, wanted, true, GR_ON_PROCESSORS, GR_GROUPS_IDS);
    if (how.refusal) {
        PyErr_SetString(PyExc_ValueError, "no such dtypes");
        return NULL;
    }
    all->values.load = how.load;
    all->values.parts = how.parts;
    all->values.is_signed = PyArray_ISSIGNED(asked.values);
    all->sums.target = how.target;
    all->sums.parts = how.sum_parts;
    all->sums.is_float = how.exactly;
    if (gr_take_initial(initial, &all->initial) < 0)
        return NULL;
    if (!shapes_fit(&asked) && refuse_shapes() < 0)
        return NULL;
    describe(&asked);
    double start = gr_now_ms();
    Py_ssize_t bad = first_bad(&asked);
    return bad < -1 ? NULL : Py_BuildValue("dn", gr_now_ms() - start, bad);
}

PyObject *gr_py_finish_segments(PyObject *Py_UNUSED(module), PyObject *args)
{
    request asked = {.values = NULL};
    gr_segments *all = &asked.segments;
    gr_segment_finish finish = {.counts = NULL};
    gr_finish_how *how = &finish.how;
    PyObject *ids, *offsets, *counts, *unknown;
    int kind, root, load, target, skips;
    Py_ssize_t segments;
    if (!PyArg_ParseTuple(args, "ipidO!OOniOiO!Op", &kind, &root, &how->parts, &how->ddof,
                          &PyArray_Type, &asked.values, &ids, &offsets, &segments, &load, &counts,
                          &target, &PyArray_Type, &asked.out, &unknown, &skips) ||
        take_groups(&asked, ids, offsets) < 0)
        return NULL;
    how->kind = (gr_finish_kind)kind;
    how->root = root;
    how->target = (gr_load)target;
    how->first_count = how->parts;
    how->second_count = kind == GR_FINISH_VARIANCE ? how->parts : 0;
    bool fits = (how->parts == 1 || how->parts == 2) && gr_is_float((gr_load)load) &&
                gr_is_float(how->target) && segments >= 0 &&
                (kind == GR_FINISH_RATIO || kind == GR_FINISH_VARIANCE);
    all->values.load = fits ? (gr_load)load : GR_LOAD_f64;
    all->values.parts = all->sums.parts = 1;
    all->sums.target = GR_LOAD_f64;
    all->sums.is_float = true;
    if ((!fits || !inputs_fit(&asked, segments)) && refuse_shapes() < 0)
        return NULL;
    all->ids.skips = skips;
    describe_inputs(&asked);
    size_t columns = all->values.columns, parts = (size_t)how->parts;
    size_t count = (size_t)PyArray_SIZE(asked.out);
    finish.counts_results = PyArray_Check(counts) && PyArray_NDIM((PyArrayObject *)counts) == 2;
    size_t numbers = finish.counts_results ? count : (size_t)segments;
    finish.counts = gr_data_of(counts, numbers * sizeof(int64_t));
    finish.out = gr_data_of((PyObject *)asked.out, count * gr_load_size(how->target));
    finish.unknown = gr_data_of(unknown, count);
    if ((!finish.counts || !finish.out || !finish.unknown || columns % parts != 0 ||
         (columns > 0 && (size_t)segments > count / (columns / parts))) &&
        refuse_shapes() < 0)
        return NULL;
    all->sums.segments = (size_t)segments;
    all->sums.finish = &finish;
    Py_ssize_t bad = first_bad(&asked);
    return bad < -1 ? NULL : PyLong_FromSsize_t(bad);
}

PyObject *gr_py_number_groups(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyArrayObject *array[5];
    void *data[5];
    long long least;
    if (!PyArg_ParseTuple(args, "O!LO!O!O!O!", &PyArray_Type, &array[0], &least, &PyArray_Type,
                          &array[1], &PyArray_Type, &array[2], &PyArray_Type, &array[3],
                          &PyArray_Type, &array[4]))
        return NULL;
    bool fits = PyArray_SIZE(array[0]) == PyArray_SIZE(array[1]) &&
                PyArray_SIZE(array[2]) == PyArray_SIZE(array[3]);
    for (int i = 0; i < 5; i++) {
        data[i] = gr_data_of((PyObject *)array[i], (size_t)PyArray_NBYTES(array[i]));
        int type = PyArray_TYPE(array[i]);
        fits = fits && data[i] && (type == NPY_INT64 || (type == NPY_INT32 && i == 1));
    }
    if (!fits && refuse_shapes() < 0)
        return NULL;
    gr_numbering of = {.keys = data[0],
                       .rows = (size_t)PyArray_SIZE(array[0]),
                       .range = (size_t)PyArray_SIZE(array[4]),
                       .most = (size_t)PyArray_SIZE(array[2]),
                       .least = least,
                       .numbers = data[4],
                       .ids = data[1],
                       .ids_size = (size_t)PyArray_ITEMSIZE(array[1]),
                       .counts = data[2],
                       .first = data[3]};
    size_t groups;
    gr_without_gil call;
    gr_drop_gil(&call);
    bool done = gr_number_groups(&of, &groups);
    if (gr_take_gil(&call) < 0 || (!done && refuse_shapes() < 0))
        return NULL;
    return PyLong_FromSize_t(groups);
}
