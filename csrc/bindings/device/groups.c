/* Sums of groups by kernels, along axes or by segment: of arrays on a GPU, whose sums stay there,
 * and of NumPy arrays, which are copied to the device and whose sums are copied back. */
#include "bindings/device/functions.h"

#include "bindings/device/group_request.h"
#include "bindings/device/run.h"
#include "bindings/device/views.h"
#include "exact/finish.h"

/* One call. `other` is the mask, or NULL, or the ids or offsets. */
typedef struct {
    gr_groups_request request;
    const gr_decided *plan;
    const gr_array *in, *other;
    gr_array *out;
    const gr_span *host;      /* of NumPy arrays, or NULL */
    PyObject *counts, *means; /* numbers of results on a GPU; None or NULL: there are none */
    int order;                /* of the emulator's threads */
    unsigned long long seed;
} job;

/* --- do the arrays fit together? ---------------------------------------------------------------
 */

/* Takes the offsets of groups. Returns false if the array is not of offsets. */
static bool take_offsets(job *j)
{
    const gr_array *offsets = j->other;
    gr_made_numbers *numbers = &j->request.sums.numbers;
    numbers->offsets = (const int64_t *)offsets->base;
    numbers->results = j->out->base;
    numbers->apart = j->out->bytes; /* of a row of results */
    for (int i = 1; i < j->out->dims; i++)
        numbers->apart *= j->out->size[i];
    j->request.axes.ranges.offset = numbers->offsets;
    j->request.axes.ranges.size = offsets->size[0] - 1;
    return offsets->kind == 'i' && offsets->bytes == 8 && offsets->dims == 1 &&
           offsets->step[0] == 8 && offsets->size[0] > 0 && j->plan->axes == 1;
}

/* Takes the starts and ends of groups. Returns false if the array is not of such pairs. */
static bool take_pairs(job *j)
{
    const gr_array *pairs = j->other;
    j->request.axes.ranges.offset = (const int64_t *)pairs->base;
    return pairs->kind == 'i' && pairs->bytes == 8 && pairs->dims == 2 && pairs->size[1] == 2 &&
           (pairs->size[0] == 0 || pairs->step[1] == 8) &&
           (pairs->size[0] < 2 || pairs->step[0] == 16);
}

/* Adds the array's dimensions to the axes. `out` has the kept dimensions. */
static bool fit_axes(job *j)
{
    gr_axes *axes = &j->request.axes;
    const gr_array *in = j->in, *mask = j->other, *out = j->out;
    const gr_sums *sums = &j->request.sums;
    int k = 0, part_bytes = gr_part_bytes(sums);
    int running = j->request.running, first = running & GR_RUNNING_FROM_ZERO ? 1 : 0;
    bool keeps = j->plan->keeps_dims || running || axes->ranges.kind,
         has_factors = axes->term >= GR_TERM_PRODUCT;
    bool by_offsets = axes->ranges.kind == GR_RANGE_OFFSETS,
         by_pairs = axes->ranges.kind == GR_RANGE_PAIRS, in_ranges = axes->ranges.kind && !running;
    bool fits = by_offsets    ? mask && take_offsets(j)
                : by_pairs    ? mask && take_pairs(j)
                : in_ranges   ? !mask
                : !mask       ? !has_factors
                : has_factors ? mask->kind == in->kind && mask->bytes == in->bytes
                              : mask->bytes == 1 && !sums->as_digits &&
                                    (!sums->made.is_made || (j->counts && j->counts != Py_None));
    if (by_offsets || by_pairs)
        mask = NULL;
    if (!fits || (mask && (running || mask->dims != in->dims)))
        return false;
    axes->in = (const unsigned char *)in->base;
    axes->mask = mask ? (const unsigned char *)mask->base : NULL;
    axes->out = (unsigned char *)(uintptr_t)out->base;
    for (int i = 0; i < in->dims; i++) {
        bool reduced = j->plan->axes >> i & 1, stays = !reduced || keeps;
        int64_t size = !reduced     ? in->size[i]
                       : running    ? in->size[i] + first
                       : by_offsets ? j->other->size[0] - 1
                       : by_pairs   ? j->other->size[0]
                       : in_ranges  ? out->size[i]
                                    : 1;
        if ((mask && mask->size[i] != in->size[i]) ||
            (stays && (k >= out->dims || out->size[k] != size)))
            return false;
        gr_axis dim = {.size = (size_t)in->size[i],
                       .in = in->step[i],
                       .mask = mask ? mask->step[i] : 0,
                       .out = stays && (!reduced || running) ? out->step[k] : 0};
        if (reduced && in_ranges)
            gr_axes_push(&axes->kept, (gr_axis){(size_t)size, 0, 1, out->step[k]});
        if (reduced && running) /* kept even if it has one entry: a 0 may come before it */
            axes->reduced.dim[axes->reduced.count++] = dim;
        else
            gr_axes_push(reduced ? &axes->reduced : &axes->kept, dim);
        k += stays;
    }
    bool has_mean = sums->made.is_made && sums->made.kind == GR_FINISH_VARIANCE;
    if (in->kind == 'c' && has_mean)
        axes->components = 2; /* the sum of each part is squared */
    else if (axes->term >= GR_TERM_COMPLEX) {
        gr_axes_push(&axes->kept, (gr_axis){2, 0, 1, part_bytes});
        gr_axes_push(&axes->reduced, (gr_axis){2, in->bytes / 2, in->bytes / 2, 0});
    } else if (sums->parts == 2)
        gr_axes_push(&axes->kept, (gr_axis){2, in->bytes / 2, 0, part_bytes});
    else if (in->kind == 'c')
        gr_axes_push(&axes->reduced, (gr_axis){2, in->bytes / 2, 0, 0});
    return k == out->dims;
}

