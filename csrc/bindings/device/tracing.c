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

static PyObject *step_row(const void *context, size_t i)
{
    const gr_counted_step *step = (const gr_counted_step *)context + i;
    return Py_BuildValue("IINy#", step->barrier, step->sync, counts(&step->counters),
                         step->warps ? (const char *)step->lanes : "",
                         (Py_ssize_t)(step->warps * sizeof *step->lanes));
}

static PyObject *sample_row(const void *context, size_t i)
{
    return counts((const gr_counters *)context + i);
}

static PyObject *lists_of(const gr_recording *found)
{
    return Py_BuildValue("NNN", list_of(found->line_count, line_row, found->lines),
                         list_of(found->step_count, step_row, found->steps),
                         list_of(found->sample_count, sample_row, found->samples));
}

/* Reads a kernel's launch over n elements. Returns false with an exception set on failure. */
static int read_pass(PyObject *named, unsigned long long n, gr_request *request)
{
    gr_launch_request launch;
    if (gr_read_launch(named, GR_HOST_ARRAY, &launch) < 0)
        return 0;
    if (launch.asked < 0 || !gr_has_kernels(launch.asked) || !n) {
        PyErr_SetString(PyExc_ValueError, "no such kernel, or no elements");
        return 0;
    }
    *request = launch.request;
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

/* What is recorded of one launch. */
typedef struct {
    const gr_sample *samples;
    size_t count;
    gr_recorder *recorder;
} gr_recorded_pass;

static int start_recording(void *context, const gr_arrivals *arrivals)
{
    gr_recorded_pass *recording = context;
    recording->recorder = gr_recorder_new(recording->samples, recording->count, arrivals, 0);
    gr_record(recording->recorder);
    return recording->recorder != NULL;
}

static PyObject *end_recording(gr_call *call, gr_recorded_pass *recording)
{
    gr_record(NULL);
    PyObject *result = NULL;
    gr_recording found;
    if (gr_end_call(call) == 0)
        result = gr_recorded(recording->recorder, &found) ? lists_of(&found) : PyErr_NoMemory();
    gr_recorder_free(recording->recorder);
    return result;
}

static PyObject *py_count_pass(PyObject *Py_UNUSED(self), PyObject *args)
{
    gr_request request;
    gr_recorded_pass recording = {NULL, 0, NULL};
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

static const gr_sample every_team = {0, UINT64_MAX, 1, 0};

static PyObject *py_count_axis(PyObject *Py_UNUSED(self), PyObject *args)
{
    gr_request launch;
    gr_launched launched = {0};
    gr_recorded_pass recording = {&every_team, 1, NULL};
    gr_call call;
    PyObject *object;
    unsigned long long rows, columns;
    int axis;
    if (!PyArg_ParseTuple(args, "KKiO", &rows, &columns, &axis, &object) ||
        !read_pass(object, rows && columns, &launch))
        return NULL;
    gr_groups_request request = {.load = (int)launch.load,
                                 .acc = launch.acc,
                                 .strategy = launch.strategy,
                                 .block = launch.block,
                                 .grid = launch.grid};
    gr_begin_call(&call, 0, 0);
    gr_run_axis_pass(&request, (size_t[]){rows, columns}, axis, start_recording, &recording,
                     &launched, &call.error);
    PyObject *found = end_recording(&call, &recording);
    return found ? Py_BuildValue("IIN", launched.block, launched.grid, found) : NULL;
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
    return Py_BuildValue("nnn", (Py_ssize_t)GR_RECORDER_MOST_BYTES,
                         (Py_ssize_t)GR_RECORDER_INSTRUCTION_BYTES, (Py_ssize_t)GR_MOST_STEPS);
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

/* Calls run() if the first argument is a request, else sum(). */
static PyObject *add(PyObject *self, PyObject *args)
{
    PyObject *first = PyTuple_Size(args) > 0 ? PyTuple_GetItem(args, 0) : Py_None;
    return PyCapsule_CheckExact(first) ? gr_py_run(self, args) : gr_py_sum(self, args);
}

static PyObject *contention(const gr_contention *of)
{
    return Py_BuildValue("(KKKK)", of->atomics, of->addresses, of->most, of->turns);
}

/* The counts of all launches of a sum, the counts of atomics by address, and the blocks. */
static PyObject *counts_of_all(gr_recorder *recorder)
{
    gr_recording found;
    if (!gr_recorded(recorder, &found))
        return PyErr_NoMemory();
    return Py_BuildValue("N(NN)(KK)", lists_of(&found), contention(&found.global),
                         contention(&found.shared), (unsigned long long)found.blocks,
                         (unsigned long long)found.most_requests);
}

static PyObject *place_row(const void *steps, size_t i)
{
    const gr_step *step = (const gr_step *)steps + i;
    return Py_BuildValue("szi", step->name, step->file, step->line);
}

static PyObject *array_row(const void *arrays, size_t i)
{
    const gr_memory *array = (const gr_memory *)arrays + i;
    return Py_BuildValue("zIiKKKI", array->name, array->launch, array->is_shared,
                         (unsigned long long)array->first, (unsigned long long)array->bytes,
                         (unsigned long long)array->allocation, array->element);
}

static PyObject *kept_steps(gr_recorder *recorder)
{
    gr_kept_steps kept = gr_recorded_replay(recorder);
    return Py_BuildValue("y#NNy#", kept.step_count ? (const char *)kept.steps : "",
                         (Py_ssize_t)(kept.step_count * sizeof *kept.steps),
                         list_of(kept.step_count, place_row, kept.steps),
                         list_of(kept.array_count, array_row, kept.arrays),
                         kept.launch_count ? (const char *)kept.launches : "",
                         (Py_ssize_t)(kept.launch_count * sizeof *kept.launches));
}

static PyObject *found_races(gr_recorder *Py_UNUSED(recorder))
{
    char *found = gr_watch_stop();
    PyObject *report = found ? PyUnicode_FromString(found) : NULL;
    free(found);
    return report;
}

/* Runs a sum with a recorder, or with the race detector. Both start and stop within one call:
 * between two calls, a signal handler could raise an exception in Python, and they would keep
 * running. Appends the report to the list that is the last argument, also if the sum fails. */
static PyObject *traced(PyObject *self, PyObject *args, PyObject *(*report_of)(gr_recorder *))
{
    const gr_arrivals none = {0};
    gr_recorder *recorder = NULL;
    int watches = report_of == found_races;
    Py_ssize_t last = PyTuple_Size(args) - 1;
    PyObject *reports = last >= 0 ? PyTuple_GetItem(args, last) : NULL;
    if (!reports || !PyList_Check(reports)) {
        PyErr_SetString(PyExc_TypeError, "expected the arguments of a sum and a list");
        return NULL;
    }
    PyObject *rest = PyTuple_GetSlice(args, 0, last);
    if (!rest)
        return NULL;
    if (!watches)
        recorder = gr_recorder_new(&every_team, 1, &none, report_of == kept_steps);
    if (watches ? !gr_watch_start() : !recorder) {
        Py_DECREF(rest);
        return PyErr_NoMemory();
    }
    gr_record(recorder);
    PyObject *sum = add(self, rest), *type, *value, *traceback;
    gr_record(NULL);
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *report = report_of(recorder);
    gr_recorder_free(recorder);
    Py_DECREF(rest);
    int kept = report ? PyList_Append(reports, report) : -1;
    Py_XDECREF(report);
    PyErr_Restore(type, value, traceback);
    if (sum && kept < 0) {
        Py_CLEAR(sum);
        PyErr_NoMemory();
    }
    return sum;
}

static PyObject *py_watched(PyObject *self, PyObject *args)
{
    return traced(self, args, found_races);
}

static PyObject *py_counted(PyObject *self, PyObject *args)
{
    return traced(self, args, counts_of_all);
}

static PyObject *py_replay(PyObject *self, PyObject *args)
{
    return traced(self, args, kept_steps);
}

PyMethodDef gr_trace_methods[] = {
    {"plan_pass", py_plan_pass, METH_VARARGS,
     "plan_pass(n, launch, later)\n--\n\n"
     "One launch of a sum: (block, grid, blocks that run side by side, values that are left)."},
    {"count_pass", py_count_pass, METH_VARARGS,
     "count_pass(n, launch, later, samples)\n--\n\n"
     "What one launch does. Samples are four uint64 each: the first team that runs, how many, the "
     "weight of each, the ticket before. Returns lines, steps and the samples' own counts."},
    {"count_axis", py_count_axis, METH_VARARGS,
     "count_axis(rows, columns, axis, launch)\n--\n\n"
     "The first launch of a sum along an axis: (block, grid, what count_pass() tells)."},
    {"counted", py_counted, METH_VARARGS,
     "counted(..., counts)\n--\n\n"
     "As sum() or run(). Appends to a list what count_pass() tells of all launches, a pair of "
     "(atomics, addresses, most to one address, turns), in global and in shared memory, and a "
     "pair: the blocks, and the global loads and atomics of the warp with most of them."},
    {"replay", py_replay, METH_VARARGS,
     "replay(..., kept)\n--\n\n"
     "As sum() or run(). Appends to a list, also where the sum fails: the steps as bytes, what and "
     "where each is (kind, file, line), the arrays (name, launch, in shared memory, first, bytes, "
     "address, bytes of an element), the launches as bytes (grid, block)."},
    {"shared_wavefronts", py_shared_wavefronts, METH_VARARGS,
     "shared_wavefronts(offsets, mask, size, store)\n--\n\n"
     "Wavefronts of one warp instruction on shared memory, and how few they could be."},
    {"recorder_limits", py_recorder_limits, METH_NOARGS,
     "How many bytes of warp instructions are kept at most, and for one; and how many steps."},
    {"counter_names", py_counter_names, METH_NOARGS, "The names of the counters, in order."},
    {"watched", py_watched, METH_VARARGS,
     "watched(..., reports)\n--\n\n"
     "As sum() or run(), and looks for races. Appends what was found to a list, as JSON, also "
     "where the sum fails; nothing if there was no memory for it."},
    {NULL, NULL, 0, NULL},
};

#else

PyMethodDef gr_trace_methods[] = {{NULL, NULL, 0, NULL}};

#endif
