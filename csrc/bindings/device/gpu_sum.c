/* Sums of arrays on a GPU. */
#include "bindings/device/functions.h"

#include "backend/backend.h"
#include "bindings/device/gpu_array.h"
#include "bindings/device/run.h"
#include "bindings/gil.h"
#include "bindings/numpy_arrays.h"
#include "exact/format.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* How the elements of an array are read, and the default types of the accumulator and result. */
typedef struct {
    int load, acc, typenum; /* typenum: the result's; half floats give float32 */
    int elements_load;      /* for gr_elements (shared/elements.h) */
    int parts;              /* 2 for complex numbers */
} gr_reading;

static int find_reading(const gr_gpu_array *array, gr_reading *reading)
{
    static const struct {
        char kind;
        int bytes;
        gr_reading reading;
    } table[] = {
        {'b', 1, {GR_LOAD_u8, GR_ACC_u64, NPY_INT64, GR_LOAD_u8, 1}},
        {'i', 1, {GR_LOAD_i8, GR_ACC_u64, NPY_INT64, GR_LOAD_i8, 1}},
        {'i', 2, {GR_LOAD_i16, GR_ACC_u64, NPY_INT64, GR_LOAD_i16, 1}},
        {'i', 4, {GR_LOAD_i32, GR_ACC_u64, NPY_INT64, GR_LOAD_i32, 1}},
        {'i', 8, {GR_LOAD_u64, GR_ACC_u64, NPY_INT64, GR_ELEMENTS_I64, 1}},
        {'u', 1, {GR_LOAD_u8, GR_ACC_u64, NPY_UINT64, GR_LOAD_u8, 1}},
        {'u', 2, {GR_LOAD_u16, GR_ACC_u64, NPY_UINT64, GR_LOAD_u16, 1}},
        {'u', 4, {GR_LOAD_u32, GR_ACC_u64, NPY_UINT64, GR_LOAD_u32, 1}},
        {'u', 8, {GR_LOAD_u64, GR_ACC_u64, NPY_UINT64, GR_LOAD_u64, 1}},
        {'f', 2, {GR_LOAD_f16, GR_ACC_f32, NPY_FLOAT32, GR_LOAD_f16, 1}},
        {'B', 2, {GR_LOAD_bf16, GR_ACC_f32, NPY_FLOAT32, GR_LOAD_bf16, 1}},
        {'f', 4, {GR_LOAD_f32, GR_ACC_f32, NPY_FLOAT32, GR_LOAD_f32, 1}},
        {'f', 8, {GR_LOAD_f64, GR_ACC_f64, NPY_FLOAT64, GR_LOAD_f64, 1}},
        {'c', 8, {GR_LOAD_f32, GR_ACC_f32, NPY_COMPLEX64, GR_LOAD_f32, 2}},
        {'c', 16, {GR_LOAD_f64, GR_ACC_f64, NPY_COMPLEX128, GR_LOAD_f64, 2}},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (table[i].kind == array->kind && table[i].bytes == array->bytes) {
            *reading = table[i].reading;
            return 1;
        }
    static const char *const names[] = {"bbool", "iint", "uuint", "ffloat", "Bbfloat", "ccomplex"};
    size_t i = 0;
    while (i + 1 < sizeof names / sizeof names[0] && names[i][0] != array->kind)
        i++;
    PyErr_Format(PyExc_TypeError, "arrays of %s%d on a GPU cannot be summed", names[i] + 1,
                 8 * array->bytes);
    return -1;
}

typedef struct {
    gr_workspace *workspace;
    gr_error error;
} gr_opening;

/* Returns the stream of a workspace, which it opens if necessary; NULL with an exception set.
 * gr_gpu_array_of() calls this for producers that make our stream wait. */
static void *open_for(void *context, int device)
{
    gr_opening *opening = context;
    double init_ms;
    if (!opening->workspace &&
        gr_open_workspace(device, &opening->workspace, &init_ms, &opening->error) != GR_OK) {
        gr_raise(&opening->error);
        return NULL;
    }
    return gr_workspace_stream(opening->workspace);
}

static void *callers_stream(void *context, int Py_UNUSED(device))
{
    return context;
}

/* Arguments of gr_py_sum_gpu() and the other entry points below. */
typedef struct {
    PyObject *object;
    PyObject *resolve; /* maps (kind, bytes per element, device) to (acc, cast, typenum, target), -1
                          for a default; NULL: all defaults */
    gr_launch launch;
    int acc, cast, typenum;
    unsigned long long stream; /* 0: the producer's */
    int target;                /* type that exact sums are rounded to; -1: the elements' type */
} gr_asked;

/* Calls `resolve` with this call's description of the array. A producer may describe the same array
 * differently the next time, so Python must not read it a second time. */
static int resolve(gr_asked *asked, const gr_gpu_array *array)
{
    if (!asked->resolve)
        return 0;
    PyObject *found =
        PyObject_CallFunction(asked->resolve, "Cii", array->kind, array->bytes, array->device);
    int ok =
        found && PyTuple_Check(found) &&
        PyArg_ParseTuple(found, "ipii", &asked->acc, &asked->cast, &asked->typenum, &asked->target);
    Py_XDECREF(found);
    if (ok && (asked->acc >= GR_ACC_COUNT ||
               (asked->target >= 0 && !gr_is_float((gr_load)asked->target)))) {
        PyErr_SetString(PyExc_ValueError, "no such accumulator, or no float to round to");
        return -1;
    }
    if (!ok && !PyErr_Occurred())
        PyErr_SetString(PyExc_TypeError, "expected a tuple of four numbers");
    return ok ? 0 : -1;
}

/* The plan and outcome of one sum, or of two for the parts of complex numbers. */
typedef struct {
    gr_reading reading;
    gr_elements elements;
    gr_request request;
    int choose;
    gr_outcome outcome[2];
} gr_job;

static int is_float_kind(int kind)
{
    return kind == 'f' || kind == 'B' || kind == 'c';
}

static int plan_reading(const gr_asked *asked, const gr_gpu_array *array, gr_job *job)
{
    gr_reading *reading = &job->reading;
    int flat = gr_flatten(array, &job->elements, &job->request.n);
    if (flat < 0 || find_reading(array, reading) < 0)
        return -1;
    job->elements.load = reading->elements_load;
    if (asked->acc >= 0) {
        reading->acc = asked->acc;
        reading->typenum = asked->typenum;
        if (asked->acc == GR_ACC_u32 && array->bytes == 4)
            reading->load = GR_LOAD_u32;
    }
    if (reading->parts == 2)
        for (int d = 0; d < job->elements.dims; d++)
            job->elements.step[d] *= 2;
    int aligned = (uintptr_t)job->elements.base % gr_load_size((gr_load)reading->load) == 0;
    if (!aligned) {
        PyErr_SetString(PyExc_BufferError, "the array's elements are not aligned to their size");
        return -1;
    }
    job->request.load =
        flat && !asked->cast && reading->parts == 1 ? (gr_load)reading->load : GR_LOAD_any;
    job->request.acc = (gr_acc)reading->acc;
    job->request.data = job->elements.base;
    job->request.elements = &job->elements;
    return 0;
}

static int plan_strategy(const gr_asked *asked, const gr_gpu_array *array, gr_job *job)
{
    int exact = gr_is_exact(asked->launch.strategy);
    int integers = job->reading.acc == GR_ACC_u32 || job->reading.acc == GR_ACC_u64;

    job->choose = gr_pick(asked->launch.strategy, integers, &job->request.strategy);
    if (exact && !integers && !is_float_kind(array->kind) && array->bytes == 8) {
        PyErr_SetString(PyExc_TypeError, "64-bit integers on a GPU cannot be summed exactly as "
                                         "floats: sum them as integers, or cast the array first");
        return -1;
    }
    return 0;
}

static int plan_job(const gr_asked *asked, const gr_gpu_array *array, gr_job *job)
{
    job->request = gr_request_of(&asked->launch);
    if (plan_reading(asked, array, job) < 0 || plan_strategy(asked, array, job) < 0)
        return -1;
    job->request.device = array->device;
    job->request.on_device = 1;
    job->request.stream = asked->stream ? (void *)(uintptr_t)asked->stream : array->stream;
    return 0;
}

static gr_status sum_parts(gr_workspace *workspace, gr_job *job, gr_error *error)
{
    gr_outcome *first = &job->outcome[0], *second = &job->outcome[1];
    if (gr_sum_in(workspace, &job->request, job->choose, first, error) != GR_OK ||
        job->reading.parts == 1)
        return error->status;
    const char *base = job->elements.base;
    job->elements.base = base + gr_load_size((gr_load)job->reading.load);
    if (gr_sum_in(workspace, &job->request, job->choose, second, error) != GR_OK)
        return error->status;
    first->kernel_ms += second->kernel_ms;
    first->d2h_ms += second->d2h_ms;
    first->launches += second->launches;
    return GR_OK;
}

/* Rounds an exact sum once, to `target`. Returns half floats widened to float32. */
static gr_value rounded(const gr_exact *sum, gr_load target)
{
    gr_value value = {.u64 = gr_exact_round(sum, target)};
    if (gr_load_size(target) != 2)
        return value;
    uint16_t half = (uint16_t)value.u64;
    gr_exact widened;
    gr_exact_sum_array(&half, 1, target, 1, 1, &widened);
    value.f32 = gr_exact_f32(&widened);
    if (half == 0x8000) /* an exact sum of -0 is +0 */
        value.f32 = -0.0F;
    return value;
}

/* Whether one accumulator, or two for complex numbers, has the bits of a NumPy type. */
static int holds(int acc, int parts, int typenum)
{
    if (typenum < 0 || !PyTypeNum_ISNUMBER(typenum))
        return 0;
    PyArray_Descr *type = PyArray_DescrFromType(typenum);
    size_t bytes = type ? (size_t)PyDataType_ELSIZE(type) : 0, part = gr_acc_size((gr_acc)acc);
    Py_XDECREF((PyObject *)type);
    if (acc == GR_ACC_u32 || acc == GR_ACC_u64)
        return parts == 1 && PyTypeNum_ISINTEGER(typenum) && bytes <= part;
    int same_kind = parts == 1 ? PyTypeNum_ISFLOAT(typenum) : PyTypeNum_ISCOMPLEX(typenum);
    return same_kind && bytes == part * (size_t)parts;
}

static PyObject *scalar(const gr_job *job, int asked_target)
{
    unsigned char bits[16] = {0};
    int digits = gr_strategy_at(job->request.strategy)->traits & DIGITS;
    gr_load target = (gr_load)(asked_target < 0 ? job->reading.load : asked_target);
    size_t part = gr_acc_size((gr_acc)job->reading.acc);
    int rounds_to = target == GR_LOAD_f64 ? GR_ACC_f64 : GR_ACC_f32;
    if (!holds(job->reading.acc, job->reading.parts, job->reading.typenum) ||
        (digits && rounds_to != job->reading.acc)) {
        PyErr_SetString(PyExc_ValueError, "the accumulator does not have the result's type");
        return NULL;
    }
    for (int i = 0; i < job->reading.parts; i++) {
        const gr_outcome *outcome = &job->outcome[i];
        gr_value value = digits ? rounded(&outcome->exact, target) : outcome->value;
        memcpy(bits + (size_t)i * part, &value, part);
    }
    PyArray_Descr *type = PyArray_DescrFromType(job->reading.typenum);
    PyObject *result = type ? PyArray_Scalar(bits, type, NULL) : NULL;
    Py_XDECREF((PyObject *)type);
    return result;
}

/* If a kernel has faulted, appends to the message the memory that it read. */
static void blame(gr_error *error, const gr_job *job, const gr_gpu_array *array)
{
    size_t used = strlen(error->message);
    if (error->lost)
        snprintf(
            error->message + used, sizeof error->message - used,
            "\nThe kernel read %zu elements of %d bytes from %#llx to %#llx, as their producer "
            "described them.",
            job->request.n, array->bytes, (unsigned long long)array->first,
            (unsigned long long)array->last);
}

static int run_job(gr_job *job, const gr_gpu_array *array, gr_workspace *workspace)
{
    gr_error error;
    gr_status status;
    gr_without_gil call;
    gr_drop_gil(&call);
    gr_backend_schedule(0, 0); /* forward, whatever order an earlier sum of this thread set */
    status = sum_parts(workspace, job, &error);
    if (gr_take_gil(&call) < 0)
        return -1;
    if (status != GR_OK) {
        blame(&error, job, array);
        gr_raise(&error);
    }
    return status == GR_OK ? 0 : -1;
}

static int do_job(gr_asked *asked, const gr_gpu_array *array, gr_workspace *workspace, gr_job *job)
{
    return resolve(asked, array) < 0 || plan_job(asked, array, job) < 0 ||
                   run_job(job, array, workspace) < 0
               ? -1
               : 0;
}

static PyObject *sum_of(gr_asked *asked, const gr_gpu_array *array, gr_workspace *workspace,
                        gr_job *job)
{
    return do_job(asked, array, workspace, job) < 0 ? NULL : scalar(job, asked->target);
}

static PyObject *sum_described(gr_asked *asked, const gr_gpu_array *array, gr_workspace *workspace)
{
    gr_job job;
    PyObject *value = sum_of(asked, array, workspace, &job);
    if (!value)
        return NULL;
    const gr_outcome *outcome = &job.outcome[0];
    return Py_BuildValue("NCiinnddIIIii", value, array->kind, array->bytes, array->device,
                         (Py_ssize_t)job.request.n, (Py_ssize_t)job.request.n * array->bytes,
                         outcome->kernel_ms, outcome->d2h_ms, outcome->block, outcome->grid,
                         outcome->launches, (int)outcome->finish, job.request.strategy);
}

/* Returns the sum without times, or (value, kind) for half floats. Python rounds those, because C
 * has no NumPy type number for bfloat16. */
static PyObject *sum_untimed(gr_asked *asked, const gr_gpu_array *array, gr_workspace *workspace)
{
    gr_job job;
    PyObject *value = sum_of(asked, array, workspace, &job);
    int half = value && array->bytes == 2 && job.reading.acc == GR_ACC_f32;
    return half ? Py_BuildValue("NC", value, array->kind) : gr_untimed(value);
}

/* Returns the bytes of the exact sums, one per component, for an accumulator. */
static PyObject *deposit_described(gr_asked *asked, const gr_gpu_array *array,
                                   gr_workspace *workspace)
{
    gr_job job;
    Py_ssize_t size = sizeof(gr_exact);
    if (do_job(asked, array, workspace, &job) < 0)
        return NULL;
    const char *real = (const char *)&job.outcome[0].exact;
    const char *imaginary = (const char *)&job.outcome[1].exact;
    return job.reading.parts == 2 ? Py_BuildValue("(y#y#)", real, size, imaginary, size)
                                  : Py_BuildValue("(y#)", real, size);
}

/* Returns the workspace that open_for() has opened for the producer, or opens one. Returns NULL
 * with an exception set on failure. */
static gr_workspace *workspace_for(gr_gpu_array *array, gr_opening *opening)
{
    if (array->device < 0 &&
        gr_pointer_device(array->base, &array->device, &opening->error) != GR_OK) {
        gr_raise(&opening->error);
        return NULL;
    }
    return open_for(opening, array->device) ? opening->workspace : NULL;
}

/* Checks that kernels can read the memory that a producer described. Returns 0, or -1 with an
 * exception set. Caches the last readable ranges, because programs sum the same memory repeatedly.
 * The GIL guards the cache. */
static int check_memory(const gr_gpu_array *array)
{
    enum { KEPT = 8 };
    static gr_range kept[KEPT] = {{1, 0}};
    static unsigned next;
    gr_range bytes = {array->first, array->last}, known;
    if (!array->count)
        return 0;
    for (int i = 0; i < KEPT; i++)
        if (bytes.first >= kept[i].first && bytes.last <= kept[i].last)
            return 0;
    if (!gr_backend_can_read(bytes, &known)) {
        PyErr_Format(PyExc_BufferError,
                     "its producer describes an array of %lld elements of %d bytes from %p to %p, "
                     "which is not all memory that the %s can read",
                     (long long)array->count, array->bytes, (void *)bytes.first, (void *)bytes.last,
                     gr_backend_name());
        return -1;
    }
    kept[next] = known;
    next = (next + 1) % KEPT;
    return 0;
}

/* Returns the result of `work` for an array on a GPU, or None if the object is not on a GPU. */
static PyObject *on_gpu(gr_asked *asked,
                        PyObject *(*work)(gr_asked *asked, const gr_gpu_array *array,
                                          gr_workspace *workspace))
{
    gr_gpu_array array;
    gr_opening opening = {.error = {.status = GR_OK}};
    int found = asked->stream ? gr_gpu_array_of(asked->object, callers_stream,
                                                (void *)(uintptr_t)asked->stream, &array)
                              : gr_gpu_array_of(asked->object, open_for, &opening, &array);
    PyObject *result = NULL;
    if (found == 0) {
        result = Py_NewRef(Py_None);
    } else if (found > 0 && workspace_for(&array, &opening) && check_memory(&array) == 0) {
        result = work(asked, &array, opening.workspace);
    }
    if (opening.workspace)
        gr_close_workspace(opening.workspace, result != NULL);
    gr_gpu_array_done(&array);
    return result;
}

static const gr_asked DEFAULTS = {
    .launch = {.load = -1, .acc = -1}, .acc = -1, .typenum = -1, .target = -1};

/* Reads a stream handle. Returns 0, or -1 with an exception set. */
static int stream_of(PyObject *number, unsigned long long *stream)
{
    *stream = PyLong_AsUnsignedLongLong(number);
    return PyErr_Occurred() ? -1 : 0;
}

PyObject *gr_py_sum_gpu(PyObject *Py_UNUSED(self), PyObject *args)
{
    gr_asked asked = DEFAULTS;
    PyObject *launch, *stream;
    if (!PyArg_ParseTuple(args, "OOOO", &asked.object, &asked.resolve, &launch, &stream) ||
        gr_read_launch(launch, GR_GPU_ARRAY, &asked.launch) < 0 ||
        stream_of(stream, &asked.stream) < 0)
        return NULL;
    if (asked.resolve == Py_None)
        asked.resolve = NULL;
    return on_gpu(&asked, sum_described);
}

PyObject *gr_py_sum_gpu_untimed(PyObject *Py_UNUSED(module), PyObject *const *args,
                                Py_ssize_t count)
{
    gr_asked asked = DEFAULTS;
    if (count != 3) {
        PyErr_SetString(PyExc_TypeError, "expected an array, a strategy's number and a stream");
        return NULL;
    }
    asked.object = args[0];
    if (gr_strategy_of(args[1], &asked.launch.strategy) < 0 ||
        stream_of(args[2], &asked.stream) < 0)
        return NULL;
    return on_gpu(&asked, sum_untimed);
}

PyObject *gr_py_exact_gpu(PyObject *Py_UNUSED(self), PyObject *args)
{
    gr_asked asked = DEFAULTS;
    PyObject *stream;
    asked.launch.strategy = gr_exact_strategy();
    if (!PyArg_ParseTuple(args, "OOO", &asked.object, &asked.resolve, &stream) ||
        stream_of(stream, &asked.stream) < 0)
        return NULL;
    return on_gpu(&asked, deposit_described);
}
