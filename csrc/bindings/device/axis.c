/* Sums along axes by kernels: of arrays on a GPU, whose sums stay there, and of NumPy arrays, which
 * are copied to the device and whose sums are copied back. */
#include "bindings/device/gpu_job.h"
#include "bindings/device/functions.h"

#include "backend/backend.h"
#include "bindings/device/elapsed.h"
#include "bindings/device/run.h"
#include "bindings/device/views.h"
#include "bindings/gil.h"
#include "bindings/numpy_arrays.h"
#include "engine/axis.h"
#include "exact/format.h"

#include <string.h>

/* What Python has decided. */
typedef struct {
    unsigned long long axes; /* a bit per axis that is added up */
    int keeps_dims, order, timed, exactly;
    unsigned long long seed;
    PyObject *out, *mask; /* borrowed; `mask` may be None */
} asked;

/* Takes (acc, exactly, target, initial, strategy, block, grid, order, seed, timed). `initial` is a
 * pair of numbers, for the real and the imaginary part. */
static int take_details(PyObject *details, gr_axis_request *request, asked *ask)
{
    int acc, target;
    PyObject *initial[2];
    if (!PyArg_ParseTuple(details, "ipi(OO)iIIiKp", &acc, &ask->exactly, &target, &initial[0],
                          &initial[1], &request->strategy, &request->block, &request->grid,
                          &ask->order, &ask->seed, &ask->timed))
        return -1;
    if (acc < 0 || acc >= GR_ACC_COUNT || target < 0 || target >= GR_LOAD_COUNT ||
        request->strategy >= gr_strategy_count()) {
        PyErr_SetString(PyExc_ValueError, "no such accumulator, type or strategy");
        return -1;
    }
    request->acc = (gr_acc)acc;
    for (int i = 0; i < 2; i++) {
        gr_value *value = &request->sums.initial[i];
        if (ask->exactly)
            value->f64 = PyFloat_AsDouble(initial[i]);
        else if (acc == GR_ACC_u32 || acc == GR_ACC_u64)
            value->u64 = PyLong_AsUnsignedLongLongMask(initial[i]); /* u32: the low half */
        else if (acc == GR_ACC_f32)
            value->f32 = (float)PyFloat_AsDouble(initial[i]);
        else
            value->f64 = PyFloat_AsDouble(initial[i]);
    }
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
    request->sums.bytes = (unsigned)gr_load_size(target);
    request->sums.is_native =
        request->sums.bytes == gr_acc_size(request->acc) && integers != gr_is_float(target);
    if (exactly)
        request->acc = type->load == GR_LOAD_f64 ? GR_ACC_proven3 : GR_ACC_proven;
    return type->components;
}

/* Adds the array's dimensions to the axes. `out` has as many as stay. Returns -1 with an exception
 * set if the arrays do not fit together. */
