/* Arrays that lie on a GPU: how their elements are read, and their sums. */
#include "module.h"

#include "gpu_array.h"

#include <string.h>

/* How elements of a producer's array are read, and what their sum is by default. */
typedef struct {
    int load, acc, typenum; /* typenum: of the result; half floats come as float32 */
    int elements_load;      /* as engine/elements.h counts it */
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
    PyErr_Format(PyExc_TypeError, "arrays of kind '%c' and %d bytes on a GPU cannot be summed",
                 array->kind, array->bytes);
    return -1;
}

typedef struct {
    gr_workspace *workspace;
    gr_error error;
} gr_opening;

/* Called by gr_gpu_array_of, where a producer must be told which stream to make wait. */
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

/* Strategies that are chosen here: what is quickest, or what is right. */
enum { FAST = -1, AUTO = -2 };

/* What gr_py_sum_gpu was asked. */
typedef struct {
    PyObject *object;
    int acc, cast, typenum, strategy, finish, timed;
    unsigned block, grid;
    unsigned long long stream; /* 0: the producer's */
    int target;                /* what an exact sum is rounded to; -1: the elements' own type */
} gr_asked;

/* A sum, or two for the parts of complex numbers, that is planned or done. */
typedef struct {
    gr_reading reading;
    gr_elements elements;
    gr_request request;
    int choose;
    gr_outcome outcome[2];
} gr_job;

static int is_exact(int strategy)
{
    return strategy == AUTO || (strategy >= 0 && gr_strategy_at(strategy)->traits & DIGITS);
}

static int exact_strategy(void)
{
    int i = 0;
    while (!is_exact(i))
        i++;
    return i;
}

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

int gr_strategy_of(PyObject *number, int *asked)
{
    long found = PyLong_AsLong(number);
    if (PyErr_Occurred())
        return -1;
    if (found < AUTO || found >= gr_strategy_count()) {
        PyErr_Format(PyExc_ValueError, "no such strategy as %ld", found);
        return -1;
    }
    *asked = (int)found;
    return 0;
}

/* Integers are exact without `exact`. */
int gr_pick(int asked, int integers, int *strategy)
{
    int exact = is_exact(asked), choose = asked == FAST || (exact && integers);
    *strategy = choose ? 0 : exact ? exact_strategy() : asked;
    return choose;
}

static int plan_strategy(const gr_asked *asked, const gr_gpu_array *array, gr_job *job)
{
    int exact = is_exact(asked->strategy);
    int integers = job->reading.acc == GR_ACC_u32 || job->reading.acc == GR_ACC_u64;

    job->choose = gr_pick(asked->strategy, integers, &job->request.strategy);
    if (exact && !integers && !is_float_kind(array->kind) && array->bytes == 8) {
        PyErr_SetString(PyExc_TypeError, "64-bit integers on a GPU cannot be summed exactly as "
                                         "floats: sum them as integers, or cast the array first");
        return -1;
    }
    return 0;
}

