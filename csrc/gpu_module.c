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
    if (!opening->workspace &&
        gr_open_workspace(device, &opening->workspace, &opening->error) != GR_OK) {
        gr_raise(&opening->error);
        return NULL;
    }
    return gr_workspace_stream(opening->workspace);
}

static void *callers_stream(void *context, int Py_UNUSED(device))
{
    return context;
}

/* What py_sum_gpu was asked. */
typedef struct {
    PyObject *object;
    int acc, cast, typenum, strategy, finish, timed;
    unsigned block, grid;
    unsigned long long stream; /* 0: the producer's */
} gr_asked;

static int plan_reading(const gr_asked *asked, const gr_gpu_array *array, gr_reading *reading,
                        gr_elements *elements, gr_request *request)
{
    int flat = gr_flatten(array, elements, &request->n);
    if (flat < 0 || find_reading(array, reading) < 0)
        return -1;
    elements->load = reading->elements_load;
    if (asked->acc >= 0) {
        reading->acc = asked->acc;
        reading->typenum = asked->typenum;
        if (asked->acc == GR_ACC_u32 && array->bytes == 4)
            reading->load = GR_LOAD_u32;
    }
    if (reading->parts == 2)
        for (int d = 0; d < elements->dims; d++)
            elements->step[d] *= 2;
    int aligned = (uintptr_t)elements->base % gr_load_size((gr_load)reading->load) == 0;
    if (!aligned) {
        PyErr_SetString(PyExc_BufferError, "the array's elements are not aligned to their size");
        return -1;
    }
    request->load =
        flat && !asked->cast && reading->parts == 1 ? (gr_load)reading->load : GR_LOAD_any;
    request->acc = (gr_acc)reading->acc;
    request->data = elements->base;
    request->elements = elements;
    return 0;
}

/* One sum, or two for the parts of complex numbers, into values[]. */
static gr_status sum_parts(gr_workspace *workspace, gr_request *request, const gr_reading *reading,
                           gr_elements *elements, int choose, gr_value values[2],
                           gr_outcome *outcome, gr_error *error)
{
    gr_outcome second;
    if (gr_sum_in(workspace, request, choose, outcome, error) != GR_OK)
        return error->status;
    values[0] = outcome->value;
    if (reading->parts == 2) {
        elements->base = (const char *)elements->base + gr_load_size((gr_load)reading->load);
        if (gr_sum_in(workspace, request, choose, &second, error) != GR_OK)
            return error->status;
        values[1] = second.value;
        outcome->kernel_ms += second.kernel_ms;
        outcome->d2h_ms += second.d2h_ms;
        outcome->launches += second.launches;
    }
    return GR_OK;
}

static PyObject *scalar(const gr_value values[2], const gr_reading *reading)
{
    unsigned char bits[16];
    size_t part = gr_acc_size((gr_acc)reading->acc);
    memcpy(bits, &values[0], part);
    if (reading->parts == 2)
        memcpy(bits + part, &values[1], part);
    PyArray_Descr *type = PyArray_DescrFromType(reading->typenum);
    PyObject *result = type ? PyArray_Scalar(bits, type, NULL) : NULL;
    Py_XDECREF((PyObject *)type);
    return result;
}

static PyObject *sum_described(const gr_asked *asked, const gr_gpu_array *array,
                               gr_workspace *workspace)
{
    gr_request request;
    gr_reading reading;
    gr_elements elements;
    gr_outcome outcome;
    gr_value values[2];
    gr_error error;
    gr_status status;

    memset(&request, 0, sizeof request);
    if (plan_reading(asked, array, &reading, &elements, &request) < 0)
        return NULL;
    request.strategy = asked->strategy < 0 ? 0 : asked->strategy;
    request.block = asked->block;
    request.grid = asked->grid;
    request.finish = (gr_finish)asked->finish;
    request.device = array->device;
    request.on_device = 1;
    request.stream = asked->stream ? (void *)(uintptr_t)asked->stream : array->stream;
    request.timed = asked->timed;
    memset(values, 0, sizeof values);

    Py_BEGIN_ALLOW_THREADS;
    status = sum_parts(workspace, &request, &reading, &elements, asked->strategy < 0, values,
                       &outcome, &error);
    Py_END_ALLOW_THREADS;
    if (status != GR_OK)
        return gr_raise(&error);
    PyObject *value = scalar(values, &reading);
    if (!value)
        return NULL;
    if (!asked->timed) /* Python rounds half floats, as C knows no NumPy type for bfloat16 */
        return array->bytes == 2 && reading.acc == GR_ACC_f32
                   ? Py_BuildValue("NC", value, array->kind)
                   : value;
    return Py_BuildValue("NCiinnddIIIii", value, array->kind, array->bytes, array->device,
                         (Py_ssize_t)request.n, (Py_ssize_t)request.n * array->bytes,
                         outcome.kernel_ms, outcome.d2h_ms, outcome.block, outcome.grid,
                         outcome.launches, (int)outcome.finish, request.strategy);
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

PyObject *gr_py_sum_gpu(PyObject *Py_UNUSED(self), PyObject *args)
{
    gr_asked asked;
    gr_gpu_array array;
    gr_opening opening = {NULL, {GR_OK, "", ""}};
    if (!PyArg_ParseTuple(args, "OipiiIIiKp", &asked.object, &asked.acc, &asked.cast,
                          &asked.typenum, &asked.strategy, &asked.block, &asked.grid, &asked.finish,
                          &asked.stream, &asked.timed))
        return NULL;

    int found = asked.stream ? gr_gpu_array_of(asked.object, callers_stream,
                                               (void *)(uintptr_t)asked.stream, &array)
                             : gr_gpu_array_of(asked.object, open_for, &opening, &array);
    PyObject *result = NULL;
    if (found == 0) {
        result = Py_NewRef(Py_None);
    } else if (found > 0 && workspace_for(&array, &opening)) {
        result = sum_described(&asked, &array, opening.workspace);
    }
    if (opening.workspace)
        gr_close_workspace(opening.workspace, !result);
    gr_gpu_array_done(&array);
    return result;
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
