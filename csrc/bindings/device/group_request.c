/* Requests for sums of groups. */
#include "bindings/device/group_request.h"

#include "bindings/device/functions.h"
#include "bindings/device/run.h"
#include "bindings/device/views.h"
#include "exact/finish.h"
#include "exact/format.h"

#include <stdlib.h>

static const char DECIDED[] = "gpureduce.request"; /* the name of its capsule */

/* Whether results also need sums of products. */
static bool has_products(const gr_decided *plan)
{
    return plan->request.sums.made.is_made && plan->request.axes.term >= GR_TERM_SQUARE;
}

/* Whether the squares of both parts of complex numbers add up to one result: a norm or variance. */
static bool joins_parts(const gr_decided *plan, const gr_numpy_type *type)
{
    return type->components == 2 && plan->request.axes.term == GR_TERM_SQUARE &&
           plan->request.sums.made.kind != GR_FINISH_DEVIATION;
}

/* Whether kernels can make these results of such elements. */
static bool can_be_made(const gr_decided *plan, const gr_numpy_type *type, bool exactly)
{
    const gr_made *made = &plan->request.sums.made;
    gr_term term = plan->request.axes.term;
    bool is_weighted = made->over == GR_OVER_WEIGHTS;
    bool is_known = made->kind == GR_FINISH_RATIO
                        ? term <= GR_TERM_CONJUGATED && is_weighted == (term == GR_TERM_WEIGHTED)
                        : made->kind <= GR_FINISH_DEVIATION && term == GR_TERM_SQUARE;
    bool is_complex = type->components == 2;
    bool is_plain = term == GR_TERM_ELEMENT || joins_parts(plan, type) ||
                    is_complex == (term >= GR_TERM_COMPLEX);
    bool is_one_axis = plan->axes && !(plan->axes & (plan->axes - 1));
    gr_range_kind ranges = plan->request.axes.ranges.kind;
    if (plan->request.running)
        return (!ranges || (ranges == GR_RANGE_OFFSETS && plan->request.running == GR_RUNNING)) &&
               !made->is_made && !plan->request.by_segment && !plan->request.sums.as_digits &&
               is_one_axis;
    if (ranges && (!is_one_axis || made->is_made != exactly || term >= GR_TERM_PRODUCT))
        return false;
    bool is_exact = gr_is_float(type->load) || gr_load_size(type->load) < sizeof(double) ||
                    term <= GR_TERM_SQUARE;
    return !made->is_made || (exactly && is_known && is_plain && is_exact &&
                              !plan->request.by_segment && !plan->request.sums.as_digits);
}

/* Sets how elements are read and sums stored. Returns -1 with an exception set if such a sum is not
 * supported. */
static int take_types(gr_decided *plan, int acc, int exactly, int target,
                      PyObject *const initial[2])
{
    gr_groups_request *request = &plan->request;
    gr_sums *sums = &request->sums;
    const gr_numpy_type *type = gr_numpy_type_of_kind(plan->kind, plan->bytes);
    int strategy = request->strategy, by_segment = request->by_segment;
    if (type && type->components == 1 && request->axes.term >= GR_TERM_COMPLEX)
        request->axes.term = GR_TERM_PRODUCT;
    bool is_there = strategy >= 0 && strategy < gr_strategy_count();
    gr_kind kind = by_segment ? GR_KIND_KEYS : GR_KIND_SCAN;
    bool is_users = request->running && is_there && gr_is_added_strategy(strategy);
    bool is_lesson = is_users || (is_there && gr_strategy_at(strategy)->kind == kind);
    if (!type || !can_be_made(plan, type, exactly) || strategy >= gr_strategy_count() ||
        ((by_segment || request->running) && strategy >= 0 && !is_lesson) ||
        (!by_segment && is_lesson && request->running != GR_RUNNING) || acc < 0 ||
        acc >= GR_ACC_COUNT || target < 0 || target >= GR_LOAD_COUNT ||
        (exactly && !gr_is_float((gr_load)target)) ||
        (request->in_place && (!by_segment || !exactly || is_lesson || request->by_offsets ||
                               sums->as_digits || (int)type->load != target)) ||
        (sums->as_digits && (!exactly || is_lesson || (by_segment && type->load == GR_LOAD_u64)))) {
        PyErr_SetString(PyExc_ValueError, "no sum of this kind is made of this dtype");
        return -1;
    }
    bool is_half = type->load == GR_LOAD_f16 || type->load == GR_LOAD_bf16;
    if (by_segment) {
        if (acc == GR_ACC_f32 && !is_half && type->load != GR_LOAD_f32)
            acc = GR_ACC_f64;                    /* no kernel rounds its elements to float32 */
        exactly |= acc == GR_ACC_f64 && is_half; /* no other kernel adds these in float64 */
    }
    bool integers = acc == GR_ACC_u32 || acc == GR_ACC_u64;
    bool is_signed = plan->kind == 'i' && plan->bytes == 8 && !by_segment;
    request->kernel = is_lesson ? gr_strategy_at(strategy) : NULL;
    request->load = is_signed ? GR_ELEMENTS_I64 : (int)type->load;
    bool is_wide = type->load == GR_LOAD_f64 || type->load == GR_LOAD_u64;
    request->acc = !exactly             ? (gr_acc)acc
                   : has_products(plan) ? GR_ACC_moments
                                        : (is_wide ? GR_ACC_proven3 : GR_ACC_proven);
    sums->type = (gr_load)target;
    sums->parts = joins_parts(plan, type) ? 1 : (unsigned)type->components;
    sums->bytes = sums->as_digits ? sizeof(int64_t) : (unsigned)gr_load_size(sums->type);
    sums->is_native = !by_segment && sums->bytes == gr_acc_size((gr_acc)acc) &&
                      integers != gr_is_float(sums->type);
    gr_take_values(initial, request->acc, sums->initial);
    return PyErr_Occurred() ? -1 : 0;
}

