/* Results made of exact sums. gpureduce/core/moments.py chooses the terms that are added up. */
#include "bindings/host/functions.h"

#include "bindings/gil.h"
#include "cpu/floating_point_mode.h"
#include "exact/finish.h"
#include "exact/format.h"
#include "exact/proven_kernels.h"
#include "shared/how.h"
#include "threads/pool.h"

#include <math.h>

/* Copies an array's steps, since other threads may change its shape. Returns false if its shape is
 * not the job's. */
static bool take_steps(const gr_finish_job *job, PyArrayObject *array, ptrdiff_t *steps)
{
    bool fits = PyArray_NDIM(array) == job->dims;
    for (int i = 0; fits && i < job->dims; i++) {
        fits = (size_t)PyArray_DIM(array, i) == job->size[i];
        steps[i] = PyArray_STRIDE(array, i);
    }
    return fits;
}

/* Takes the shape of an array. Returns false if it has no elements. */
static bool take_shape(gr_finish_job *job, PyArrayObject *array)
{
    bool has_elements = true;
    job->dims = PyArray_NDIM(array);
    for (int i = 0; i < job->dims; i++) {
        job->size[i] = (size_t)PyArray_DIM(array, i);
        has_elements = has_elements && job->size[i] > 0;
    }
    return has_elements;
}

static size_t group_count(const gr_finish_job *job)
{
    size_t count = 1;
    for (int i = 0; i < job->dims; i++)
        count *= job->reduced[i] ? 1 : job->size[i];
    return count;
}

/* Runs the job, without the GIL if that takes long. Returns 0, or -1 with an exception set. */
static int run(gr_finish_job *job, bool is_small)
{
    gr_without_gil call;
    if (!is_small)
        gr_drop_gil(&call);
    bool done = gr_finish_axes(job);
    if (!is_small && gr_take_gil(&call) < 0)
        return -1;
    if (!done)
        PyErr_NoMemory();
    return done ? 0 : -1;
}

/* --- any arrays ---------------------------------------------------------------------------------
 */

/* Takes (term, load, array, other array or mask or None). */
static bool take_sum(const gr_finish_job *job, PyObject *given, gr_finish_sum *sum)
{
    PyObject *array, *other;
    int term, load;
    if (!PyTuple_Check(given) || !PyArg_ParseTuple(given, "iiOO", &term, &load, &array, &other) ||
        !PyArray_Check(array) || !(other == Py_None || PyArray_Check(other)))
        return false;
    sum->term = (gr_term)term;
    sum->load = (gr_load)load;
    sum->in = PyArray_DATA((PyArrayObject *)array);
    sum->other = other == Py_None ? NULL : PyArray_DATA((PyArrayObject *)other);
    size_t size = gr_load_size(sum->load), other_size = term >= GR_TERM_PRODUCT ? size : 1;
    return term >= 0 && term <= GR_TERM_PRODUCT && gr_is_float(sum->load) &&
           (size_t)PyArray_ITEMSIZE((PyArrayObject *)array) == size &&
           take_steps(job, (PyArrayObject *)array, sum->in_step) &&
           (other == Py_None ? term < GR_TERM_PRODUCT
                             : (size_t)PyArray_ITEMSIZE((PyArrayObject *)other) == other_size &&
                                   take_steps(job, (PyArrayObject *)other, sum->other_step));
}

/* Takes the shape of the first sum's array. Returns false if there is none, or it is empty. */
static bool take_first_shape(gr_finish_job *job, PyObject *sums)
{
    PyObject *one = PyTuple_Size(sums) > 0 ? PyTuple_GetItem(sums, 0) : Py_None;
    if (!PyTuple_Check(one) || PyTuple_Size(one) != 4)
        return false;
    PyObject *array = PyTuple_GetItem(one, 2);
    return PyArray_Check(array) && take_shape(job, (PyArrayObject *)array);
}

