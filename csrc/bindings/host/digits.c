/* Arrays of exact sums as digits: csrc/exact/words.h. gpureduce/core/digits.py makes the
 * arrays that are read and written here. */
#include "bindings/host/functions.h"

#include "bindings/gil.h"
#include "bindings/numpy_arrays.h"
#include "exact/exact.h"
#include "exact/finish_integers.h"
#include "exact/format.h"
#include "exact/words.h"
#include "threads/interrupts.h"
#include "threads/pool.h"

#include <stdatomic.h>
#include <string.h>

int gr_check_words(gr_words_error error, long long added)
{
    switch (error) {
    case GR_WORDS_OK: return 0;
    case GR_WORDS_BAD_NUMBER:
        PyErr_Format(PyExc_ValueError, "digits of 1 to 2^30 accumulators can be added, not %lld",
                     added);
        return -1;
    case GR_WORDS_BAD_FORMAT:
        PyErr_SetString(PyExc_ValueError,
                        "these digits are not the sum of digits of one dtype: were they added "
                        "once each, as 64-bit integers?");
        return -1;
    default:
        PyErr_SetString(PyExc_ValueError, "these numbers are not digits of accumulators: were they "
                                          "added as 64-bit integers?");
        return -1;
    }
}

/* The result made of two sums' digits, one after another: of n elements, and of their squares. */
typedef enum { GR_DIGITS_MEAN, GR_DIGITS_VAR, GR_DIGITS_STD, GR_DIGITS_NORM } gr_digits_finish;

/* Rows of contiguous elements, and the words of each row's sum. */
typedef struct {
    const char *data;
    size_t rows, n, each; /* elements of a row, and rows of a task */
    gr_load load, target;
    int components;
    int64_t *words;
    char *out;         /* of gr_py_round_digits() and gr_py_finish_digits() */
    const char *other; /* the other factors, if products of float64 numbers are added up */
    gr_digits_finish finish;
    double ddof;
    atomic_int failed;  /* a gr_words_error */
    atomic_llong added; /* of the row that failed */
} rows_job;

static size_t end_of(const rows_job *job, size_t task)
{
    size_t end = (task + 1) * job->each;
    return end < job->rows ? end : job->rows;
}

static void add_rows(size_t task, void *context)
{
    rows_job *job = context;
    size_t words = gr_exact_words(job->components);
    size_t bytes = job->n * (size_t)job->components * gr_load_size(job->load);
    for (size_t row = task * job->each; row < end_of(job, task); row++) {
        gr_exact sum[2];
        gr_exact_sum_array(job->data + row * bytes, job->n, job->load, job->components, 1, sum);
        sum[0].count = job->n;
        (void)gr_exact_to_words(sum, job->components, job->load, job->words + row * words);
    }
}

static void multiply_rows(size_t task, void *context)
{
    rows_job *job = context;
    size_t words = gr_exact_words(1);
    for (size_t row = task * job->each; row < end_of(job, task); row++) {
        gr_products sum;
        const double *x = (const double *)(const void *)job->data + row * job->n;
        const double *y = (const double *)(const void *)job->other + row * job->n;
        gr_products_init(&sum);
        gr_products_add_arrays(&sum, x, y, job->n);
        for (size_t i = 0; i < GR_PRODUCTS_PARTS; i++) {
            sum.part[i].count = job->n; /* limits the sizes of digits that are read */
            (void)gr_exact_to_words(&sum.part[i], 1, GR_LOAD_f64,
                                    job->words + (row * GR_PRODUCTS_PARTS + i) * words);
        }
    }
}

