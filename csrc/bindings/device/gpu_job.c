#include "bindings/device/gpu_job.h"

#include "backend/backend.h"
#include "bindings/device/run.h"
#include "bindings/device/views.h"
#include "exact/format.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* The type of a sum of bfloat16: float32 where NumPy has no bfloat16. */
static int find_bfloat16(gr_reading *reading)
{
    int number = gr_bfloat16_number();
    reading->typenum = number >= 0 ? number : NPY_FLOAT;
    return number < -1 ? -1 : 1;
}

const char *gr_kind_name(int kind)
{
    static const char *const names[] = {"bbool", "iint", "uuint", "ffloat", "Bbfloat", "ccomplex"};
    size_t i = 0;
    while (i + 1 < sizeof names / sizeof names[0] && names[i][0] != kind)
        i++;
    return names[i] + 1;
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
    PyErr_Format(PyExc_TypeError, "arrays of %s%d on a GPU cannot be summed",
                 gr_kind_name(array->kind), 8 * array->bytes);
    return -1;
}

/* Returns the stream of a workspace, which it opens if necessary; NULL with an exception set.
 * gr_gpu_array_of() calls this for producers that make our stream wait. */
static void *open_for(void *context, int device)
{
    gr_opening *opening = context;
    if (!opening->workspace &&
        gr_open_workspace(device, &opening->workspace, NULL, &opening->error) != GR_OK) {
        gr_raise(&opening->error);
        return NULL;
    }
    return gr_workspace_stream(opening->workspace);
}

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

int gr_plan_job(gr_asked *asked, const gr_gpu_array *array, gr_job *job)
{
    job->request = gr_request_of(&asked->launch);
    if (resolve(asked, array) < 0 || plan_reading(asked, array, job) < 0 ||
        plan_strategy(asked, array, job) < 0)
        return -1;
    job->request.device = array->device;
    job->request.on_device = 1;
    job->request.stream = asked->stream ? (void *)(uintptr_t)asked->stream : array->stream;
    return 0;
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

int gr_refuse_capture(void *stream)
{
    if (!stream || !gr_stream_is_captured(stream))
        return 0;
    PyErr_SetString(PyExc_RuntimeError,
                    "the stream is being captured into a CUDA graph, and a sum that returns a "
                    "number waits for it: use result='device' or out=");
    return -1;
}

int gr_open_array(PyObject *object, unsigned long long stream, gr_opening *opening,
                  gr_gpu_array *array)
{
    void *given = (void *)(uintptr_t)stream;
    int found = stream ? gr_gpu_array_of(object, gr_callers_stream, given, array)
                       : gr_gpu_array_of(object, open_for, opening, array);
    if (found <= 0)
        return found;
    if (gr_refuse_capture(stream ? given : array->stream) < 0)
        return -1;
    return workspace_for(array, opening) && gr_check_memory(array, array->device) == 0 ? 1 : -1;
}

gr_status gr_begin_job(gr_workspace *workspace, gr_job *job, int part, gr_error *error)
{
    if (part == 1) {
        const char *base = job->elements.base;
        job->elements.base = base + gr_load_size((gr_load)job->reading.load);
    }
    return gr_begin_sum(workspace, &job->request, job->choose, &job->outcome[part], error);
}

void gr_blame(gr_error *error, const gr_job *job, const gr_gpu_array *array)
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
