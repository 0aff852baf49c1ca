/* Sums along axes by kernels: of arrays on a GPU, whose sums stay there, and of NumPy arrays, which
 * are copied to the device and whose sums are copied back. */
#include "bindings/device/gpu_job.h"
#include "bindings/device/functions.h"

#include "bindings/device/run.h"
#include "bindings/device/views.h"
#include "bindings/numpy_arrays.h"
#include "bindings/results.h"
#include "engine/axis.h"
#include "exact/format.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* What Python has decided. */
typedef struct {
    unsigned long long axes; /* a bit per axis that is added up */
    int keeps_dims, order, timed, exactly;
    unsigned long long seed;
    PyObject *out, *mask; /* borrowed; `mask` may be None */
} asked;

/* Takes (acc, exactly, target, initial, strategy, block, grid, order, seed, timed, as_digits).
 * `initial` is a pair of numbers, for the real and the imaginary part. */
static int take_details(PyObject *details, gr_axis_request *request, asked *ask)
{
    int acc, target;
    PyObject *initial[2];
    if (!PyArg_ParseTuple(details, "ipi(OO)iIIiKpp", &acc, &ask->exactly, &target, &initial[0],
                          &initial[1], &request->strategy, &request->block, &request->grid,
                          &ask->order, &ask->seed, &ask->timed, &request->sums.as_digits))
        return -1;
    if (acc < 0 || acc >= GR_ACC_COUNT || target < 0 || target >= GR_LOAD_COUNT ||
        request->strategy >= gr_strategy_count()) {
        PyErr_SetString(PyExc_ValueError, "no such accumulator, type or strategy");
        return -1;
    }
    request->acc = (gr_acc)acc;
    gr_take_values(initial, ask->exactly ? GR_ACC_f64 : request->acc, request->sums.initial);
    request->sums.type = (gr_load)target;
    return PyErr_Occurred() ? -1 : 0;
}

/* Sets how elements are read and sums stored. Returns the parts of an element, or -1 with an
 * exception set. */
static int take_types(gr_axis_request *request, int exactly, int kind, int bytes)
{
    const gr_numpy_type *type = gr_numpy_type_of_kind(kind, bytes);
    bool integers = request->acc == GR_ACC_u32 || request->acc == GR_ACC_u64;
    gr_load target = request->sums.type;
    if (exactly && !gr_is_float(target)) {
        PyErr_SetString(PyExc_ValueError, "exact sums are floats");
        return -1;
    }
    if (!type) {
        PyErr_SetString(PyExc_TypeError, "these elements cannot be added up");
        return -1;
    }
    request->load = kind == 'i' && bytes == 8 ? GR_ELEMENTS_I64 : (int)type->load;
    request->sums.parts = (unsigned)type->components;
    request->sums.bytes =
        request->sums.as_digits ? sizeof(int64_t) : (unsigned)gr_load_size(target);
    request->sums.is_native =
        request->sums.bytes == gr_acc_size(request->acc) && integers != gr_is_float(target);
    if (exactly)
        request->acc = type->load == GR_LOAD_f64 ? GR_ACC_proven3 : GR_ACC_proven;
    return type->components;
}

/* Adds the array's dimensions to the axes. `out` has as many as stay. Returns -1 with an exception
 * set if the arrays do not fit together. */
