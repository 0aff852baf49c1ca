/* Python functions of the traced build: counters and race detection. */
#include "bindings/device/functions.h"

#ifdef GR_EMULATOR_TRACED

#include "emulator/trace/counters.h"
#include "emulator/trace/steps.h"
#include "emulator/races/races.h"
#include "bindings/device/run.h"
#include "engine/compiled_kernels.h"
#include "engine/pass.h"

#include <stdlib.h>
#include <string.h>

static PyObject *counts(const gr_counters *counters)
{
    PyObject *tuple = PyTuple_New(GR_COUNTER_COUNT);
    for (Py_ssize_t i = 0; tuple && i < GR_COUNTER_COUNT; i++) {
        PyObject *count = PyLong_FromUnsignedLongLong(counters->count[i]);
        if (!count || PyTuple_SetItem(tuple, i, count) < 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

/* Returns a list of make(context, i) for i = 0 .. count - 1. */
static PyObject *list_of(size_t count, PyObject *(*make)(const void *context, size_t i),
                         const void *context)
{
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list && i < count; i++) {
        PyObject *item = make(context, i);
        if (!item || PyList_SetItem(list, (Py_ssize_t)i, item) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *line_row(const void *context, size_t i)
{
    const gr_counted_line *line = (const gr_counted_line *)context + i;
    return Py_BuildValue("ziN(IIIIiy#)", line->file, line->line, counts(&line->counters),
                         line->wavefronts, line->ideal, line->mask, line->size, line->stores,
                         (const char *)line->offset, (Py_ssize_t)sizeof line->offset);
}

typedef struct {
    gr_recorder *recorder;
    const gr_counted_step *steps;
} gr_step_list;

static PyObject *step_row(const void *context, size_t i)
{
    const gr_step_list *list = context;
    const gr_counted_step *step = &list->steps[i];
    const uint32_t *warps;
    size_t count = gr_recorded_lanes(list->recorder, step->barrier, step->sync, &warps);
    return Py_BuildValue("IINy#", step->barrier, step->sync, counts(&step->counters),
                         count ? (const char *)warps : "", (Py_ssize_t)(count * sizeof *warps));
}

static PyObject *sample_row(const void *context, size_t i)
{
    gr_counters counters;
    gr_recorded_sample(context, i, &counters);
    return counts(&counters);
}

static PyObject *recorded(gr_recorder *recorder, size_t samples)
{
    const gr_counted_line *lines;
    gr_step_list steps = {recorder, NULL};
    if (!gr_recorded(recorder))
        return PyErr_NoMemory();
    size_t line_count = gr_recorded_lines(recorder, &lines);
    size_t step_count = gr_recorded_steps(recorder, &steps.steps);
    return Py_BuildValue("NNN", list_of(line_count, line_row, lines),
                         list_of(step_count, step_row, &steps),
                         list_of(samples, sample_row, recorder));
}

/* Reads a kernel's launch over n elements. Returns false with an exception set on failure. */
static int read_pass(PyObject *asked, unsigned long long n, gr_request *request)
{
    gr_launch_request launch;
    if (gr_read_launch(asked, GR_HOST_ARRAY, &launch) < 0)
        return 0;
    if (launch.strategy < 0 || !gr_has_kernels(launch.strategy) || !n) {
        PyErr_SetString(PyExc_ValueError, "no such kernel, or no elements");
        return 0;
    }
    *request = gr_request_of(&launch);
    request->n = n;
    return 1;
}

static PyObject *py_plan_pass(PyObject *Py_UNUSED(self), PyObject *args)
{
    gr_request request;
    gr_pass pass;
    gr_error error;
    PyObject *launch;
    unsigned long long n;
    int later;
    if (!PyArg_ParseTuple(args, "KOp", &n, &launch, &later) || !read_pass(launch, n, &request))
        return NULL;
    if (gr_plan_pass(&request, later, &pass, &error) != GR_OK)
        return gr_raise(&error);
    return Py_BuildValue("IIII", pass.block, pass.grid, pass.team_blocks, pass.outs);
}

typedef struct {
    const gr_sample *samples;
    size_t count;
    gr_recorder *recorder;
} gr_recording;

static int start_recording(void *context, const gr_arrivals *arrivals)
{
    gr_recording *recording = context;
    recording->recorder = gr_recorder_new(recording->samples, recording->count, arrivals);
    gr_record(recording->recorder);
    return recording->recorder != NULL;
}

static PyObject *end_recording(gr_call *call, gr_recording *recording)
{
    gr_record(NULL);
    PyObject *result =
        gr_end_call(call) < 0 ? NULL : recorded(recording->recorder, recording->count);
    gr_recorder_free(recording->recorder);
    return result;
}

static PyObject *py_count_pass(PyObject *Py_UNUSED(self), PyObject *args)
{
    gr_request request;
    gr_recording recording = {NULL, 0, NULL};
    gr_call call;
    PyObject *launch;
    const char *samples;
    Py_ssize_t bytes;
    unsigned long long n;
    int later;
    if (!PyArg_ParseTuple(args, "KOpy#", &n, &launch, &later, &samples, &bytes) ||
        !read_pass(launch, n, &request))
        return NULL;
    recording.samples = (const gr_sample *)(const void *)samples;
    recording.count = (size_t)bytes / sizeof(gr_sample);
    gr_begin_call(&call, 0, 0);
    gr_run_pass(&request, later, start_recording, &recording, &call.error);
    return end_recording(&call, &recording);
}

/* Reads (rows, columns, axis, launch). Returns false with an exception set on failure. */
static int read_axis_pass(PyObject *asked, size_t shape[2], int *axis, gr_axis_request *request)
{
    PyObject *object;
    gr_launch_request launch;
    unsigned long long rows, columns;
    if (!PyArg_ParseTuple(asked, "KKiO", &rows, &columns, axis, &object) ||
        gr_read_launch(object, GR_HOST_ARRAY, &launch) < 0)
        return 0;
    if (launch.strategy < 0 || !gr_has_kernels(launch.strategy) || !rows || !columns) {
        PyErr_SetString(PyExc_ValueError, "no such kernel, or no elements");
        return 0;
    }
    shape[0] = rows;
    shape[1] = columns;
    *request = (gr_axis_request){.load = launch.load,
                                 .acc = (gr_acc)launch.acc,
                                 .strategy = launch.strategy,
                                 .block = launch.block,
                                 .grid = launch.grid};
    return 1;
}

static PyObject *py_plan_axis(PyObject *Py_UNUSED(self), PyObject *args)
{
    gr_axis_request request;
    gr_pass pass;
    gr_error error;
    size_t shape[2];
    int axis;
    if (!read_axis_pass(args, shape, &axis, &request))
        return NULL;
    if (gr_plan_axis_pass(&request, shape, axis, &pass, &error) != GR_OK)
        return gr_raise(&error);
    return Py_BuildValue("II", pass.block, pass.grid);
}

static PyObject *py_count_axis(PyObject *Py_UNUSED(self), PyObject *args)
{
    gr_axis_request request;
    gr_call call;
    PyObject *asked;
    const char *samples;
    Py_ssize_t bytes;
    size_t shape[2];
    int axis;
    if (!PyArg_ParseTuple(args, "O!y#", &PyTuple_Type, &asked, &samples, &bytes) ||
        !read_axis_pass(asked, shape, &axis, &request))
        return NULL;
    gr_recording recording = {(const gr_sample *)(const void *)samples,
                              (size_t)bytes / sizeof(gr_sample), NULL};
    gr_begin_call(&call, 0, 0);
    gr_run_axis_pass(&request, shape, axis, start_recording, &recording, &call.error);
    return end_recording(&call, &recording);
}

static PyObject *py_shared_wavefronts(PyObject *Py_UNUSED(self), PyObject *args)
{
    const char *bytes;
    Py_ssize_t length;
    unsigned mask, size, ideal;
    int store;
    if (!PyArg_ParseTuple(args, "y#IIp", &bytes, &length, &mask, &size, &store))
        return NULL;
    if (length != 32 * sizeof(uint32_t) || !size || size > 16 || (size & (size - 1))) {
        PyErr_SetString(PyExc_ValueError, "expected 32 offsets, and 1, 2, 4, 8 or 16 bytes");
        return NULL;
    }
    uint32_t offset[32];
    memcpy(offset, bytes, sizeof offset);
    unsigned wavefronts = gr_shared_wavefronts(offset, mask, size, store, &ideal);
    return Py_BuildValue("II", wavefronts, ideal);
}

static PyObject *py_recorder_limits(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(none))
{
    return Py_BuildValue("nn", (Py_ssize_t)GR_RECORDER_MOST_BYTES,
                         (Py_ssize_t)GR_RECORDER_INSTRUCTION_BYTES);
}

static PyObject *py_counter_names(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(none))
{
#define X(name) "s"
    return Py_BuildValue("(" GR_COUNTERS(X) ")"
#undef X
#define X(name) , #name
                         GR_COUNTERS(X)
#undef X
    );
}

/* Starts and stops the race detector in one call. Between two calls from Python, a signal handler
 * could raise an exception, and the detector would keep running. */
static PyObject *watched(PyObject *self, PyObject *args, PyCFunction add)
{
    Py_ssize_t last = PyTuple_Size(args) - 1;
    PyObject *reports = last >= 0 ? PyTuple_GetItem(args, last) : NULL;
    if (!reports || !PyList_Check(reports)) {
        PyErr_SetString(PyExc_TypeError, "expected the arguments of a sum and a list");
        return NULL;
    }
    PyObject *rest = PyTuple_GetSlice(args, 0, last);
    if (!rest)
        return NULL;
    if (!gr_watch_start()) {
        Py_DECREF(rest);
        return PyErr_NoMemory();
    }
    PyObject *sum = add(self, rest), *type, *value, *traceback;
    char *found = gr_watch_stop();
    Py_DECREF(rest);
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *text = found ? PyUnicode_FromString(found) : NULL;
    int kept = text ? PyList_Append(reports, text) : -1;
    free(found);
    Py_XDECREF(text);
    PyErr_Restore(type, value, traceback);
    if (sum && kept < 0) {
        Py_CLEAR(sum);
        PyErr_NoMemory();
    }
    return sum;
}

static PyObject *py_watched_sum(PyObject *self, PyObject *args)
{
    return watched(self, args, gr_py_sum);
}

static PyObject *py_watched_axis(PyObject *self, PyObject *args)
{
    return watched(self, args, gr_py_sum_axis_of_host);
}

static PyObject *py_watched_segments(PyObject *self, PyObject *args)
{
    return watched(self, args, gr_py_sum_segments_of_host);
}

static PyObject *contention(const gr_contention *of)
{
    return Py_BuildValue("(KKKK)", of->atomics, of->addresses, of->most, of->turns);
}

/* Counts all launches of a sum together. Returns its result, the counts, and what `more` makes of
 * the recorder. */
static PyObject *counted(PyObject *self, PyObject *args, PyCFunction add,
                         PyObject *(*more)(const gr_recorder *))
{
    const gr_sample every_team = {0, UINT64_MAX, 1, 0};
    const gr_arrivals none = {0};
    gr_recorder *recorder = gr_recorder_new(&every_team, 1, &none);
    if (!recorder)
        return PyErr_NoMemory();
    gr_record(recorder);
    PyObject *sum = add(self, args), *found = NULL, *rest = NULL;
    gr_record(NULL);
    if (sum && (found = recorded(recorder, 1)))
        rest = more(recorder);
    gr_recorder_free(recorder);
    if (!rest) {
        Py_XDECREF(sum);
        Py_XDECREF(found);
        return NULL;
    }
    return Py_BuildValue("NNN", sum, found, rest);
}

static PyObject *both_contentions(const gr_recorder *recorder)
{
    gr_contention global, shared;
    gr_recorded_contention(recorder, &global, &shared);
    return Py_BuildValue("NN", contention(&global), contention(&shared));
}

static PyObject *py_count_segments(PyObject *self, PyObject *args)
{
    return counted(self, args, gr_py_sum_segments_of_host, both_contentions);
}

static PyObject *blocks_and_requests(const gr_recorder *recorder)
{
    uint64_t blocks, most_requests;
    gr_recorded_blocks(recorder, &blocks, &most_requests);
    return Py_BuildValue("KK", (unsigned long long)blocks, (unsigned long long)most_requests);
}

static PyObject *py_count_sum(PyObject *self, PyObject *args)
{
    return counted(self, args, gr_py_sum, blocks_and_requests);
}

static PyObject *place_row(const void *recorder, size_t i)
{
    const char *file;
    int line;
    gr_recorded_place(recorder, i, &file, &line);
    return Py_BuildValue("zi", file, line);
}

static PyObject *array_row(const void *arrays, size_t i)
{
    const gr_step_array *array = (const gr_step_array *)arrays + i;
    return Py_BuildValue("zNIKKI", array->name, PyBool_FromLong(array->is_shared), array->launch,
                         (unsigned long long)array->base, (unsigned long long)array->bytes,
                         array->element);
}

static PyObject *launch_row(const void *launches, size_t i)
{
    const gr_step_launch *launch = (const gr_step_launch *)launches + i;
    return Py_BuildValue("II", launch->grid, launch->block);
}

/* What replay_sum() keeps of a recorder. */
static PyObject *replayed(gr_recorder *recorder)
{
    gr_kept_steps kept = gr_recorded_replay(recorder);
    return Py_BuildValue("Ny#NNN", PyBool_FromLong(kept.has_more),
                         kept.step_count ? (const char *)kept.steps : "",
                         (Py_ssize_t)(kept.step_count * sizeof *kept.steps),
                         list_of(kept.place_count, place_row, recorder),
                         list_of(kept.array_count, array_row, kept.arrays),
                         list_of(kept.launch_count, launch_row, kept.launches));
}

static PyObject *py_replay_sum(PyObject *self, PyObject *args)
{
    const gr_sample every_team = {0, UINT64_MAX, 1, 0};
    const gr_arrivals none = {0};
    PyObject *array, *launch, *kept, *rest = NULL, *found = NULL;
    Py_ssize_t most;
    if (!PyArg_ParseTuple(args, "OOnO!", &array, &launch, &most, &PyList_Type, &kept) ||
        !(rest = PyTuple_Pack(2, array, launch)))
        return NULL;
    gr_recorder *recorder = gr_recorder_new(&every_team, 1, &none);
    PyObject *sum = NULL, *type, *value, *traceback;
    if (!recorder || !gr_keep_steps(recorder, (size_t)most)) {
        PyErr_NoMemory();
    } else {
        gr_record(recorder);
        sum = gr_py_sum(self, rest);
        gr_record(NULL);
        PyErr_Fetch(&type, &value, &traceback);
        found = replayed(recorder);
        if (!found || PyList_Append(kept, found) < 0)
            Py_CLEAR(sum);
        else
            PyErr_Restore(type, value, traceback);
    }
    gr_recorder_free(recorder);
    Py_XDECREF(found);
    Py_DECREF(rest);
    return sum;
}

static PyObject *step_name(const void *Py_UNUSED(context), size_t i)
{
    return PyUnicode_FromString(gr_step_name((unsigned)i));
}

static PyObject *py_step_names(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(none))
{
    return list_of(GR_STEP_KINDS, step_name, NULL);
}

PyMethodDef gr_trace_methods[] = {
    {"plan_pass", py_plan_pass, METH_VARARGS,
     "plan_pass(n, launch, later)\n--\n\n"
     "One launch of a sum: (block, grid, blocks that run side by side, values that are left)."},
    {"count_pass", py_count_pass, METH_VARARGS,
     "count_pass(n, launch, later, samples)\n--\n\n"
     "What one launch does. Samples are four uint64 each: the first team that runs, how many, the "
     "weight of each, the ticket before. Returns lines, steps and the samples' own counts."},
    {"plan_axis", py_plan_axis, METH_VARARGS,
     "plan_axis(rows, columns, axis, launch)\n--\n\n"
     "The first launch of a sum along an axis: (block, grid)."},
    {"count_axis", py_count_axis, METH_VARARGS,
     "count_axis((rows, columns, axis, launch), samples)\n--\n\n"
     "What that launch does, as count_pass() tells it."},
    {"count_segments", py_count_segments, METH_VARARGS,
     "count_segments(...)\n--\n\n"
     "What all launches of sum_segments_of_host() with these arguments do: its result, what "
     "count_pass() tells, and a pair of (atomics, addresses, most to one address, turns): in "
     "global "
     "and in shared memory."},
    {"count_sum", py_count_sum, METH_VARARGS,
     "count_sum(...)\n--\n\n"
     "What all launches of sum() with these arguments do: its result, what count_pass() tells, and "
     "a pair: the blocks, and the global loads and atomics of the warp with most of them."},
    {"replay_sum", py_replay_sum, METH_VARARGS,
     "replay_sum(array, launch, most, kept)\n--\n\n"
     "As sum(). Appends to a list, also where the sum fails: whether there were more than the most "
     "steps, the steps as bytes, the places (file, line), the arrays (name, in shared memory, "
     "launch, base, bytes, bytes of an element), the launches (grid, block)."},
    {"step_names", py_step_names, METH_NOARGS, "The names of the kinds of steps, in order."},
    {"shared_wavefronts", py_shared_wavefronts, METH_VARARGS,
     "shared_wavefronts(offsets, mask, size, store)\n--\n\n"
     "Wavefronts of one warp instruction on shared memory, and how few they could be."},
    {"recorder_limits", py_recorder_limits, METH_NOARGS,
     "How many bytes of warp instructions are kept at most, and how many for one."},
    {"counter_names", py_counter_names, METH_NOARGS, "The names of the counters, in order."},
    {"watched_sum", py_watched_sum, METH_VARARGS,
     "watched_sum(..., reports)\n--\n\n"
     "As sum(), and looks for races. Appends what was found to a list, as JSON, also where the sum "
     "fails; nothing if there was no memory for it."},
    {"watched_axis", py_watched_axis, METH_VARARGS,
     "watched_axis(..., reports)\n--\n\nThe same with the arguments of sum_axis_of_host()."},
    {"watched_segments", py_watched_segments, METH_VARARGS,
     "watched_segments(..., reports)\n--\n\n"
     "The same with the arguments of sum_segments_of_host()."},
    {NULL, NULL, 0, NULL},
};

#else

PyMethodDef gr_trace_methods[] = {{NULL, NULL, 0, NULL}};

#endif