/* Returns how many sums there are, or -1. */
static int take_sums(gr_finish_job *job, PyObject *tuple, gr_finish_sum *sums)
{
    Py_ssize_t count = PyTuple_Size(tuple);
    if (count > GR_FINISH_SUMS)
        return -1;
    for (Py_ssize_t i = 0; i < count; i++)
        if (!take_sum(job, PyTuple_GetItem(tuple, i), &sums[i]))
            return -1;
    return (int)count;
}

void *gr_data_of(PyObject *object, size_t bytes)
{
    PyArrayObject *array = (PyArrayObject *)object;
    bool fits = PyArray_Check(object) && PyArray_IS_C_CONTIGUOUS(array) &&
                (size_t)PyArray_NBYTES(array) == bytes;
    return fits ? PyArray_DATA(array) : NULL;
}

static PyObject *finish(PyObject *args, gr_finish_sum *sums)
{
    gr_finish_job job = {.sums = sums};
    PyObject *first, *second, *axes, *n, *mean, *out;
    int kind, root, target;
    if (!PyArg_ParseTuple(args, "ipiO!O!O!OOdiO", &kind, &root, &job.how.parts, &PyTuple_Type,
                          &first, &PyTuple_Type, &second, &PyTuple_Type, &axes, &n, &mean,
                          &job.how.ddof, &target, &out))
        return NULL;
    job.how.kind = (gr_finish_kind)kind;
    job.how.root = root;
    job.how.target = (gr_load)target;
    bool fits = take_first_shape(&job, first);
    job.how.first_count = fits ? take_sums(&job, first, sums) : -1;
    fits = job.how.first_count > 0 && (job.how.parts == 1 || job.how.parts == 2) &&
           job.how.first_count % job.how.parts == 0;
    job.how.second_count = fits ? take_sums(&job, second, sums + job.how.first_count) : -1;
    fits = job.how.second_count >= (kind != GR_FINISH_RATIO) && gr_is_float(job.how.target) &&
           gr_take_axes(axes, job.dims, job.reduced);
    size_t count = fits ? group_count(&job) : 0;
    job.n = gr_data_of(n, count * sizeof(double));
    job.out = gr_data_of(out, count * gr_load_size(job.how.target));
    job.mean = mean == Py_None ? NULL : gr_data_of(mean, count * sizeof(double));
    if (!fits || !job.n || !job.out || (mean != Py_None && !job.mean) ||
        (kind == GR_FINISH_DEVIATION) != (mean != Py_None)) {
        PyErr_Clear();
        PyErr_SetString(PyExc_TypeError, "expected arrays of one shape, and of their results");
        return NULL;
    }
    if (run(&job, false) < 0)
        return NULL;
    Py_RETURN_NONE;
}

PyObject *gr_py_finish(PyObject *Py_UNUSED(module), PyObject *args)
{
    gr_finish_sum *sums = PyMem_Calloc(2 * GR_FINISH_SUMS, sizeof *sums);
    if (!sums)
        return PyErr_NoMemory();
    PyObject *done = finish(args, sums);
    PyMem_Free(sums);
    return done;
}

/* --- sums that are added up already ------------------------------------------------------------
 */

static void add_levels(size_t task, void *context)
{
    gr_arithmetic before = gr_begin_plain();
    gr_proven_best()->add_levels(context, task);
    gr_end_plain(before);
}

