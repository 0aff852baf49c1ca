/* Sums along axes by kernels: of arrays on a GPU, whose sums stay there, and of NumPy arrays, which
 * are copied to the device and whose sums are copied back. */
#include "bindings/device/gpu_job.h"
#include "bindings/device/functions.h"

#include "backend/backend.h"
#include "bindings/device/elapsed.h"
#include "bindings/device/gpu_array.h"
#include "bindings/device/run.h"
#include "bindings/gil.h"
#include "bindings/numpy_arrays.h"
#include "engine/axis.h"
#include "exact/format.h"

#include <string.h>

/* An array as the functions here see it: in host memory or on a device. */
typedef struct {
    const char *base;
    int dims, bytes;                                          /* bytes of an element */
    int64_t size[GR_ARRAY_MAX_DIMS], step[GR_ARRAY_MAX_DIMS]; /* steps in bytes */
} view;

static void view_gpu(const gr_gpu_array *array, view *seen)
{
    *seen = (view){.base = array->base, .dims = array->dims, .bytes = array->bytes};
    for (int i = 0; i < array->dims; i++) {
        seen->size[i] = array->size[i];
        seen->step[i] = array->step[i] * array->bytes;
    }
}

static void view_numpy(PyArrayObject *array, view *seen)
{
    *seen = (view){.base = PyArray_DATA(array),
                   .dims = PyArray_NDIM(array),
                   .bytes = (int)PyArray_ITEMSIZE(array)};
    for (int i = 0; i < seen->dims; i++) {
        seen->size[i] = PyArray_DIM(array, i);
        seen->step[i] = PyArray_STRIDE(array, i);
    }
}

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
        request->acc = GR_ACC_proven;
    return type->components;
}

/* The most float64 elements whose sum is nearly always proven by two numbers (exact/proven.h). */
enum { TWO_NUMBERS = 4096 };

/* Adds the array's dimensions to the axes. `out` has as many as stay. Returns -1 with an exception
 * set if the arrays do not fit together. */
static int add_dims(gr_axis_request *request, const asked *ask, const view *in, const view *mask,
                    const view *out)
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
    if (request->acc == GR_ACC_proven && request->load == GR_LOAD_f64 &&
        gr_axes_size(&axes->reduced) > TWO_NUMBERS)
        request->acc = GR_ACC_proven3;
    return 0;
}

/* Reads the times of a sum that has ended, and drops them. */
static PyObject *milliseconds(gr_times *times)
{
    gr_milliseconds ms;
    gr_error error;
    bool read = gr_read_times(times, &ms, &error) == GR_OK;
    gr_drop_times(times, read);
    return read ? Py_BuildValue("ddd", ms.h2d, ms.kernel, ms.d2h) : gr_raise(&error);
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
                      : host          ? milliseconds(request->times)
                                      : gr_elapsed_of(request->times);
    return times ? Py_BuildValue("iIIIN", outcome.strategy, outcome.block, outcome.grid,
                                 outcome.launches, times)
                 : NULL;
}

/* --- NumPy arrays ------------------------------------------------------------------------------
 */

/* The bytes of an array whose elements lie side by side, in any order of its axes. */
static gr_span span_of(PyArrayObject *array, const view *seen)
{
    const char *first = seen->base;
    for (int i = 0; i < seen->dims; i++)
        if (seen->step[i] < 0)
            first += (seen->size[i] - 1) * seen->step[i];
    return (gr_span){(void *)(uintptr_t)first, (size_t)PyArray_NBYTES(array)};
}

static bool lies_side_by_side(PyArrayObject *array, const view *seen)
{
    int64_t extent = seen->bytes;
    for (int i = 0; i < seen->dims; i++)
        extent += (seen->size[i] - 1) * (seen->step[i] < 0 ? -seen->step[i] : seen->step[i]);
    return PyArray_SIZE(array) == 0 || extent == (int64_t)PyArray_NBYTES(array);
}

