/* Sums by segment by kernels: of arrays on a GPU, whose sums stay there, and of NumPy arrays, which
 * are copied to the device and whose sums are copied back. */
#include "bindings/device/functions.h"

#include "bindings/device/run.h"
#include "bindings/device/views.h"
#include "engine/segments.h"
#include "exact/format.h"

#include <stdbool.h>
#include <string.h>

/* What Python has decided. */
typedef struct {
    int order, timed;
    unsigned long long seed;
    char index_kind; /* 'i' or 'u' */
} asked;

/* Takes (acc, exactly, target, initial, by_offsets, sorted, check, segments, order, seed, timed,
 * kernel, as_digits). `initial` is a pair of numbers, for the real and the imaginary part. `kernel`
 * is the number of a kernel of kernels/keys, or -1. */
static int take_details(PyObject *details, int kind, int bytes, gr_segment_request *request,
                        asked *ask)
{
    const gr_numpy_type *type = gr_numpy_type_of_kind(kind, bytes);
    int acc, target, exactly, sorted, kernel;
    unsigned long long segments;
    PyObject *initial[2];
    if (!PyArg_ParseTuple(details, "ipi(OO)pipKiKpip", &acc, &exactly, &target, &initial[0],
                          &initial[1], &request->by_offsets, &sorted, &request->check, &segments,
                          &ask->order, &ask->seed, &ask->timed, &kernel, &request->sums.as_digits))
        return -1;
    bool is_lesson =
        kernel >= 0 && kernel < gr_strategy_count() && gr_strategy_at(kernel)->kind == GR_KIND_KEYS;
    if (!type || (kernel >= 0 && !is_lesson) || acc < 0 || acc >= GR_ACC_COUNT || target < 0 ||
        target >= GR_LOAD_COUNT || (exactly && !gr_is_float((gr_load)target)) ||
        (request->sums.as_digits && (!exactly || kernel >= 0 || type->load == GR_LOAD_u64))) {
        PyErr_SetString(PyExc_ValueError, "these elements cannot be added up like that");
        return -1;
    }
    request->kernel = is_lesson ? gr_strategy_at(kernel) : NULL;
    request->sorted = (gr_sorted)sorted;
    request->segments = segments;
    request->load = (int)type->load;
    bool narrow = gr_is_float(type->load) && type->load != GR_LOAD_f64;
    if (acc == GR_ACC_f32 && !narrow) /* no kernel rounds its elements to float32 */
        acc = GR_ACC_f64;
    if (acc == GR_ACC_f64 && (type->load == GR_LOAD_f16 || type->load == GR_LOAD_bf16))
        exactly = 1; /* no other kernel adds these in float64 */
    request->acc = !exactly                    ? (gr_acc)acc
                   : type->load == GR_LOAD_f64 ? GR_ACC_proven3
                                               : GR_ACC_proven;
    request->sums.type = (gr_load)target;
    request->sums.bytes =
        request->sums.as_digits ? sizeof(int64_t) : (unsigned)gr_load_size((gr_load)target);
    request->sums.parts = (unsigned)type->components;
    gr_take_values(initial, request->acc, request->sums.initial);
    return PyErr_Occurred() ? -1 : 0;
}

static gr_rows rows_of(const gr_view *seen, unsigned parts, int part_bytes)
{
    return (gr_rows){.base = seen->base,
                     .row_step = seen->step[0],
                     .number_step = seen->dims == 2 ? seen->step[1] : seen->bytes,
                     .part_step = part_bytes,
                     .parts = parts};
}

static int take_index(const gr_view *seen, int kind, gr_index *index)
{
    static const gr_load loads[2][4] = {{GR_LOAD_i8, GR_LOAD_i16, GR_LOAD_i32, GR_LOAD_u64},
                                        {GR_LOAD_u8, GR_LOAD_u16, GR_LOAD_u32, GR_LOAD_u64}};
    int size = seen->bytes == 1 ? 0 : seen->bytes == 2 ? 1 : seen->bytes == 4 ? 2 : 3;
    if ((kind != 'i' && kind != 'u') || seen->dims != 1) {
        PyErr_SetString(PyExc_TypeError, "segment_ids and offsets must be integers in 1 dimension");
        return -1;
    }
    *index = (gr_index){seen->base, seen->step[0], loads[kind == 'u'][size]};
    return 0;
}

