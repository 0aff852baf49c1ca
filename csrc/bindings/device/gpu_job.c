#include "bindings/device/gpu_job.h"

#include "backend/backend.h"
#include "bindings/device/run.h"
#include "bindings/device/views.h"
#include "shared/how.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

const char *gr_kind_name(int kind)
{
    static const char *const names[] = {"bbool", "iint", "uuint", "ffloat", "Bbfloat", "ccomplex"};
    size_t i = 0;
    while (i + 1 < sizeof names / sizeof names[0] && names[i][0] != kind)
        i++;
    return names[i] + 1;
}

/* Returns the stream of a workspace, which it opens if necessary; NULL with an exception set.
 * gr_gpu_array_of() calls this for producers that make our stream wait. */
static void *open_for(void *context, int device)
{
    gr_job *job = context;
    if (!job->workspace && gr_open_workspace(device, &job->workspace, NULL, &job->error) != GR_OK) {
        gr_raise(&job->error);
        return NULL;
    }
    return gr_workspace_stream(job->workspace);
}

int gr_read_asked(PyObject *dtype, PyObject *launch, gr_asked *asked)
{
    asked->dtype = dtype == Py_None ? NULL : dtype;
    if (!asked->dtype || PyArray_DescrCheck(dtype))
        return gr_read_launch(launch, GR_GPU_ARRAY, &asked->launch);
    PyErr_SetString(PyExc_TypeError, "expected a dtype or None");
    return -1;
}

/* Calls `check` with this call's description of the array. A producer may describe the same array
 * differently the next time, so Python must not read it a second time. */