static int take_index(const gr_array *array, gr_index *index)
{
    static const gr_load loads[2][4] = {{GR_LOAD_i8, GR_LOAD_i16, GR_LOAD_i32, GR_LOAD_u64},
                                        {GR_LOAD_u8, GR_LOAD_u16, GR_LOAD_u32, GR_LOAD_u64}};
    int size = array->bytes == 1 ? 0 : array->bytes == 2 ? 1 : array->bytes == 4 ? 2 : 3;
    if ((array->kind != 'i' && array->kind != 'u') || array->dims != 1) {
        PyErr_SetString(PyExc_TypeError, "segment_ids and offsets must be integers in 1 dimension");
        return -1;
    }
    *index = (gr_index){array->base, array->step[0], loads[array->kind == 'u'][size]};
    return 0;
}

static gr_rows rows_of(const gr_array *array, unsigned parts, int part_bytes)
{
    return (gr_rows){.base = array->base,
                     .row_step = array->step[0],
                     .number_step = array->dims == 2 ? array->step[1] : array->bytes,
                     .part_step = part_bytes,
                     .parts = parts};
}

static bool fit_segments(job *j)
{
    gr_groups_request *request = &j->request;
    const gr_array *in = j->in, *index = j->other, *out = j->out;
    unsigned parts = request->sums.parts;
    bool fits = (in->dims == 1 || in->dims == 2) && out->dims == in->dims &&
                (in->dims == 1 || in->size[1] == out->size[1]) &&
                (uint64_t)out->size[0] == request->segments;
    if (request->kernel) /* a lesson's kernel reads contiguous arrays and 32-bit ids */
        fits = fits && in->dims == 1 && in->step[0] == in->bytes && out->step[0] == out->bytes &&
               index->bytes == 4 && index->step[0] == 4 && !request->by_offsets;
    if (!fits ||
        index->size[0] != (request->by_offsets ? (int64_t)request->segments + 1 : in->size[0]))
        return false;
    request->values = rows_of(in, parts, in->bytes / (int)parts);
    request->out = rows_of(out, parts, gr_part_bytes(&request->sums));
    request->rows = (uint64_t)in->size[0];
    request->columns = (in->dims == 2 ? (uint64_t)in->size[1] : 1) * parts;
    return true;
}

static int fit(job *j)
{
    const gr_sums *sums = &j->request.sums;
    bool by_segment = j->request.by_segment;
    if (by_segment && take_index(j->other, &j->request.index) < 0)
        return -1;
    bool holds_sums = sums->as_digits ? gr_drop_words(j->out, sums->parts)
                                      : j->out->bytes == gr_part_bytes(sums) * (int)sums->parts;
    if (holds_sums && (by_segment ? fit_segments(j) : fit_axes(j)))
        return 0;
    PyErr_SetString(PyExc_ValueError,
                    by_segment
                        ? "values, segment_ids or offsets, and out have shapes that do not match"
                        : "out or where has a shape or dtype that does not match the array");
    return -1;
}

/* --- run ---------------------------------------------------------------------------------------
 */

/* Whether there are sums to make, or ids or offsets to check. */
static bool has_work(const job *j)
{
    const gr_groups_request *request = &j->request;
    bool is_checked = request->check && !request->kernel;
    if (!request->by_segment)
        return j->out->count;
    return (request->columns && request->segments) ||
           (is_checked && (request->rows || request->by_offsets));
}

