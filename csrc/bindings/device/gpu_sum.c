/* Sums of arrays on a GPU. */
#include "bindings/device/functions.h"

#include "backend/backend.h"
#include "bindings/device/elapsed.h"
#include "bindings/device/gpu_job.h"
#include "bindings/device/run.h"
#include "bindings/gil.h"
#include "bindings/results.h"
#include "threads/clock.h"

static gr_status sum_parts(gr_workspace *workspace, gr_job *job, gr_error *error)
{
    gr_outcome *outcome = job->outcome;
    for (int part = 0; part < job->result.components; part++)
        if (gr_begin_job(workspace, job, part, error) != GR_OK ||
            gr_end_sum(workspace, &outcome[part], error) != GR_OK)
            return error->status;
    if (job->result.components == 2)
        outcome[0].launches += outcome[1].launches;
    return GR_OK;
}

static PyObject *scalar(const gr_job *job)
{
    gr_scalar bits;
    gr_exact exact[2];
    gr_value values[2];
    int digits = gr_strategy_at(job->request.strategy)->traits & DIGITS;
    for (int i = 0; i < job->result.components; i++)
        if (digits)
            exact[i] = job->outcome[i].exact;
        else
            values[i] = job->outcome[i].value;
    if (digits)
        gr_round_sums(exact, &job->result, &bits);
    else
        gr_convert_sums(values, &job->result, &bits);
    return gr_scalar_object(&bits, &job->result);
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
        gr_blame(&error, job, array);
        gr_raise(&error);
    }
    return -1;
}

static int do_job(gr_asked *asked, const gr_gpu_array *array, gr_workspace *workspace, gr_job *job)
{
    return gr_plan_job(asked, array, job) < 0 ||
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
    PyObject *value = scalar(&job);
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
    return job.result.components == 2 ? Py_BuildValue("(y#y#)", real, size, imaginary, size)
                                      : Py_BuildValue("(y#)", real, size);
}

/* Returns the result of `work` for an array on a GPU, or None if the object is not on a GPU. */
static PyObject *on_gpu(gr_asked *asked,
                        PyObject *(*work)(gr_asked *asked, const gr_gpu_array *array,
                                          gr_workspace *workspace))
{
    gr_gpu_array array;
    gr_opening opening = {.error = {.status = GR_OK}};
    PyObject *result = NULL;
    int device = gr_current_device();
    int found = gr_open_array(asked->object, asked->stream, &opening, &array);
    if (found == 0)
        result = Py_NewRef(Py_None);
    else if (found > 0)
        result = work(asked, &array, opening.workspace);
    if (opening.workspace)
        gr_close_workspace(opening.workspace, result != NULL);
    gr_gpu_array_done(&array);
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
    gr_asked asked = {.start_ms = gr_now_ms()};
    if (count != 5 && count != 6) {
        PyErr_SetString(PyExc_TypeError, "expected an array, a dtype, a launch, a stream, what "
                                         "makes a timing's fields, and perhaps a check");
        return NULL;
    }
    asked.object = args[0];
    asked.common = args[4] == Py_None ? NULL : args[4];
    asked.check = count == 6 ? args[5] : NULL;
    if (gr_take_dtype(args[1], &asked) < 0 ||
        gr_read_launch(args[2], GR_GPU_ARRAY, &asked.launch) < 0 ||
        stream_of(args[3], &asked.stream) < 0)
        return NULL;
    return on_gpu(&asked, sum_described);
}

PyObject *gr_py_exact_gpu(PyObject *Py_UNUSED(self), PyObject *args)
{
    gr_asked asked = {.launch = {.strategy = gr_exact_strategy()}, .as_digits = true};
    PyObject *stream;
    if (!PyArg_ParseTuple(args, "OOO", &asked.object, &asked.check, &stream) ||
        stream_of(stream, &asked.stream) < 0)
        return NULL;
    return on_gpu(&asked, deposit_described);
}
