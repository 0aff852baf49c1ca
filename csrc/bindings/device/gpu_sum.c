/* Sums of arrays on a GPU. */
#include "bindings/device/functions.h"

#include "backend/backend.h"
#include "bindings/device/gpu_job.h"
#include "bindings/device/run.h"
#include "bindings/gil.h"
#include "bindings/results.h"
#include "threads/clock.h"

/* Returns 0, or -1 with an exception set. */
static int run_job(gr_job *job)
{
    gr_call call = {.error = {.status = GR_OK}};
    gr_status status = GR_OK;
    gr_begin_call(&call, 0, 0); /* forward, whatever order an earlier sum of this thread set */
    for (int part = 0; part < job->result.components && status == GR_OK; part++)
        if ((status = gr_begin_job(job, part, &call.error)) == GR_OK)
            status = gr_end_job(job, part, &call.error);
    if (status != GR_OK)
        gr_blame(&call.error, job);
    return gr_end_call(&call);
}

/* The fields that timings of such sums share. `common` makes them from these numbers. */
static PyObject *common_fields(PyObject *common, const gr_job *job)
{
    const gr_array *array = &job->array;
    int numbers[] = {array->device, job->request.strategy, array->kind, array->bytes,
                     (int)job->outcome[0].finish};
    unsigned long long key = 0;
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        key = key << (i == 1 ? 16 : 8) | (unsigned)numbers[i]; /* all but the strategy: below 256 */
    return gr_common_fields(key, common, "siiCii", gr_backend_name(), numbers[0], numbers[1],
                            numbers[2], numbers[3], numbers[4]);
}

static PyObject *number_or_none(unsigned number)
{
    return number ? PyLong_FromUnsignedLong(number) : Py_NewRef(Py_None);
}

static PyObject *timed(PyObject *value, PyObject *common, double start_ms, gr_job *job)
{
    const gr_outcome *outcome = &job->outcome[0];
    gr_times *times = job->request.times;
    double total_ms = gr_now_ms() - start_ms;
    PyObject *fields_of_all = common_fields(common, job);
    job->request.times = NULL; /* gr_elapsed_of() takes them over */
    PyObject *const fields[GR_FIELDS] = {
        [GR_ELAPSED] = gr_elapsed_of(times),
        [GR_BLOCK] = number_or_none(outcome->block),
        [GR_GRID] = number_or_none(outcome->grid),
        [GR_LAUNCHES] = PyLong_FromUnsignedLong(outcome->launches),
        [GR_N] = PyLong_FromSize_t(job->request.n),
        [GR_NBYTES] = PyLong_FromSize_t(job->request.n * (size_t)job->array.bytes),
        [GR_TOTAL_MS] = PyFloat_FromDouble(total_ms),
    };
    return gr_timed(value, fields_of_all, fields);
}

/* The bytes of the exact sums, one per component, for an accumulator. */
static PyObject *digits_of(const gr_job *job)
{
    Py_ssize_t size = sizeof(gr_exact);
    const char *real = (const char *)&job->outcome[0].exact;
    const char *imaginary = (const char *)&job->outcome[1].exact;
    return job->result.components == 2 ? Py_BuildValue("(y#y#)", real, size, imaginary, size)
                                       : Py_BuildValue("(y#)", real, size);
}

/* Returns a SumResult, or digits, or None if the object is not on a GPU. `common` makes the fields
 * for gr_common_fields(). */
static PyObject *sum_object(const gr_asked *asked, PyObject *object, PyObject *common,
                            double start_ms)
{
    gr_job job = {.on_gpu = false};
    PyObject *result = NULL;
    int device = gr_current_device(), found = gr_plan_job(asked, object, &job);
    if (found == 0) {
        result = Py_NewRef(Py_None);
    } else if (found > 0 && run_job(&job) == 0) {
        PyObject *value = asked->as_digits
                              ? digits_of(&job)
                              : gr_scalar_of(job.outcome, job.request.strategy, &job.result);
        result = asked->as_digits        ? value
                 : value && asked->timed ? timed(value, common, start_ms, &job)
                                         : gr_untimed(value);
    }
    gr_close_job(&job);
    gr_backend_return_to(device);
    return result;
}

/* Reads a stream handle. Returns 0, or -1 with an exception set. */
static int stream_of(PyObject *number, unsigned long long *stream)
{
    *stream = PyLong_AsUnsignedLongLong(number);
    return PyErr_Occurred() ? -1 : 0;
}

PyObject *gr_py_sum_gpu(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    double start_ms = gr_now_ms();
    gr_asked asked = {.dtype = NULL};
    if (count != 5 && count != 6) {
        PyErr_SetString(PyExc_TypeError, "expected an array, a dtype, a launch, a stream, what "
                                         "makes a timing's fields, and perhaps a check");
        return NULL;
    }
    asked.timed = args[4] != Py_None;
    asked.check = count == 6 ? args[5] : NULL;
    if (gr_read_asked(args[1], args[2], &asked) < 0 || stream_of(args[3], &asked.stream) < 0)
        return NULL;
    return sum_object(&asked, args[0], args[4], start_ms);
}

PyObject *gr_py_exact_gpu(PyObject *Py_UNUSED(self), PyObject *args)
{
    gr_asked asked = {.launch = {.asked = gr_exact_strategy()}, .as_digits = true};
    PyObject *object, *stream;
    if (!PyArg_ParseTuple(args, "OOO", &object, &asked.check, &stream) ||
        stream_of(stream, &asked.stream) < 0)
        return NULL;
    return sum_object(&asked, object, NULL, 0);
}