/* Fills in the request. Returns -1 with an exception set if the arrays do not fit together. */
static int describe(gr_segment_request *request, const gr_view *in, const gr_view *index,
                    gr_view *out)
{
    unsigned parts = request->sums.parts;
    int part_bytes = gr_part_bytes(&request->sums);
    bool fits =
        request->sums.as_digits ? gr_drop_words(out, parts) : out->bytes == part_bytes * (int)parts;
    fits = fits && (in->dims == 1 || in->dims == 2) && out->dims == in->dims &&
           (in->dims == 1 || in->size[1] == out->size[1]) &&
           (uint64_t)out->size[0] == request->segments;
    if (request->kernel) /* which takes addresses, without steps, and ids of 32 bits */
        fits = fits && in->dims == 1 && in->step[0] == in->bytes && out->step[0] == out->bytes &&
               index->bytes == 4 && index->step[0] == 4 && !request->by_offsets;
    int64_t count = request->by_offsets ? (int64_t)request->segments + 1 : in->size[0];
    if (!fits || index->size[0] != count) {
        PyErr_SetString(PyExc_ValueError,
                        "the arrays of values, ids or offsets, and sums do not fit together");
        return -1;
    }
    request->values = rows_of(in, parts, in->bytes / (int)parts);
    request->out = rows_of(out, parts, part_bytes);
    request->rows = (uint64_t)in->size[0];
    request->columns = (in->dims == 2 ? (uint64_t)in->size[1] : 1) * parts;
    return 0;
}

/* A number that C has fetched, as a Python int. */
static PyObject *number(const asked *ask, uint64_t found)
{
    return ask->index_kind == 'i' ? PyLong_FromLongLong((long long)found)
                                  : PyLong_FromUnsignedLongLong(found);
}

static PyObject *problem(const asked *ask, const gr_segment_outcome *outcome)
{
    if (!outcome->is_bad && !outcome->is_unsorted)
        return Py_NewRef(Py_None);
    return Py_BuildValue("NKNN", PyBool_FromLong(!outcome->is_bad),
                         (unsigned long long)outcome->place, number(ask, outcome->found),
                         number(ask, outcome->next));
}

/* Runs the request without the GIL. Returns (block, grid, launches, times, problem): problem is
 * None, or (whether ids are not sorted, place, number there, number beside it). Returns NULL with
 * an exception set on errors. */
static PyObject *run(gr_segment_request *request, const asked *ask, const gr_span *host)
{
    gr_call call;
    gr_segment_outcome outcome = {0};
    bool is_captured = !host && gr_stream_is_captured(request->stream);
    if (is_captured && request->check) {
        PyErr_SetString(PyExc_ValueError, request->sums.as_digits
                                              ? "digits by segment cannot be made while the stream "
                                                "is captured into a graph: ids are checked"
                                              : "ids cannot be checked while the stream is "
                                                "captured into a graph: pass check=False");
        return NULL;
    }
    if (ask->timed && !is_captured && !(request->times = gr_take_times(request->device)))
        return PyErr_NoMemory();
    gr_begin_call(&call, ask->order, ask->seed);
    if (host)
        gr_sum_segments_of_host(request, host, &outcome, &call.error);
    else
        gr_sum_segments(request, &outcome, &call.error);
    if (gr_end_call(&call) < 0) {
        gr_drop_times(request->times, 0);
        return NULL;
    }
    const gr_launched *launched = &outcome.launched;
    PyObject *times = gr_times_of(request->times, host != NULL);
    return times ? Py_BuildValue("IIINN", launched->block, launched->grid, launched->launches,
                                 times, problem(ask, &outcome))
                 : NULL;
}

/* Whether there are sums, or at least ids or offsets to be checked. */
static bool has_work(const gr_segment_request *request)
{
    bool is_checked = request->check && !request->kernel;
    return (request->columns && request->segments) ||
           (is_checked && (request->rows || request->by_offsets));
}

static PyObject *nothing_to_do(void)
{
    return Py_BuildValue("IIIOO", 0, 0, 0, Py_None, Py_None);
}

/* --- NumPy arrays ------------------------------------------------------------------------------
 */