static int add_dims(gr_axis_request *request, const asked *ask, const gr_view *in,
                    const gr_view *mask, gr_view *out)
{
    gr_axes *axes = &request->axes;
    int k = 0, parts = (int)request->sums.parts, part_bytes = gr_part_bytes(&request->sums);
    bool fits = request->sums.as_digits ? ask->exactly && !mask && gr_drop_words(out, parts)
                                        : out->bytes == part_bytes * parts;
    fits = fits && (!mask || (mask->dims == in->dims && mask->bytes == 1));
    axes->in = (const unsigned char *)in->base;
    axes->mask = mask ? (const unsigned char *)mask->base : NULL;
    axes->out = (unsigned char *)(uintptr_t)out->base;
    for (int i = 0; i < in->dims && fits; i++) {
        bool reduced = ask->axes >> i & 1, stays = !reduced || ask->keeps_dims;
        gr_axis dim = {.size = (size_t)in->size[i],
                       .in = in->step[i],
                       .mask = mask ? mask->step[i] : 0,
                       .out = reduced || k >= out->dims ? 0 : out->step[k]};
        fits = (!mask || mask->size[i] == in->size[i]) &&
               (!stays || (k < out->dims && out->size[k] == (reduced ? 1 : in->size[i])));
        gr_axes_push(reduced ? &axes->reduced : &axes->kept, dim);
        k += stays;
    }
    if (!fits || k != out->dims) {
        PyErr_SetString(PyExc_ValueError,
                        "the array of the sums or the mask has another shape or dtype");
        return -1;
    }
    if (parts == 2)
        gr_axes_push(&axes->kept, (gr_axis){2, in->bytes / 2, 0, part_bytes});
    return 0;
}

/* Runs the request without the GIL. Returns 0, or -1 with an exception set. */
static int run(gr_axis_request *request, const asked *ask, const gr_span *host,
               gr_launched *launched)
{
    gr_call call;
    bool timed = ask->timed && (host || !gr_stream_is_captured(request->stream));
    if (timed && !(request->times = gr_take_times(request->device))) {
        PyErr_NoMemory();
        return -1;
    }
    gr_begin_call(&call, ask->order, ask->seed);
    if (host)
        gr_sum_axis_of_host(request, host, launched, &call.error);
    else
        gr_sum_axis(request, launched, &call.error);
    int failed = gr_end_call(&call);
    if (failed)
        gr_drop_times(request->times, 0);
    return failed;
}

/* Returns (strategy, block, grid, launches, times), or NULL with an exception set. */
static PyObject *launch_of(const gr_axis_request *request, const gr_launched *launched,
                           bool of_host)
{
    PyObject *times = gr_times_of(request->times, of_host);
    return times ? Py_BuildValue("iIIIN", launched->strategy, launched->block, launched->grid,
                                 launched->launches, times)
                 : NULL;
}

/* --- NumPy arrays ------------------------------------------------------------------------------
 */

PyObject *gr_py_sum_axis_of_host(PyObject *Py_UNUSED(self), PyObject *args)
{
    PyObject *array, *details;
    gr_axis_request request = {0};
    asked ask;
    gr_view in, mask, out;
    gr_span span[3] = {{NULL, 0}};
    gr_launched launched = {0};
    int kind, bytes;
    if (!PyArg_ParseTuple(args, "OKpOOCiO", &array, &ask.axes, &ask.keeps_dims, &ask.out, &ask.mask,
                          &kind, &request.device, &details) ||
        take_details(details, &request, &ask) < 0 || gr_view_checked(array, &in, &span[0]) < 0 ||
        (ask.mask != Py_None && gr_view_checked(ask.mask, &mask, &span[1]) < 0) ||
        gr_out_checked(ask.out, &out, &span[2]) < 0)
        return NULL;
    bytes = in.bytes;
    if (take_types(&request, ask.exactly, kind, bytes) < 0 ||
        add_dims(&request, &ask, &in, ask.mask == Py_None ? NULL : &mask, &out) < 0)
        return NULL;
    launched.strategy = request.strategy;
    if (PyArray_SIZE((PyArrayObject *)ask.out) && run(&request, &ask, span, &launched) < 0)
        return NULL;
    return launch_of(&request, &launched, true);
}

/* --- arrays on a GPU ---------------------------------------------------------------------------
 */

/* What is decided for arrays of one description, without addresses and dimensions. */
typedef struct {
    gr_axis_request request;
    asked ask;
    int kind, bytes; /* of the elements */
} prepared;

static const char PREPARED[] = "gpureduce.axis.request"; /* the name of its capsule */

static void drop_prepared(PyObject *capsule)
{
    free(PyCapsule_GetPointer(capsule, PREPARED));
}