/* A number fetched from the device, as a Python int. */
static PyObject *number(const job *j, uint64_t found)
{
    return j->other->kind == 'i' ? PyLong_FromLongLong((long long)found)
                                 : PyLong_FromUnsignedLongLong(found);
}

static PyObject *problem(const job *j, const gr_groups_outcome *outcome)
{
    if (!outcome->is_bad && !outcome->is_unsorted)
        return Py_NewRef(Py_None);
    return Py_BuildValue("NKNN", PyBool_FromLong(!outcome->is_bad),
                         (unsigned long long)outcome->place, number(j, outcome->found),
                         number(j, outcome->next));
}

/* Runs the request without the GIL. */
static int add(job *j, gr_groups_outcome *outcome)
{
    gr_call call;
    gr_groups_request *request = &j->request;
    bool timed = j->plan->timed;
    if (!j->host && (timed || request->check) && gr_stream_is_captured(request->stream)) {
        timed = false;
        if (request->check) {
            PyErr_SetString(PyExc_ValueError,
                            request->sums.as_digits
                                ? "segment_digits checks ids, which is impossible while "
                                  "the stream is captured into a graph"
                                : "ids cannot be checked while the stream is captured "
                                  "into a graph: pass check=False");
            return -1;
        }
    }
    if (timed && !(request->times = gr_take_times(request->device))) {
        PyErr_NoMemory();
        return -1;
    }
    gr_begin_call(&call, j->order, j->seed);
    gr_sum_groups(request, j->host, outcome, &call.error);
    int failed = gr_end_call(&call);
    if (failed)
        gr_drop_times(request->times, 0);
    return failed;
}

static PyObject *run(job *j)
{
    gr_groups_outcome outcome = {.launched = {.strategy = j->request.strategy}};
    const gr_launched *launched = &outcome.launched;
    if (fit(j) < 0 || (has_work(j) && add(j, &outcome) < 0))
        return NULL;
    PyObject *times = gr_times_of(j->request.times, j->host != NULL);
    return times ? Py_BuildValue("iIIINN", launched->strategy, launched->block, launched->grid,
                                 launched->launches, times, problem(j, &outcome))
                 : NULL;
}

/* --- the arrays --------------------------------------------------------------------------------
 */

static const gr_view_object *view_of(PyObject *object)
{
    if (PyObject_TypeCheck(object, gr_view_type))
        return (gr_view_object *)object;
    PyErr_SetString(PyExc_TypeError, "expected a View");
    return NULL;
}

/* Whether the elements are aligned to their size. Sets an exception if not. */
static bool is_aligned(const gr_array *array, const char *elements, size_t size)
{
    if (!array->count || (uintptr_t)array->base % size == 0)
        return true;
    PyErr_Format(PyExc_BufferError, "%s are not aligned to their size", elements);
    return false;
}

static bool has_its_elements(const job *j)
{
    if (j->plan->kind == j->in->kind && j->plan->bytes == j->in->bytes)
        return true;
    PyErr_SetString(PyExc_ValueError, "the request is for other elements");
    return false;
}

static PyObject *run_numpy(job *j, PyObject *const object[3])
{
    gr_array array[3];
    gr_span span[3] = {{NULL, 0}};
    bool has_other = j->request.by_segment || object[1] != Py_None;
    for (int i = 0; i < 3; i++)
        if ((i != 1 || has_other) && gr_numpy_checked(object[i], i == 2, &array[i], &span[i]) < 0)
            return NULL;
    j->in = &array[0];
    j->other = has_other ? &array[1] : NULL;
    j->out = &array[2];
    j->host = span;
    return has_its_elements(j) ? run(j) : NULL;
}

static const char *name_of_other(const job *j)
{
    return j->request.axes.ranges.kind || j->request.by_offsets ? "offsets"
           : !j->request.by_segment ? (j->request.axes.term >= GR_TERM_PRODUCT ? "x2" : "where")
                                    : "segment_ids";
}

/* Takes an array with a number per result, laid out as the results: the count or the mean. Returns
 * 0, or -1 with an exception set. */