static void finish_row(const rows_job *job, const gr_exact *sum, const gr_products *squares,
                       char *out)
{
    bool is_spread = job->finish == GR_DIGITS_VAR || job->finish == GR_DIGITS_STD;
    bool is_norm = job->finish == GR_DIGITS_NORM;
    gr_finish_how how = {.kind = is_spread ? GR_FINISH_VARIANCE : GR_FINISH_RATIO,
                         .root = is_norm || job->finish == GR_DIGITS_STD,
                         .first_count = is_spread ? job->components : 1,
                         .second_count = is_spread,
                         .parts = is_spread ? job->components : 1,
                         .ddof = job->ddof,
                         .target = job->target};
    gr_finish_sums of;
    of.n = is_norm ? 1 : (double)sum[0].count;
    of.mean = 0;
    of.second[0] = *squares;
    for (int i = 0; i < job->components; i++) {
        gr_products_init(&of.first[i]);
        of.first[i].part[1] = sum[i];
    }
    if (is_norm) {
        of.first[0] = *squares;
        for (int i = 0; i < job->components; i++)
            of.first[0].part[1].flags |= sum[i].flags;
    }
    for (int i = 0; i < (job->finish == GR_DIGITS_MEAN ? job->components : 1); i++) {
        of.first[0] = i ? of.first[i] : of.first[0];
        gr_finish_in_integers(&how, &of, (unsigned char *)out);
        out += gr_load_size(job->target);
    }
}

/* Records an error, one of which is raised in the end. */
static bool has_failed(rows_job *job, gr_words_error error, const int64_t *words)
{
    if (error) {
        atomic_store(&job->failed, (int)error);
        atomic_store(&job->added, gr_words_added(words));
    }
    return error != 0;
}

static void finish_rows(size_t task, void *context)
{
    rows_job *job = context;
    bool has_squares = job->finish != GR_DIGITS_MEAN;
    size_t first = gr_exact_words(job->components), each = gr_exact_words(1);
    size_t words = first + has_squares * GR_PRODUCTS_PARTS * each;
    size_t size = gr_load_size(job->target) * (size_t)(has_squares ? 1 : job->components);
    for (size_t row = task * job->each; row < end_of(job, task); row++) {
        gr_exact sum[2];
        gr_products squares;
        gr_load load;
        const int64_t *from = job->words + row * words;
        gr_words_error error = gr_exact_from_words(from, job->components, sum, &load);
        gr_products_init(&squares);
        for (size_t i = 0; has_squares && !error && i < GR_PRODUCTS_PARTS; i++)
            error = gr_exact_from_words(from + first + i * each, 1, &squares.part[i], &load);
        if (has_failed(job, error, from))
            return;
        finish_row(job, sum, &squares, job->out + row * size);
    }
}

static void round_rows(size_t task, void *context)
{
    rows_job *job = context;
    size_t words = gr_exact_words(job->components), size = gr_load_size(job->target);
    for (size_t row = task * job->each; row < end_of(job, task); row++) {
        gr_exact sum[2];
        gr_load load;
        const int64_t *from = job->words + row * words;
        gr_words_error error = gr_exact_from_words(from, job->components, sum, &load);
        if (has_failed(job, error, from))
            return;
        for (int i = 0; i < job->components; i++) {
            uint64_t bits = gr_exact_round(&sum[i], job->target);
            memcpy(job->out + (row * (size_t)job->components + (size_t)i) * size, &bits, size);
        }
    }
}

/* Runs the rows in tasks of some thousand elements or words. */
static int run(rows_job *job, void (*task)(size_t, void *), size_t row_cost)
{
    enum { TASK = 1 << 14 };
    gr_without_gil call;
    job->each = row_cost < TASK ? TASK / (row_cost + 1) + 1 : 1;
    gr_drop_gil(&call);
    gr_parallel(0, (job->rows + job->each - 1) / job->each, task, job);
    if (gr_take_gil(&call) < 0)
        return -1;
    return gr_check_words((gr_words_error)atomic_load(&job->failed), atomic_load(&job->added));
}

static bool is_words(PyObject *object, size_t count)
{
    PyArrayObject *words = (PyArrayObject *)object;
    return PyArray_Check(object) && PyArray_TYPE(words) == NPY_INT64 &&
           PyArray_IS_C_CONTIGUOUS(words) && (size_t)PyArray_SIZE(words) == count;
}

