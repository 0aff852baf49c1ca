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

/* What Python has decided for arrays of one description. Never changes. */
typedef struct {
    gr_axis_request request; /* without addresses and dimensions */
    asked ask;
    PyObject *make, *known;
    PyTypeObject *out_type; /* of an array for the sums that Python has made or checked .. */
    int out_kind, out_bytes, out_dims;
    int64_t out_size[GR_ARRAY_MAX_DIMS]; /* .. and how its producer described it */
} decision;

static const char DECISION[] = "gpureduce.axis.decision"; /* the name of its capsule */

static void drop_decision(PyObject *capsule)
{
    decision *dropped = PyCapsule_GetPointer(capsule, DECISION);
    Py_XDECREF(dropped->make);
    Py_XDECREF(dropped->known);
    Py_XDECREF((PyObject *)dropped->out_type);
    free(dropped);
}

/* One call. */
typedef struct {
    gr_axis_request request;
    asked ask;
    const gr_gpu_array *array;
    const gr_view *in;
    PyObject *decisions, *make, *known; /* borrowed */
    PyObject *key, *capsule;            /* `capsule`: that of `decided` */
    const decision *decided;            /* NULL: by Python's arguments */
} job;

/* Copies all but the addresses and the dimensions. */
static void copy_request(gr_axis_request *to, const gr_axis_request *from)
{
    size_t rest = offsetof(gr_axis_request, load);
    memcpy((char *)to + rest, (const char *)from + rest, sizeof *to - rest);
}

static PyObject *key_of(const job *j)
{
    int64_t key[3 + 2 * GR_ARRAY_MAX_DIMS], *at = key;
    *at++ = j->array->kind;
    *at++ = j->array->bytes;
    *at++ = j->array->device;
    for (int i = 0; i < j->in->dims; i++) {
        *at++ = j->in->size[i];
        *at++ = j->in->step[i];
    }
    return PyBytes_FromStringAndSize((const char *)key, (char *)at - (char *)key);
}

/* Takes over what was decided for such an array. Returns 1, 0 if nothing was, or -1 with an
 * exception set. */
static int recall(job *j, PyObject *given)
{
    j->key = key_of(j);
    j->capsule = j->key ? PyObject_GetItem(j->decisions, j->key) : NULL;
    if (!j->capsule) {
        if (!PyErr_ExceptionMatches(PyExc_KeyError))
            return -1;
        PyErr_Clear();
        return 0;
    }
    j->decided = PyCapsule_GetPointer(j->capsule, DECISION);
    if (!j->decided)
        return -1;
    if (given != Py_None && Py_TYPE(given) != j->decided->out_type)
        return 0;
    void *stream = j->request.stream;
    copy_request(&j->request, &j->decided->request);
    j->request.stream = stream;
    j->ask = j->decided->ask;
    j->make = j->decided->make;
    j->known = j->decided->known;
    return 1;
}

/* Keeps what Python has decided. `sums` is the array for the sums. Returns 0, or -1 with an
 * exception set. */
static int remember(const job *j, const gr_gpu_array *sums)
{
    if (j->decided || !j->key || j->ask.mask != Py_None)
        return 0;
    decision *made = calloc(1, sizeof *made);
    if (!made) {
        PyErr_NoMemory();
        return -1;
    }
    PyObject *capsule = PyCapsule_New(made, DECISION, drop_decision);
    if (!capsule) {
        free(made);
        return -1;
    }
    copy_request(&made->request, &j->request);
    made->ask = j->ask;
    made->ask.out = NULL;
    made->make = Py_NewRef(j->make);
    made->known = Py_NewRef(j->known);
    made->out_type = (PyTypeObject *)Py_NewRef((PyObject *)Py_TYPE(j->ask.out));
    made->out_kind = sums->kind;
    made->out_bytes = sums->bytes;
    made->out_dims = sums->dims;
    memcpy(made->out_size, sums->size, sizeof made->out_size);
    int kept = PyObject_SetItem(j->decisions, j->key, capsule);
    Py_DECREF(capsule);
    return kept;
}