static int check(const gr_asked *asked, const gr_array *array)
{
    if (!asked->check || asked->check == Py_None)
        return 0;
    PyObject *done =
        PyObject_CallFunction(asked->check, "Cii", array->kind, array->bytes, array->device);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

/* Raises Python's error for a sum that is not supported. Returns -1. */
static int refuse(const gr_asked *asked, int source, gr_refusal refusal)
{
    PyObject *module = PyImport_ImportModule("gpureduce.core.dtypes");
    PyObject *error = module ? PyObject_CallMethod(module, "refused", "isO", (int)refusal,
                                                   gr_dtype_rows[source].name,
                                                   asked->dtype ? asked->dtype : Py_None)
                             : NULL;
    if (error)
        PyErr_SetObject(PyExc_TypeError, error);
    Py_XDECREF(error);
    Py_XDECREF(module);
    return -1;
}

/* The wanted dtype of the sum as a line of dtypes.def. -1: NumPy's choice. GR_DTYPE_bool, which
 * cannot hold sums, stands for dtypes that are not numbers. */
static int wanted_of(const gr_asked *asked, const gr_array *array)
{
    if (asked->as_digits && strchr("biu", array->kind))
        return GR_DTYPE_float64;
    const gr_numpy_type *type =
        asked->dtype ? gr_numpy_type_of_dtype((PyArray_Descr *)asked->dtype) : NULL;
    return type ? gr_dtype_of(type) : asked->dtype ? GR_DTYPE_bool : -1;
}

/* Sets the type of the sum. For bfloat16 that is float32 if NumPy has no bfloat16. */
static int plan_result(const gr_asked *asked, const gr_how *how, gr_job *job)
{
    job->result = (gr_numpy_type){how->target, how->acc, how->sum_parts, -1};
    if (asked->dtype)
        job->result.result = ((PyArray_Descr *)asked->dtype)->type_num;
    else if (how->result != GR_DTYPE_bfloat16)
        job->result.result = gr_numpy_type_of_line((int)how->result)->result;
    else if ((job->result.result = gr_bfloat16_number()) < -1)
        return -1;
    if (job->result.result < 0) {
        job->result.result = NPY_FLOAT;
        job->result.load = GR_LOAD_f32;
    }
    return 0;
}

static int plan_reading(const gr_asked *asked, const gr_how *how, gr_job *job)
{
    const gr_array *array = &job->array;
    int flat = gr_flatten(array, &job->elements, &job->request.n);
    if (flat < 0)
        return -1;
    const gr_numpy_type *type = gr_numpy_type_of_kind(array->kind, array->bytes);
    bool is_signed = array->kind == 'i' && array->bytes == 8;
    job->elements.load = is_signed ? GR_ELEMENTS_I64 : (int)type->load;
    if (how->parts == 2)
        for (int d = 0; d < job->elements.dims; d++)
            job->elements.step[d] *= 2;
    if ((uintptr_t)job->elements.base % gr_load_size(type->load)) {
        PyErr_SetString(PyExc_BufferError, "the array's elements are not aligned to their size");
        return -1;
    }
    bool as_is = flat && how->elements < 0 && how->parts == 1;
    job->request.load = as_is ? how->load : GR_LOAD_any;
    job->request.acc = how->acc;
    job->request.data = job->elements.base;
    job->request.elements = &job->elements;
    return plan_result(asked, how, job);
}

static int plan(const gr_asked *asked, gr_job *job)
{
    const gr_array *array = &job->array;
    const gr_numpy_type *type = gr_numpy_type_of_kind(array->kind, array->bytes);
    int exact = gr_is_exact(asked->launch.asked);
    if (check(asked, array) < 0)
        return -1;
    if (!type) {
        PyErr_Format(PyExc_TypeError, "arrays of %s%d on a GPU cannot be summed",
                     gr_kind_name(array->kind), 8 * array->bytes);
        return -1;
    }
    int source = gr_dtype_of(type);
    gr_how how = gr_how_of(source, wanted_of(asked, array), exact, GR_ON_GPU, GR_GROUPS_ALL);
    if (how.refusal)
        return refuse(asked, source, how.refusal);
    job->request = asked->launch.request;
    if (plan_reading(asked, &how, job) < 0)
        return -1;
    gr_pick(asked->launch.asked, gr_adds_integers(&job->result), &job->request);
    if (exact && how.halves) {
        PyErr_SetString(PyExc_TypeError, "64-bit integers on a GPU cannot be summed exactly as "
                                         "floats: leave dtype out, or convert the array first");
        return -1;
    }
    job->request.device = array->device;
    job->request.on_device = 1;
    job->request.stream = asked->stream ? (void *)(uintptr_t)asked->stream : array->stream;
    return 0;
}

/* Describes the array and opens the workspace. */
static int open_array(const gr_asked *asked, PyObject *object, gr_job *job)
{
    gr_array *array = &job->array;
    void *given = (void *)(uintptr_t)asked->stream;
    int found = given ? gr_gpu_array_of(object, gr_callers_stream, given, array)
                      : gr_gpu_array_of(object, open_for, job, array);
    if (found <= 0)
        return found;
    if (gr_refuse_capture(given ? given : array->stream) < 0)
        return -1;
    if (array->device < 0 && gr_pointer_device(array->base, &array->device, &job->error) != GR_OK) {
        gr_raise(&job->error);
        return -1;
    }
    return open_for(job, array->device) && gr_check_memory(array, array->device) == 0 ? 1 : -1;
}

int gr_plan_job(const gr_asked *asked, PyObject *object, gr_job *job)
{
    int found = open_array(asked, object, job);
    if (found <= 0)
        return found;
    if (plan(asked, job) < 0)
        return -1;
    job->on_gpu = true;
    if (!asked->timed || (job->request.times = gr_take_times(job->array.device)))
        return 1;
    PyErr_NoMemory();
    return -1;
}

gr_status gr_begin_job(gr_job *job, int part, gr_error *error)
{
    if (part == 1) {
        const char *base = job->elements.base;
        job->elements.base = base + gr_load_size((gr_load)job->elements.load);
    }
    job->has_begun = true;
    job->has_ended = false;
    return gr_begin_sum(job->workspace, &job->request, &job->outcome[part], error);
}

gr_status gr_end_job(gr_job *job, int part, gr_error *error)
{
    if (gr_end_sum(job->workspace, &job->outcome[part], error) != GR_OK)
        return error->status;
    job->has_ended = !gr_interrupted();
    if (part == 1)
        job->outcome[0].launches += job->outcome[1].launches;
    return GR_OK;
}

void gr_blame(gr_error *error, const gr_job *job)
{
    size_t used = strlen(error->message);
    const gr_array *array = &job->array;
    if (error->lost)
        snprintf(
            error->message + used, sizeof error->message - used,
            "\nThe kernel read %zu elements of %d bytes from %#llx to %#llx, as their producer "
            "described them.",
            job->request.n, array->bytes, (unsigned long long)array->first,
            (unsigned long long)array->last);
}

void gr_close_job(gr_job *job)
{
    if (job->workspace)
        gr_close_workspace(job->workspace, job->has_ended || !job->has_begun);
    gr_drop_times(job->request.times, job->has_ended);
    job->workspace = NULL;
    job->request.times = NULL;
    job->on_gpu = false;
    gr_array_done(&job->array);
}
