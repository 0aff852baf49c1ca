/* Sums of arrays on a GPU. */
#include "bindings/device/functions.h"

#include "backend/backend.h"
#include "bindings/device/elapsed.h"
#include "bindings/device/gpu_array.h"
#include "bindings/device/run.h"
#include "bindings/gil.h"
#include "bindings/numpy_arrays.h"
#include "bindings/results.h"
#include "exact/format.h"
#include "threads/clock.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* How the elements of an array are read, and the default types of the accumulator and result. */
typedef struct {
    int load, acc, typenum; /* typenum: NumPy's number of the result's type */
    int elements_load;      /* for gr_elements (shared/elements.h) */
    int parts;              /* 2 for complex numbers */
} gr_reading;

/* The type of a sum of bfloat16: float32 where NumPy has no bfloat16. */
static int find_bfloat16(gr_reading *reading)
{
    int number = gr_bfloat16_number();
    reading->typenum = number >= 0 ? number : NPY_FLOAT;
    return number < -1 ? -1 : 1;
}

static int find_reading(const gr_gpu_array *array, gr_reading *reading)
{
    const gr_numpy_type *type = gr_numpy_type_of_kind(array->kind, array->bytes);
    if (type) {
        int is_signed = array->kind == 'i' && array->bytes == 8;
        int elements = is_signed ? GR_ELEMENTS_I64 : (int)type->load;
        *reading = (gr_reading){type->load, type->acc, type->result, elements, type->components};
        return array->kind == 'B' ? find_bfloat16(reading) : 1;
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

/* Arguments of gr_py_sum_gpu() and gr_py_exact_gpu(). */
typedef struct {
    PyObject *object;
    PyObject *resolve; /* maps (kind, bytes per element, device) to (acc, cast, typenum, target), -1
                          for a default; NULL: all defaults */
    PyObject *common;  /* makes the fields for gr_common_fields(); NULL: the sum is not timed */
    gr_launch launch;
    int acc, cast, typenum;
    unsigned long long stream; /* 0: the producer's */
    int target;                /* type that sums of floats are rounded to; -1: the elements' type */
    double start_ms;           /* gr_now_ms() when the call began */
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
    first->launches += second->launches;
    return GR_OK;
}

/* Whether sums in this accumulator can be converted to the type's result. */
static int can_convert(const gr_numpy_type *type)
{
    int number = type->result;
    PyArray_Descr *found = number < 0 ? NULL : PyArray_DescrFromType(number);
    size_t bytes = found ? (size_t)PyDataType_ELSIZE(found) : 0;
    size_t components = (size_t)type->components;
    Py_XDECREF((PyObject *)found);
    if (gr_adds_integers(type))
        return components == 1 && PyTypeNum_ISINTEGER(number) && bytes <= gr_acc_size(type->acc);
    int same_kind = components == 2              ? PyTypeNum_ISCOMPLEX(number)
                    : type->load == GR_LOAD_bf16 ? PyTypeNum_ISUSERDEF(number)
                                                 : PyTypeNum_ISFLOAT(number);
    return same_kind && bytes == components * gr_load_size(type->load) &&
           (type->load == GR_LOAD_f64) == (type->acc == GR_ACC_f64);
}

/* The type of the sum. Integers are converted without rounding, so their `load` is not used. */
static gr_numpy_type result_type(const gr_job *job, int target)
{
    const gr_reading *reading = &job->reading;
    int load = target >= 0                                                      ? target
               : reading->load == GR_LOAD_bf16 && reading->typenum == NPY_FLOAT ? GR_LOAD_f32
                                                                                : reading->load;
    return (gr_numpy_type){(gr_load)load, (gr_acc)reading->acc, reading->parts, reading->typenum};
}

static PyObject *scalar(const gr_job *job, int target)
{
    gr_numpy_type type = result_type(job, target);
    gr_scalar bits;
    gr_exact exact[2];
    gr_value values[2];
    if (!can_convert(&type)) {
        PyErr_SetString(PyExc_ValueError, "the accumulator does not have the result's type");
        return NULL;
    }
    int digits = gr_strategy_at(job->request.strategy)->traits & DIGITS;
    for (int i = 0; i < type.components; i++)
        if (digits)
            exact[i] = job->outcome[i].exact;
        else
            values[i] = job->outcome[i].value;
    if (digits)
        gr_round_sums(exact, &type, &bits);
    else
        gr_convert_sums(values, &type, &bits);
    return gr_scalar_object(&bits, &type);
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

/* If the sum is timed, the caller owns `job->request.times` afterwards. */
static int run_job(gr_job *job, const gr_gpu_array *array, int timed, gr_workspace *workspace)
{
    gr_error error;
    gr_status status;
    gr_without_gil call;
    if (timed && !(job->request.times = gr_take_times(array->device))) {
        PyErr_NoMemory();
        return -1;
    }
    gr_drop_gil(&call);
    gr_backend_schedule(0, 0); /* forward, whatever order an earlier sum of this thread set */
    status = sum_parts(workspace, job, &error);
    int broken_off = gr_take_gil(&call) < 0;
    if (!broken_off && status == GR_OK)
        return 0;
    gr_drop_times(job->request.times, 0);
    if (!broken_off) {
        blame(&error, job, array);
        gr_raise(&error);
    }
    return -1;
}

static int do_job(gr_asked *asked, const gr_gpu_array *array, gr_workspace *workspace, gr_job *job)
{
    return resolve(asked, array) < 0 || plan_job(asked, array, job) < 0 ||
                   run_job(job, array, asked->common != NULL, workspace) < 0
               ? -1
               : 0;
}

/* What a Timing of such sums has in common, by the order in which `common` takes its arguments. */
static PyObject *common_fields(const gr_asked *asked, const gr_gpu_array *array, const gr_job *job)
{
    int numbers[] = {array->device, job->request.strategy, array->kind, array->bytes,
                     (int)job->outcome[0].finish};
    unsigned long long key = 0;
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        key = key << (i == 1 ? 16 : 8) | (unsigned)numbers[i]; /* all but the strategy: below 256 */
    return gr_common_fields(key, asked->common, "siiCii", gr_backend_name(), numbers[0], numbers[1],
                            numbers[2], numbers[3], numbers[4]);
}

static PyObject *number_or_none(unsigned number)
{
    return number ? PyLong_FromUnsignedLong(number) : Py_NewRef(Py_None);
}

/* Takes over the job's times. */
static PyObject *timed(PyObject *value, const gr_asked *asked, const gr_gpu_array *array,
                       const gr_job *job)
{
    const gr_outcome *outcome = &job->outcome[0];
    double total_ms = gr_now_ms() - asked->start_ms;
    PyObject *common = common_fields(asked, array, job);
    PyObject *const fields[GR_FIELDS] = {
        [GR_ELAPSED] = gr_elapsed_of(job->request.times),
        [GR_BLOCK] = number_or_none(outcome->block),
        [GR_GRID] = number_or_none(outcome->grid),
        [GR_LAUNCHES] = PyLong_FromUnsignedLong(outcome->launches),
        [GR_N] = PyLong_FromSize_t(job->request.n),
        [GR_NBYTES] = PyLong_FromSize_t(job->request.n * (size_t)array->bytes),
        [GR_TOTAL_MS] = PyFloat_FromDouble(total_ms),
    };
    return gr_timed(value, common, fields);
}

static PyObject *sum_described(gr_asked *asked, const gr_gpu_array *array, gr_workspace *workspace)
{
    gr_job job;
    if (do_job(asked, array, workspace, &job) < 0)
        return NULL;
    PyObject *value = scalar(&job, asked->target);
    if (value && job.request.times)
        return timed(value, asked, array, &job);
    gr_drop_times(job.request.times, 1);
    return gr_untimed(value);
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

PyObject *gr_py_sum_gpu(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    gr_asked asked = DEFAULTS;
    asked.start_ms = gr_now_ms();
    if (count != 5) {
        PyErr_SetString(PyExc_TypeError, "expected an array, how its dtype is summed, a launch, a "
                                         "stream, and what makes a timing's fields");
        return NULL;
    }
    asked.object = args[0];
    asked.resolve = args[1] == Py_None ? NULL : args[1];
    asked.common = args[4] == Py_None ? NULL : args[4];
    if (gr_read_launch(args[2], GR_GPU_ARRAY, &asked.launch) < 0 ||
        stream_of(args[3], &asked.stream) < 0)
        return NULL;
    return on_gpu(&asked, sum_described);
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