/* Whether the array for sums is like one that Python has accepted. */
static bool is_known(const decision *d, const gr_gpu_array *sums)
{
    return sums->kind == d->out_kind && sums->bytes == d->out_bytes && sums->dims == d->out_dims &&
           !memcmp(sums->size, d->out_size, (size_t)sums->dims * sizeof sums->size[0]);
}

/* Returns SumResult(out, None) or (out, known, launch) of a decision, or else the launch. */
static PyObject *result_of(const job *j, const gr_launched *launched)
{
    if (j->decided && !j->ask.timed)
        return gr_untimed(Py_NewRef(j->ask.out));
    PyObject *launch = launch_of(&j->request, launched, false);
    return launch && j->decided ? Py_BuildValue("OON", j->ask.out, j->known, launch) : launch;
}

/* Returns NULL without an exception if the decision was about other arrays for sums. */
static PyObject *sum_beside(job *j, const gr_gpu_array *where, const gr_view *mask)
{
    const gr_input inputs[] = {{"the array", j->array}, {"where", where}, {NULL, NULL}};
    gr_gpu_array sums;
    gr_view out;
    gr_launched launched = {.strategy = j->request.strategy};
    PyObject *done = NULL;
    if (gr_view_beside(j->ask.out, "out", j->request.stream, j->array->device, &sums, &out) < 0)
        return NULL;
    if ((!j->decided || is_known(j->decided, &sums)) &&
        gr_check_out(j->request.sums.bytes, &sums, &out, inputs) == 0 &&
        add_dims(&j->request, &j->ask, j->in, mask, &out) == 0 && remember(j, &sums) == 0 &&
        (!sums.count || run(&j->request, &j->ask, NULL, &launched) == 0))
        done = result_of(j, &launched);
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

PyObject *gr_py_sum_axis_on_device(PyObject *Py_UNUSED(self), PyObject *args)
{
    const gr_view_object *view;
    PyObject *details;
    job j = {.decided = NULL};
    if (!PyArg_ParseTuple(args, "O!pKOOOOOO", gr_view_type, &view, &j.ask.keeps_dims, &j.ask.axes,
                          &j.ask.out, &j.ask.mask, &details, &j.decisions, &j.make, &j.known) ||
        take_details(details, &j.request, &j.ask) < 0 ||
        take_types(&j.request, j.ask.exactly, view->array.kind, view->array.bytes) < 0)
        return NULL;
    j.array = &view->array;
    j.in = &view->seen;
    j.request.stream = view->stream;
    j.request.device = view->array.device;
    if (j.decisions != Py_None && !(j.key = key_of(&j)))
        return NULL;
    PyObject *done = sum_decided(&j);
    Py_XDECREF(j.key);
    return done;
}

PyObject *gr_py_recall_axis(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t count)
{
    enum { ARRAY, KEEPS_DIMS, OUT, DECISIONS, ARGUMENTS };
    int keeps_dims = count == ARGUMENTS ? PyObject_IsTrue(args[KEEPS_DIMS]) : -1;
    if (keeps_dims < 0) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "expected four arguments");
        return NULL;
    }
    gr_gpu_array array;
    gr_view in;
    job j = {.array = &array, .in = &in, .decisions = args[DECISIONS]};
    int found = gr_gpu_array_of(args[ARRAY], gr_callers_stream, GR_LEGACY_STREAM, &array);
    if (found <= 0)
        return found < 0 ? NULL : Py_NewRef(Py_None);
    PyObject *done = NULL, *given = args[OUT];
    j.request.stream = array.stream ? array.stream : GR_LEGACY_STREAM;
    gr_view_gpu(&array, &in);
    found = gr_find_memory(&array) < 0 ? -1 : recall(&j, given);
    if (found > 0) {
        j.request.device = array.device;
        j.ask.keeps_dims = keeps_dims;
        j.ask.out = given != Py_None
                        ? Py_NewRef(given)
                        : PyObject_CallFunction(j.make, "K",
                                                (unsigned long long)(uintptr_t)j.request.stream);
        done = j.ask.out ? sum_decided(&j) : NULL;
        Py_XDECREF(j.ask.out);
        found = done || PyErr_Occurred();
    }
    if (!found)
        done = gr_new_view(&array, j.request.stream);
    Py_XDECREF(j.key);
    Py_XDECREF(j.capsule);
    gr_gpu_array_done(&array);
    return done;
}