static int plan_job(const gr_asked *asked, const gr_gpu_array *array, gr_job *job)
{
    memset(&job->request, 0, sizeof job->request);
    if (plan_reading(asked, array, job) < 0 || plan_strategy(asked, array, job) < 0)
        return -1;
    job->request.block = asked->block;
    job->request.grid = asked->grid;
    job->request.finish = (gr_finish)asked->finish;
    job->request.device = array->device;
    job->request.on_device = 1;
    job->request.stream = asked->stream ? (void *)(uintptr_t)asked->stream : array->stream;
    job->request.timed = asked->timed;
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

/* Rounded once, to `target`; a half float as the float32 that it is. */
static gr_value rounded(const gr_exact *sum, gr_load target)
{
    gr_value value = {.u64 = gr_exact_round(sum, target)};
    if (gr_load_size(target) != 2)
        return value;
    uint16_t half = (uint16_t)value.u64;
    gr_exact widened;
    gr_exact_sum_array(&half, 1, target, 1, 1, &widened);
    value.f32 = gr_exact_f32(&widened);
    if (half == 0x8000) /* -0 is no sum */
        value.f32 = -0.0F;
    return value;
}

static PyObject *scalar(const gr_job *job, int asked_target)
{
    unsigned char bits[16];
    int digits = gr_strategy_at(job->request.strategy)->traits & DIGITS;
    gr_load target = (gr_load)(asked_target < 0 ? job->reading.load : asked_target);
    size_t part = gr_acc_size((gr_acc)job->reading.acc);
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

static int run_job(gr_job *job, gr_workspace *workspace)
{
    gr_error error;
    gr_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = sum_parts(workspace, job, &error);
    Py_END_ALLOW_THREADS;
    if (status == GR_OK)
        return 0;
    gr_raise(&error);
    return -1;
}

static PyObject *sum_of(const gr_asked *asked, const gr_gpu_array *array, gr_workspace *workspace,
                        gr_job *job)
{
    if (plan_job(asked, array, job) < 0 || run_job(job, workspace) < 0)
        return NULL;
    return scalar(job, asked->target);
}

static PyObject *sum_described(const gr_asked *asked, const gr_gpu_array *array,
                               gr_workspace *workspace)
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

/* The sum alone. Python rounds half floats, as C knows no NumPy type for bfloat16. */
static PyObject *sum_untimed(const gr_asked *asked, const gr_gpu_array *array,
                             gr_workspace *workspace)
{
    gr_job job;
    PyObject *value = sum_of(asked, array, workspace, &job);
    int half = value && array->bytes == 2 && job.reading.acc == GR_ACC_f32;
    return half ? Py_BuildValue("NC", value, array->kind) : gr_untimed(value);
}

/* The exact sums themselves, for an accumulator. */
static PyObject *deposit_described(const gr_asked *asked, const gr_gpu_array *array,
                                   gr_workspace *workspace)
{
    gr_job job;
    Py_ssize_t size = sizeof(gr_exact);
    if (plan_job(asked, array, &job) < 0 || run_job(&job, workspace) < 0)
        return NULL;
    const char *real = (const char *)&job.outcome[0].exact;
    const char *imaginary = (const char *)&job.outcome[1].exact;
    return job.reading.parts == 2 ? Py_BuildValue("(y#y#)", real, size, imaginary, size)
                                  : Py_BuildValue("(y#)", real, size);
}

/* Opens a workspace where the producer did not need one yet. */
static gr_workspace *workspace_for(gr_gpu_array *array, gr_opening *opening)
{
    if (array->device < 0 &&
        gr_pointer_device(array->base, &array->device, &opening->error) != GR_OK) {
        gr_raise(&opening->error);
        return NULL;
    }
    return open_for(opening, array->device) ? opening->workspace : NULL;
}

/* What is to be done with an array that is found on a GPU; None if it is not there. */
static PyObject *on_gpu(const gr_asked *asked,
                        PyObject *(*work)(const gr_asked *asked, const gr_gpu_array *array,
                                          gr_workspace *workspace))
{
    gr_gpu_array array;
    gr_opening opening = {NULL, {GR_OK, "", ""}};
    int found = asked->stream ? gr_gpu_array_of(asked->object, callers_stream,
                                                (void *)(uintptr_t)asked->stream, &array)
                              : gr_gpu_array_of(asked->object, open_for, &opening, &array);
    PyObject *result = NULL;
    if (found == 0) {
        result = Py_NewRef(Py_None);
    } else if (found > 0 && workspace_for(&array, &opening)) {
        result = work(asked, &array, opening.workspace);
    }
    if (opening.workspace)
        gr_close_workspace(opening.workspace, !result);
    gr_gpu_array_done(&array);
    return result;
}

PyObject *gr_py_sum_gpu(PyObject *Py_UNUSED(self), PyObject *args)
{
    gr_asked asked = {.timed = 1};
    if (!PyArg_ParseTuple(args, "OipiiIIiKi", &asked.object, &asked.acc, &asked.cast,
                          &asked.typenum, &asked.strategy, &asked.block, &asked.grid, &asked.finish,
                          &asked.stream, &asked.target))
        return NULL;
    return on_gpu(&asked, sum_described);
}

PyObject *gr_py_quick_sum_gpu(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    gr_asked asked = {.acc = -1, .typenum = -1, .target = -1};
    if (count != 3) {
        PyErr_SetString(PyExc_TypeError, "expected an array, a strategy's number and a stream");
        return NULL;
    }
    asked.object = args[0];
    if (gr_strategy_of(args[1], &asked.strategy) < 0)
        return NULL;
    asked.stream = PyLong_AsUnsignedLongLongMask(args[2]);
    return PyErr_Occurred() ? NULL : on_gpu(&asked, sum_untimed);
}

PyObject *gr_py_exact_gpu(PyObject *Py_UNUSED(self), PyObject *args)
{
    gr_asked asked;
    memset(&asked, 0, sizeof asked);
    asked.strategy = exact_strategy();
    asked.acc = asked.target = -1;
    if (!PyArg_ParseTuple(args, "OpK", &asked.object, &asked.cast, &asked.stream))
        return NULL;
    if (asked.cast)
        asked.acc = GR_ACC_f64;
    return on_gpu(&asked, deposit_described);
}

PyObject *gr_py_gpu_dtype(PyObject *Py_UNUSED(self), PyObject *object)
{
    gr_gpu_array array;
    gr_opening opening = {NULL, {GR_OK, "", ""}};
    int found = gr_gpu_array_of(object, open_for, &opening, &array);
    if (opening.workspace)
        gr_close_workspace(opening.workspace, found < 0);
    PyObject *result = found > 0    ? Py_BuildValue("Ci", array.kind, array.bytes)
                       : found == 0 ? Py_NewRef(Py_None)
                                    : NULL;
    gr_gpu_array_done(&array);
    return result;
}