static int view_checked(PyObject *object, view *seen, gr_span *span)
{
    PyArrayObject *array = (PyArrayObject *)object;
    if (!PyArray_Check(object) || !PyArray_ISALIGNED(array) || PyArray_ISBYTESWAPPED(array)) {
        PyErr_SetString(PyExc_TypeError, "expected an aligned array in native byte order");
        return -1;
    }
    view_numpy(array, seen);
    *span = span_of(array, seen);
    if (!lies_side_by_side(array, seen)) {
        PyErr_SetString(PyExc_ValueError, "expected an array without gaps");
        return -1;
    }
    return 0;
}

PyObject *gr_py_sum_axis_of_host(PyObject *Py_UNUSED(self), PyObject *args)
{
    PyObject *array, *details;
    gr_axis_request request = {0};
    asked ask;
    view in, mask, out;
    gr_span span[3] = {{NULL, 0}};
    int kind, bytes;
    if (!PyArg_ParseTuple(args, "OKpOOCiO", &array, &ask.axes, &ask.keeps_dims, &ask.out, &ask.mask,
                          &kind, &request.device, &details) ||
        take_details(details, &request, &ask) < 0 || view_checked(array, &in, &span[0]) < 0 ||
        (ask.mask != Py_None && view_checked(ask.mask, &mask, &span[1]) < 0) ||
        view_checked(ask.out, &out, &span[2]) < 0)
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

static void *callers_stream(void *context, int Py_UNUSED(device))
{
    return context;
}

static PyObject *listed(const int64_t *numbers, int count)
{
    PyObject *tuple = PyTuple_New(count);
    for (int i = 0; tuple && i < count; i++) {
        PyObject *number = PyLong_FromLongLong(numbers[i]);
        if (!number || PyTuple_SetItem(tuple, i, number) < 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

/* Calls plan(kind, bytes, device, shape, steps, stream), which returns (out, mask, axes, details).
 */
static PyObject *ask_python(PyObject *plan, const gr_gpu_array *array, const view *in, void *stream)
{
    PyObject *shape = listed(in->size, in->dims), *steps = listed(in->step, in->dims);
    PyObject *answer =
        shape && steps
            ? PyObject_CallFunction(plan, "CiiOOK", array->kind, array->bytes, array->device, shape,
                                    steps, (unsigned long long)(uintptr_t)stream)
            : NULL;
    Py_XDECREF(shape);
    Py_XDECREF(steps);
    return answer;
}

/* Describes an array that goes with the one that is summed, on the same device. */
static int view_beside(PyObject *object, const char *name, void *stream, int device,
                       gr_gpu_array *array, view *seen)
{
    int found = gr_gpu_array_of(object, callers_stream, stream, array);
    if (found < 0)
        return -1;
    if (found == 0) {
        PyErr_Format(PyExc_TypeError, "%s must lie on the same GPU as the array", name);
        return -1;
    }
    view_gpu(array, seen);
    if (array->device >= 0 && array->device != device) {
        gr_gpu_array_done(array);
        PyErr_Format(PyExc_ValueError, "%s lies on GPU %d, and the array on GPU %d", name,
                     array->device, device);
        return -1;
    }
    return 0;
}

static int overlap(const gr_gpu_array *a, const gr_gpu_array *b)
{
    return a->count && b->count && a->first <= b->last && b->first <= a->last;
}

/* Whether no two of the array's elements share memory. */
static int is_spread_out(const view *seen)
{
    int64_t size[GR_ARRAY_MAX_DIMS], step[GR_ARRAY_MAX_DIMS], extent = seen->bytes;
    int dims = 0;
    for (int i = 0; i < seen->dims; i++) {
        int64_t distance = seen->step[i] < 0 ? -seen->step[i] : seen->step[i];
        int k = dims;
        if (seen->size[i] < 2)
            continue;
        for (; k > 0 && step[k - 1] > distance; k--) {
            step[k] = step[k - 1];
            size[k] = size[k - 1];
        }
        step[k] = distance;
        size[k] = seen->size[i];
        dims++;
    }
    for (int i = 0; i < dims; i++) {
        if (step[i] < extent)
            return 0;
        extent += (size[i] - 1) * step[i];
    }
    return 1;
}

static int is_aligned(const view *seen, unsigned bytes)
{
    uint64_t places = (uintptr_t)seen->base;
    for (int i = 0; i < seen->dims; i++)
        places |= (uint64_t)seen->step[i];
    return places % bytes == 0;
}

/* Checks that sums can be written to `out`. Returns -1 with an exception set if not. */
static int check_out(const gr_axis_request *request, const gr_gpu_array *out, const view *seen,
                     const gr_gpu_array *array, const gr_gpu_array *where)
{
    if (out->read_only)
        PyErr_SetString(PyExc_ValueError, "out is read-only: pass an array that can be written to");
    else if (overlap(out, array))
        PyErr_SetString(PyExc_ValueError,
                        "out overlaps the array: pass an array with memory of its own");
    else if (where && overlap(out, where))
        PyErr_SetString(PyExc_ValueError,
                        "out overlaps where: pass an array with memory of its own");
    else if (out->count && !is_spread_out(seen))
        PyErr_SetString(PyExc_ValueError, "elements of out share memory: pass an array whose "
                                          "elements have places of their own");
    else if (out->count && !is_aligned(seen, request->sums.bytes))
        PyErr_SetString(PyExc_BufferError, "the elements of out are not aligned to their size");
    return PyErr_Occurred() ? -1 : 0;
}

static PyObject *sum_beside(gr_axis_request *request, asked *ask, const gr_gpu_array *array,
                            const view *in, const gr_gpu_array *where, const view *mask)
{
    gr_gpu_array sums;
    view out;
    PyObject *done = NULL;
    if (view_beside(ask->out, "out", request->stream, array->device, &sums, &out) < 0)
        return NULL;
    if (check_out(request, &sums, &out, array, where) == 0 &&
        add_dims(request, ask, in, mask, &out) == 0)
        done = sums.count ? run(request, ask, NULL)
                          : Py_BuildValue("iIIIO", request->strategy, 0, 0, 0, Py_None);
    gr_gpu_array_done(&sums);
    return done;
}

static PyObject *sum_planned(gr_axis_request *request, asked *ask, const gr_gpu_array *array,
                             const view *in)
{
    gr_gpu_array where;
    view mask;
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
    if (view_beside(ask->mask, "where", request->stream, array->device, &where, &mask) < 0)
        return NULL;
    PyObject *done = sum_beside(request, ask, array, in, &where, &mask);
    gr_gpu_array_done(&where);
    return done;
}

/* Sets the device of an array whose producer has not named it. */
static int find_device(gr_gpu_array *array)
{
    gr_error error;
    if (array->device >= 0)
        return 0;
    if (!array->count) { /* has no address */
        array->device = 0;
        return 0;
    }
    if (gr_pointer_device(array->base, &array->device, &error) == GR_OK)
        return 0;
    gr_raise(&error);
    return -1;
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
    PyObject *object, *plan, *details, *answer, *done = NULL;
    unsigned long long stream;
    gr_axis_request request = {0};
    gr_gpu_array array;
    asked ask = {0};
    view in;
    if (!PyArg_ParseTuple(args, "OpOK", &object, &ask.keeps_dims, &plan, &stream))
        return NULL;
    void *ours = stream ? (void *)(uintptr_t)stream : GR_LEGACY_STREAM;
    int found = gr_gpu_array_of(object, callers_stream, ours, &array);
    if (found <= 0)
        return found < 0 ? NULL : Py_NewRef(Py_None);
    request.stream = stream ? ours : array.stream ? array.stream : ours;
    view_gpu(&array, &in);
    answer = find_device(&array) < 0 ? NULL : ask_python(plan, &array, &in, request.stream);
    request.device = array.device;
    if (answer && PyArg_ParseTuple(answer, "OOKO", &ask.out, &ask.mask, &ask.axes, &details) &&
        take_details(details, &request, &ask) == 0)
        done = sum_planned(&request, &ask, &array, &in);
    Py_XDECREF(answer);
    gr_gpu_array_done(&array);
    return done;
}