PyObject *gr_py_axis_request(PyObject *Py_UNUSED(self), PyObject *args)
{
    PyObject *details;
    prepared *made = calloc(1, sizeof *made);
    PyObject *capsule = made ? PyCapsule_New(made, PREPARED, drop_prepared) : PyErr_NoMemory();
    if (!capsule) {
        free(made);
        return NULL;
    }
    if (PyArg_ParseTuple(args, "CiKpO", &made->kind, &made->bytes, &made->ask.axes,
                         &made->ask.keeps_dims, &details) &&
        take_details(details, &made->request, &made->ask) == 0 &&
        take_types(&made->request, made->ask.exactly, made->kind, made->bytes) >= 0)
        return capsule;
    Py_DECREF(capsule);
    return NULL;
}

/* One call. */
typedef struct {
    gr_axis_request request;
    asked ask;
    const gr_gpu_array *array;
    const gr_view *in;
} job;

static PyObject *sum_beside(job *j, const gr_gpu_array *where, const gr_view *mask)
{
    const gr_input inputs[] = {{"the array", j->array}, {"where", where}, {NULL, NULL}};
    gr_gpu_array sums;
    gr_view out;
    gr_launched launched = {.strategy = j->request.strategy};
    PyObject *done = NULL;
    if (gr_view_beside(j->ask.out, "out", j->request.stream, j->array->device, &sums, &out) < 0)
        return NULL;
    if (gr_check_out(j->request.sums.bytes, &sums, &out, inputs) == 0 &&
        add_dims(&j->request, &j->ask, j->in, mask, &out) == 0 &&
        (!sums.count || run(&j->request, &j->ask, NULL, &launched) == 0))
        done = j->ask.timed ? launch_of(&j->request, &launched, false) : Py_NewRef(Py_None);
    gr_gpu_array_done(&sums);
    return done;
}

static PyObject *sum_decided(job *j)
{
    gr_gpu_array where;
    gr_view mask;
    if ((uintptr_t)j->array->base %
            gr_load_size(gr_numpy_type_of_kind(j->array->kind, j->array->bytes)->load) &&
        j->array->count) {
        PyErr_SetString(PyExc_BufferError, "the array's elements are not aligned to their size");
        return NULL;
    }
    if (j->ask.mask == Py_None)
        return sum_beside(j, NULL, NULL);
    if (gr_view_beside(j->ask.mask, "where", j->request.stream, j->array->device, &where, &mask) <
        0)
        return NULL;
    PyObject *done = sum_beside(j, &where, &mask);
    gr_gpu_array_done(&where);
    return done;
}

PyObject *gr_py_refuse_capture(PyObject *Py_UNUSED(self), PyObject *stream)
{
    void *handle = PyLong_AsVoidPtr(stream);
    if (PyErr_Occurred() || gr_refuse_capture(handle) < 0)
        return NULL;
    Py_RETURN_NONE;
}

PyObject *gr_py_sum_axis_on_device(PyObject *Py_UNUSED(self), PyObject *const *args,
                                   Py_ssize_t count)
{
    enum { VIEW, OUT, MASK, REQUEST, ARGUMENTS };
    if (count != ARGUMENTS || !PyObject_TypeCheck(args[VIEW], gr_view_type)) {
        PyErr_SetString(PyExc_TypeError, "expected a View, two arrays and a request");
        return NULL;
    }
    const gr_view_object *view = (gr_view_object *)args[VIEW];
    const prepared *plan = PyCapsule_GetPointer(args[REQUEST], PREPARED);
    if (!plan)
        return NULL;
    if (plan->kind != view->array.kind || plan->bytes != view->array.bytes) {
        PyErr_SetString(PyExc_ValueError, "the request is for other elements");
        return NULL;
    }
    job j = {.ask = plan->ask, .array = &view->array, .in = &view->seen};
    size_t rest = offsetof(gr_axis_request, load); /* the axes have no dimensions yet */
    memcpy((char *)&j.request + rest, (const char *)&plan->request + rest, sizeof j.request - rest);
    j.ask.out = args[OUT];
    j.ask.mask = args[MASK];
    j.request.stream = view->stream;
    j.request.device = view->array.device;
    return sum_decided(&j);
}