static int take_numbers(job *j, PyObject *object, char kind, gr_array *array)
{
    gr_made_numbers *numbers = &j->request.sums.numbers;
    const gr_array *out = j->out;
    if (!object || object == Py_None)
        return 0;
    if (gr_view_beside(object, "the results' numbers", j->request.stream, j->request.device,
                       array) < 0)
        return -1;
    bool fits = array->kind == kind && array->bytes == 8 && array->dims == out->dims;
    for (int i = 0; fits && i < out->dims; i++)
        fits = array->size[i] == out->size[i] &&
               (out->size[i] < 2 ||
                (out->step[i] >= 0 && array->step[i] * out->bytes == out->step[i] * array->bytes));
    if (kind == 'i')
        numbers->counts = (const int64_t *)array->base;
    else
        numbers->means = (const double *)array->base;
    numbers->results = out->base;
    numbers->apart = out->bytes;
    if (!fits)
        PyErr_SetString(PyExc_ValueError, "the results' numbers do not lie as the results do");
    return fits ? 0 : -1;
}

static PyObject *run_views(job *j, const gr_view_object *values, PyObject *const object[3])
{
    const gr_groups_request *request = &j->request;
    const gr_view_object *index = NULL;
    gr_array beside = {0}, out = {0}, counts = {0}, means = {0};
    PyObject *done = NULL;
    const char *name = name_of_other(j);
    j->in = &values->array;
    j->out = &out;
    j->request.stream = values->stream;
    j->request.device = values->array.device;
    if (!has_its_elements(j) || (request->by_segment && !(index = view_of(object[1]))))
        return NULL;
    size_t size = gr_load_size(gr_numpy_type_of_kind(j->in->kind, j->in->bytes)->load);
    if (!is_aligned(j->in, index ? "the elements of values" : "the array's elements", size))
        return NULL;
    bool is_beside = !index && object[1] != Py_None;
    bool is_mask = request->axes.term < GR_TERM_PRODUCT && !request->axes.ranges.kind;
    j->other = index ? &index->array : is_beside ? &beside : NULL;
    const gr_input inputs[] = {{"the array", j->in}, {name, j->other}, {NULL, NULL}};
    if ((!is_beside ||
         (gr_view_beside(object[1], name, request->stream, request->device, &beside) == 0 &&
          (is_mask || is_aligned(&beside, name, size)))) &&
        gr_view_beside(object[2], "out", request->stream, request->device, &out) == 0 &&
        gr_check_out(request->sums.bytes, &out, inputs) == 0 &&
        take_numbers(j, j->counts, 'i', &counts) == 0 &&
        take_numbers(j, j->means, 'f', &means) == 0)
        done = run(j);
    gr_array_done(&means);
    gr_array_done(&counts);
    gr_array_done(&out);
    gr_array_done(&beside);
    return done;
}

PyObject *gr_py_run(PyObject *Py_UNUSED(self), PyObject *args)
{
    PyObject *capsule, *object[3], *counts = NULL, *means = NULL;
    int device = 0, order = 0;
    unsigned long long seed = 0;
    if (!PyArg_ParseTuple(args, "OOOO|iiKOO", &capsule, &object[0], &object[1], &object[2], &device,
                          &order, &seed, &counts, &means))
        return NULL;
    const gr_decided *plan = gr_decided_in(capsule);
    if (!plan)
        return NULL;
    job j = {.request = plan->request,
             .plan = plan,
             .counts = counts,
             .means = means,
             .order = order,
             .seed = seed};
    j.request.device = device;
    return PyObject_TypeCheck(object[0], gr_view_type)
               ? run_views(&j, (gr_view_object *)object[0], object)
               : run_numpy(&j, object);
}

/* --- ids and offsets on a GPU ------------------------------------------------------------------
 */

PyObject *gr_py_view_index(PyObject *Py_UNUSED(self), PyObject *args)
{
    const gr_view_object *values;
    PyObject *object;
    const char *name;
    gr_array array;
    gr_index index;
    char elements[64];
    if (!PyArg_ParseTuple(args, "O!Os", gr_view_type, &values, &object, &name) ||
        gr_view_beside(object, name, values->stream, values->array.device, &array) < 0)
        return NULL;
    PyOS_snprintf(elements, sizeof elements, "the elements of %s", name);
    array.device = values->array.device;
    if (take_index(&array, &index) == 0 && is_aligned(&array, elements, (size_t)array.bytes))
        return gr_new_view(&array, values->stream);
    gr_array_done(&array);
    return NULL;
}

PyObject *gr_py_largest_id(PyObject *Py_UNUSED(self), PyObject *object)
{
    int64_t largest = -1;
    gr_call call;
    gr_index index;
    const gr_view_object *ids = view_of(object);
    if (!ids)
        return NULL;
    if (gr_stream_is_captured(ids->stream)) {
        PyErr_SetString(PyExc_ValueError, "the largest id cannot be read while the stream is "
                                          "captured into a graph: pass num_segments");
        return NULL;
    }
    if (take_index(&ids->array, &index) < 0)
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