static int take_request(gr_decided *plan, PyObject *args, PyObject *named)
{
    static const char *const names[] = {
        "kind",     "bytes",    "acc",        "exactly", "target",   "initial",   "timed", "axes",
        "keepdims", "segments", "by_offsets", "sorted",  "check",    "as_digits", "block", "grid",
        "strategy", "made",     "running",    "ranges",  "in_place", NULL};
    gr_groups_request *request = &plan->request;
    gr_made *made = &request->sums.made;
    gr_ranges *ranges = &request->axes.ranges;
    int acc, exactly, target, is_sorted = GR_SORTED_UNKNOWN, term = GR_TERM_ELEMENT;
    long long segments = -1; /* along axes */
    PyObject *initial[2];
    request->strategy = -1;
    if (!PyArg_ParseTupleAndKeywords(
            args, named, "Ciipi(OO)p|$KpLpippIIi(ipiiddL)i(iLL)p", (char **)(uintptr_t)names,
            &plan->kind, &plan->bytes, &acc, &exactly, &target, &initial[0], &initial[1],
            &plan->timed, &plan->axes, &plan->keeps_dims, &segments, &request->by_offsets,
            &is_sorted, &request->check, &request->sums.as_digits, &request->block, &request->grid,
            &request->strategy, &made->kind, &made->root, &term, &made->over, &made->ddof,
            &made->mean, &request->sums.numbers.least, &request->running, &ranges->kind,
            &ranges->first, &ranges->size, &request->in_place))
        return -1;
    ranges->step = ranges->kind == GR_RANGE_PAIRS ? 2 : 1;
    made->is_made = named && PyDict_GetItemString(named, "made") != NULL;
    request->axes.term = (gr_term)term;
    request->by_segment = segments >= 0;
    request->segments = (uint64_t)segments;
    request->sorted = (gr_sorted)is_sorted;
    return take_types(plan, acc, exactly, target, initial);
}

static void drop_decided(PyObject *capsule)
{
    free(PyCapsule_GetPointer(capsule, DECIDED));
}

PyObject *gr_py_request(PyObject *Py_UNUSED(self), PyObject *args, PyObject *named)
{
    gr_decided *made = calloc(1, sizeof *made);
    PyObject *capsule = made ? PyCapsule_New(made, DECIDED, drop_decided) : PyErr_NoMemory();
    if (!capsule)
        free(made);
    else if (take_request(made, args, named) < 0)
        Py_CLEAR(capsule);
    return capsule;
}

const gr_decided *gr_decided_in(PyObject *capsule)
{
    const gr_decided *plan = PyCapsule_GetPointer(capsule, DECIDED);
    if (!plan || PyCapsule_GetName(capsule) == DECIDED)
        return plan;
    PyErr_SetString(PyExc_ValueError, "the request was made by another module");
    return NULL; /* its pointers lead into that module */
}