PyObject *gr_py_sum_segments_of_host(PyObject *Py_UNUSED(self), PyObject *args)
{
    PyObject *array, *numbers, *sums, *details;
    gr_segment_request request = {0};
    asked ask = {0};
    gr_view in, index, out;
    gr_span span[3];
    int kind, index_kind;
    if (!PyArg_ParseTuple(args, "OOOCCiO", &array, &numbers, &sums, &kind, &index_kind,
                          &request.device, &details) ||
        gr_view_checked(array, &in, &span[0]) < 0 ||
        gr_view_checked(numbers, &index, &span[1]) < 0 ||
        gr_out_checked(sums, &out, &span[2]) < 0 ||
        take_details(details, kind, in.bytes, &request, &ask) < 0 ||
        take_index(&index, index_kind, &request.index) < 0 ||
        describe(&request, &in, &index, &out) < 0)
        return NULL;
    ask.index_kind = (char)index_kind;
    return has_work(&request) ? run(&request, &ask, span) : nothing_to_do();
}

/* --- arrays on a GPU ---------------------------------------------------------------------------
 */

/* Whether the elements are aligned to their size. Sets an exception if not. */
static int is_aligned(const gr_gpu_array *array, const char *name, int size)
{
    if (!array->count || (uintptr_t)array->base % (unsigned)size == 0)
        return 1;
    PyErr_Format(PyExc_BufferError, "the elements of %s are not aligned to their size", name);
    return 0;
}

PyObject *gr_py_sum_segments_on_device(PyObject *Py_UNUSED(self), PyObject *args)
{
    const gr_view_object *values, *index;
    PyObject *to, *details, *done = NULL;
    gr_segment_request request = {0};
    asked ask = {0};
    gr_gpu_array sums;
    gr_view out;
    if (!PyArg_ParseTuple(args, "O!O!OO", gr_view_type, &values, gr_view_type, &index, &to,
                          &details) ||
        take_details(details, values->array.kind, values->array.bytes, &request, &ask) < 0 ||
        !is_aligned(&values->array, "values", (int)gr_load_size((gr_load)request.load)) ||
        gr_view_beside(to, "out", values->stream, values->array.device, &sums, &out) < 0)
        return NULL;
    const gr_input inputs[] = {{"the array", &values->array},
                               {request.by_offsets ? "offsets" : "segment_ids", &index->array},
                               {NULL, NULL}};
    request.device = values->array.device;
    request.stream = values->stream;
    ask.index_kind = (char)index->array.kind;
    if (gr_check_out(request.sums.bytes, &sums, &out, inputs) == 0 &&
        take_index(&index->seen, ask.index_kind, &request.index) == 0 &&
        describe(&request, &values->seen, &index->seen, &out) == 0)
        done = has_work(&request) ? run(&request, &ask, NULL) : nothing_to_do();
    gr_gpu_array_done(&sums);
    return done;
}

PyObject *gr_py_view_index(PyObject *Py_UNUSED(self), PyObject *args)
{
    const gr_view_object *values;
    PyObject *object;
    const char *name;
    gr_gpu_array array;
    gr_view seen;
    gr_index index;
    if (!PyArg_ParseTuple(args, "O!Os", gr_view_type, &values, &object, &name) ||
        gr_view_beside(object, name, values->stream, values->array.device, &array, &seen) < 0)
        return NULL;
    array.device = values->array.device;
    if (take_index(&seen, array.kind, &index) == 0 && is_aligned(&array, name, array.bytes))
        return gr_new_view(&array, values->stream);
    gr_gpu_array_done(&array);
    return NULL;
}

PyObject *gr_py_largest_id(PyObject *Py_UNUSED(self), PyObject *object)
{
    int64_t largest = -1;
    gr_call call;
    gr_index index;
    if (!PyObject_TypeCheck(object, gr_view_type)) {
        PyErr_SetString(PyExc_TypeError, "expected a View");
        return NULL;
    }
    const gr_view_object *ids = (gr_view_object *)object;
    if (gr_stream_is_captured(ids->stream)) {
        PyErr_SetString(PyExc_ValueError, "the largest id cannot be read while the stream is "
                                          "captured into a graph: pass num_segments");
        return NULL;
    }
    if (take_index(&ids->seen, ids->array.kind, &index) < 0)
        return NULL;
    if (ids->array.count) {
        gr_begin_call(&call, 0, 0);
        gr_largest_id(&index, (uint64_t)ids->array.count, ids->array.device, ids->stream, &largest,
                      &call.error);
        if (gr_end_call(&call) < 0)
            return NULL;
    }
    return PyLong_FromLongLong(largest);
}