PyObject *gr_py_sum_digits(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *data, *words, *factors = Py_None;
    Py_ssize_t rows;
    int load, components;
    if (!PyArg_ParseTuple(args, "OniiO|O", &data, &rows, &load, &components, &words, &factors))
        return NULL;
    PyArrayObject *array = gr_check_array(data, load, GR_ACC_f64, components);
    if (!array)
        return NULL;
    PyArrayObject *other = factors == Py_None ? NULL : gr_check_array(factors, load, GR_ACC_f64, 1);
    if (factors != Py_None && !other)
        return NULL;
    size_t sums = (size_t)rows * (other ? GR_PRODUCTS_PARTS : 1);
    if (rows < 1 || !gr_is_float((gr_load)load) || PyArray_SIZE(array) % rows ||
        (other &&
         (load != GR_LOAD_f64 || components != 1 || PyArray_SIZE(other) != PyArray_SIZE(array))) ||
        !is_words(words, sums * gr_exact_words(components))) {
        PyErr_SetString(PyExc_ValueError, "the digits have no room for these rows");
        return NULL;
    }
    rows_job job = {.data = PyArray_DATA(array),
                    .rows = (size_t)rows,
                    .n = (size_t)(PyArray_SIZE(array) / rows),
                    .load = (gr_load)load,
                    .components = components,
                    .other = other ? PyArray_DATA(other) : NULL,
                    .words = PyArray_DATA((PyArrayObject *)words)};
    if (run(&job, other ? multiply_rows : add_rows, job.n + 100) < 0)
        return NULL;
    Py_RETURN_NONE;
}

PyObject *gr_py_round_digits(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *words, *out;
    int target, components;
    if (!PyArg_ParseTuple(args, "OiiO", &words, &target, &components, &out))
        return NULL;
    PyArrayObject *array = gr_check_array(out, target, GR_ACC_f64, components);
    if (!array)
        return NULL;
    size_t rows = (size_t)PyArray_SIZE(array);
    if (!gr_is_float((gr_load)target) || !is_words(words, rows * gr_exact_words(components))) {
        PyErr_SetString(PyExc_ValueError, "the result does not have a row for each sum's digits");
        return NULL;
    }
    rows_job job = {.rows = rows,
                    .target = (gr_load)target,
                    .components = components,
                    .words = PyArray_DATA((PyArrayObject *)words),
                    .out = PyArray_DATA(array)};
    if (rows && run(&job, round_rows, 300) < 0)
        return NULL;
    Py_RETURN_NONE;
}

PyObject *gr_py_finish_digits(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *words, *out;
    int finish, target, components;
    double ddof;
    if (!PyArg_ParseTuple(args, "OiidiO", &words, &finish, &components, &ddof, &target, &out))
        return NULL;
    bool is_mean = finish == GR_DIGITS_MEAN;
    PyArrayObject *array = gr_check_array(out, target, GR_ACC_f64, is_mean ? components : 1);
    if (!array)
        return NULL;
    size_t rows = (size_t)PyArray_SIZE(array);
    size_t each =
        gr_exact_words(components) + (is_mean ? 0 : GR_PRODUCTS_PARTS * gr_exact_words(1));
    if (!gr_is_float((gr_load)target) || !is_words(words, rows * each)) {
        PyErr_SetString(PyExc_ValueError, "there is no row of digits for each result");
        return NULL;
    }
    rows_job job = {.rows = rows,
                    .target = (gr_load)target,
                    .components = components,
                    .words = PyArray_DATA((PyArrayObject *)words),
                    .out = PyArray_DATA(array),
                    .finish = (gr_digits_finish)finish,
                    .ddof = ddof};
    if (rows && run(&job, finish_rows, 3000) < 0)
        return NULL;
    Py_RETURN_NONE;
}