PyObject *gr_py_sum_levels(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyArrayObject *array;
    gr_without_gil call;
    int in_rows, has_x;
    if (!PyArg_ParseTuple(args, "O!pp", &PyArray_Type, &array, &in_rows, &has_x))
        return NULL;
    int type = PyArray_TYPE(array);
    if ((type != NPY_FLOAT32 && type != NPY_FLOAT64) || PyArray_ISBYTESWAPPED(array) ||
        PyArray_NDIM(array) != 2 || PyArray_SIZE(array) == 0 ||
        (PyArray_STRIDE(array, 1) != PyArray_ITEMSIZE(array) && PyArray_DIM(array, 1) > 1)) {
        PyErr_SetString(PyExc_TypeError, "expected a matrix of floats with contiguous rows");
        return NULL;
    }
    gr_levels of = {.in = PyArray_DATA(array),
                    .load = type == NPY_FLOAT32 ? GR_LOAD_f32 : GR_LOAD_f64,
                    .in_rows = in_rows,
                    .has_x = has_x,
                    .groups = (size_t)PyArray_DIM(array, !in_rows),
                    .n = (size_t)PyArray_DIM(array, in_rows),
                    .row_step = PyArray_STRIDE(array, 0)};
    size_t pieces = (of.n - 1) / gr_level_piece(in_rows) + 1;
    npy_intp levels = has_x ? GR_LEVELS : GR_LEVELS - GR_LEVELS_OF_X;
    npy_intp shape[3] = {(npy_intp)pieces, levels, (npy_intp)of.groups};
    PyObject *out = PyArray_SimpleNew(3, shape, NPY_FLOAT64);
    if (!out)
        return NULL;
    of.out = PyArray_DATA((PyArrayObject *)out);
    gr_drop_gil(&call);
    gr_parallel(1, pieces * ((of.groups - 1) / GR_LEVEL_GROUPS + 1), add_levels, &of);
    if (gr_take_gil(&call) < 0)
        Py_CLEAR(out);
    return out;
}

PyObject *gr_py_finish_sums(PyObject *Py_UNUSED(module), PyObject *args)
{
    gr_finish_how how = {.ddof = 0};
    gr_finish_planes planes = {.mean = NULL};
    PyObject *sums, *n, *out, *unknown;
    int kind, root, target;
    if (!PyArg_ParseTuple(args, "ipiidiOOiOO", &kind, &root, &how.parts, &how.first_count,
                          &how.ddof, &how.second_count, &sums, &n, &target, &out, &unknown))
        return NULL;
    size_t count = PyArray_Check(n) ? (size_t)PyArray_SIZE((PyArrayObject *)n) : 0;
    size_t all = (size_t)how.first_count + (size_t)how.second_count;
    bool fits = (how.parts == 1 || how.parts == 2) && how.first_count > 0 &&
                how.first_count % how.parts == 0 && how.first_count <= GR_FINISH_SUMS &&
                how.second_count >= 0 && how.second_count <= GR_FINISH_SUMS &&
                gr_is_float((gr_load)target) && kind != GR_FINISH_DEVIATION &&
                (kind == GR_FINISH_RATIO || how.second_count > 0);
    how.kind = (gr_finish_kind)kind;
    how.root = root;
    how.target = (gr_load)target;
    planes.stride = count + GR_FINISH_BATCH;
    const double *numbers =
        fits ? gr_data_of(sums, all * 4 * planes.stride * sizeof(double)) : NULL;
    unsigned char *to = gr_data_of(out, count * gr_load_size(how.target));
    unsigned char *marks = gr_data_of(unknown, count);
    planes.n = gr_data_of(n, count * sizeof(double));
    if (!numbers || !to || !marks || !planes.n) {
        PyErr_SetString(PyExc_TypeError, "expected planes of sums, and arrays of their results");
        return NULL;
    }
    for (size_t i = 0; i < all; i++, numbers += 4 * planes.stride) {
        size_t first = (size_t)how.first_count;
        *(i < first ? &planes.first[i] : &planes.second[i - first]) = numbers;
    }
    return PyLong_FromSize_t(gr_finish_sums_of(&how, planes, count, to, marks));
}

/* --- one array, as it is ------------------------------------------------------------------------
 */

static PyArrayObject *new_results(const gr_finish_job *job, PyArrayObject *like, bool keeps_dims)
{
    npy_intp shape[GR_MOST_AXES];
    int dims = 0;
    for (int i = 0; i < job->dims; i++)
        if (keeps_dims || !job->reduced[i])
            shape[dims++] = job->reduced[i] ? 1 : (npy_intp)job->size[i];
    PyArray_Descr *type = PyArray_DESCR(like);
    Py_INCREF((PyObject *)type);
    return (PyArrayObject *)PyArray_NewFromDescr(&PyArray_Type, type, dims, shape, NULL, NULL, 0,
                                                 NULL);
}