static int add_dims(gr_axis_request *request, const asked *ask, const gr_view *in,
                    const gr_view *mask, const gr_view *out)
{
    gr_axes *axes = &request->axes;
    int k = 0, parts = (int)request->sums.parts, part_bytes = (int)request->sums.bytes;
    bool fits =
        out->bytes == part_bytes * parts && (!mask || (mask->dims == in->dims && mask->bytes == 1));
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

/* Runs the request without the GIL. Returns (strategy, block, grid, launches, times), or NULL with
 * an exception set. */
static PyObject *run(gr_axis_request *request, const asked *ask, const gr_span *host)
{
    gr_error error;
    gr_axis_outcome outcome = {.strategy = request->strategy};
    gr_without_gil call;
    gr_status status = GR_OK;
    bool timed = ask->timed && (host || !gr_stream_is_captured(request->stream));
    if (timed && !(request->times = gr_take_times(request->device)))
        return PyErr_NoMemory();
    int device = gr_current_device();
    gr_drop_gil(&call);
    gr_backend_schedule(ask->order, ask->seed);
    if (host)
        status = gr_sum_axis_of_host(request, host[0], host[1], host[2], &outcome, &error);
    else
        status = gr_sum_axis(request, &outcome, &error);
    gr_backend_return_to(device);
    if (gr_take_gil(&call) < 0 || status != GR_OK) {
        gr_drop_times(request->times, 0);
        return PyErr_Occurred() ? NULL : gr_raise(&error);
    }
    PyObject *times = !request->times ? Py_NewRef(Py_None)
                      : host          ? gr_milliseconds_of(request->times)
                                      : gr_elapsed_of(request->times);
    return times ? Py_BuildValue("iIIIN", outcome.strategy, outcome.block, outcome.grid,
                                 outcome.launches, times)
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
    if (PyArray_SIZE((PyArrayObject *)ask.out) == 0)
        return Py_BuildValue("iIIIO", request.strategy, 0, 0, 0, Py_None);
    return run(&request, &ask, span);
}

/* --- arrays on a GPU ---------------------------------------------------------------------------
 */

static PyObject *sum_beside(gr_axis_request *request, asked *ask, const gr_gpu_array *array,
                            const gr_view *in, const gr_gpu_array *where, const gr_view *mask)
{
    const gr_input inputs[] = {{"the array", array}, {"where", where}, {NULL, NULL}};
    gr_gpu_array sums;
    gr_view out;
    PyObject *done = NULL;
    if (gr_view_beside(ask->out, "out", request->stream, array->device, &sums, &out) < 0)
        return NULL;
    if (gr_check_out(request->sums.bytes, &sums, &out, inputs) == 0 &&
        add_dims(request, ask, in, mask, &out) == 0)
        done = sums.count ? run(request, ask, NULL)
                          : Py_BuildValue("iIIIO", request->strategy, 0, 0, 0, Py_None);
    gr_gpu_array_done(&sums);
    return done;
}

static PyObject *sum_planned(gr_axis_request *request, asked *ask, const gr_gpu_array *array,
                             const gr_view *in)
{
    gr_gpu_array where;
    gr_view mask;
    if (take_types(request, ask->exactly, array->kind, array->bytes) < 0)
        return NULL;
    if ((uintptr_t)array->base %
            gr_load_size(gr_numpy_type_of_kind(array->kind, array->bytes)->load) &&
        array->count) {
        PyErr_SetString(PyExc_BufferError, "the array's elements are not aligned to their size");
        return NULL;
    }
    if (ask->mask == Py_None)
        return sum_beside(request, ask, array, in, NULL, NULL);
    if (gr_view_beside(ask->mask, "where", request->stream, array->device, &where, &mask) < 0)
        return NULL;
    PyObject *done = sum_beside(request, ask, array, in, &where, &mask);
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

PyObject *gr_py_sum_axis_on_device(PyObject *Py_UNUSED(self), PyObject *args)
{
    PyObject *object, *plan, *out, *details, *answer, *known, *done = NULL;
    unsigned long long stream;
    gr_axis_request request = {0};
    gr_gpu_array array;
    asked ask = {0};
    gr_view in;
    if (!PyArg_ParseTuple(args, "OpOKO", &object, &ask.keeps_dims, &plan, &stream, &out))
        return NULL;
    void *ours = stream ? (void *)(uintptr_t)stream : GR_LEGACY_STREAM;
    int found = gr_gpu_array_of(object, gr_callers_stream, ours, &array);
    if (found <= 0)
        return found < 0 ? NULL : Py_NewRef(Py_None);
    request.stream = stream ? ours : array.stream ? array.stream : ours;
    gr_view_gpu(&array, &in);
    answer =
        gr_find_memory(&array) < 0 ? NULL : gr_ask_python(plan, &array, &in, request.stream, out);
    request.device = array.device;
    if (answer &&
        PyArg_ParseTuple(answer, "OOKOO", &ask.out, &ask.mask, &ask.axes, &details, &known) &&
        take_details(details, &request, &ask) == 0)
        done = sum_planned(&request, &ask, &array, &in);
    if (done)
        done = Py_BuildValue("OON", ask.out, known, done);
    Py_XDECREF(answer);
    gr_gpu_array_done(&array);
    return done;
}