/* Takes the array, and the second factors of products, or NULL. Returns false if they need a
 * conversion or have no elements. */
static bool take_plain(gr_finish_job *job, PyObject *array, PyObject *other, gr_finish_sum *like)
{
    const gr_numpy_type *type = gr_numpy_type_of_elements(array);
    if (!type || (other && gr_numpy_type_of_elements(other) != type))
        return false;
    gr_how how = gr_how_of(gr_dtype_of(type), -1, true, GR_ON_PROCESSORS, GR_GROUPS_AXES);
    if (how.refusal || !gr_is_float(how.load) || how.parts != 1 || how.target != how.load ||
        PyArray_ISBYTESWAPPED((PyArrayObject *)array) || !take_shape(job, (PyArrayObject *)array) ||
        !take_steps(job, (PyArrayObject *)array, like->in_step))
        return false;
    like->in = PyArray_DATA((PyArrayObject *)array);
    like->load = job->how.target = how.load;
    like->other = other ? PyArray_DATA((PyArrayObject *)other) : NULL;
    return !other || (!PyArray_ISBYTESWAPPED((PyArrayObject *)other) &&
                      take_steps(job, (PyArrayObject *)other, like->other_step));
}

static bool take_ddof(gr_finish_job *job, PyObject *ddof)
{
    if (!PyFloat_CheckExact(ddof) && !PyLong_CheckExact(ddof))
        return false;
    job->how.ddof = PyFloat_AsDouble(ddof);
    bool fits = !PyErr_Occurred() && isfinite(job->how.ddof);
    PyErr_Clear();
    return fits;
}

/* (array, axis, keepdims, (kind, root, first term, second term or -1, whether over n), ddof, and of
 * products the other array) */
PyObject *gr_py_finish_plainly(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    gr_finish_sum sums[2] = {{.in = NULL}};
    gr_finish_job job = {.one_n = true, .sums = sums};
    int kind, root, terms[2], over_n;
    if (count < 5 || count > 6 || !PyTuple_Check(args[3]) ||
        !PyArg_ParseTuple(args[3], "ipiip", &kind, &root, &terms[0], &terms[1], &over_n) ||
        (count == 6) != (terms[0] == GR_TERM_PRODUCT) || terms[0] < 0 ||
        terms[0] > GR_TERM_PRODUCT || terms[1] > GR_TERM_SQUARE) {
        PyErr_SetString(PyExc_TypeError, "expected an array, axes, and what is made of it");
        return NULL;
    }
    if (!PyBool_Check(args[2]) || !take_ddof(&job, args[4]) ||
        !take_plain(&job, args[0], count == 6 ? args[5] : NULL, sums) ||
        !gr_take_axes(args[1], job.dims, job.reduced))
        Py_RETURN_NONE;
    PyArrayObject *array = (PyArrayObject *)args[0];
    job.how.kind = (gr_finish_kind)kind;
    job.how.root = root;
    job.how.parts = 1;
    job.how.first_count = 1;
    job.how.second_count = terms[1] >= 0;
    sums[1] = sums[0];
    for (int i = 0; i < 1 + job.how.second_count; i++)
        sums[i].term = (gr_term)terms[i];
    size_t groups = group_count(&job);
    double n = over_n ? (double)PyArray_SIZE(array) / (double)groups : 1;
    job.n = &n;
    if (!(n > job.how.ddof)) /* or nan; the caller in Python warns */
        Py_RETURN_NONE;
    PyArrayObject *out = new_results(&job, array, args[2] == Py_True);
    if (!out)
        return NULL;
    job.out = PyArray_DATA(out);
    if (run(&job, PyArray_NBYTES(array) <= GR_KEEPS_GIL_BYTES) < 0) {
        Py_DECREF((PyObject *)out);
        return NULL;
    }
    return PyArray_Return(out);
}
