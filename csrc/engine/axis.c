/* Launches the kernels of a sum along axes. */
#include "engine/axis_plan.h"
#include "engine/times.h"

#include "threads/interrupts.h"

#include <stdbool.h>

gr_status gr_launch_axis(gr_axis_plan *p, void *partial, uint64_t *words, gr_launched *launched,
                         gr_error *error)
{
    gr_sums sums = p->sums;
    if (partial)
        sums = (gr_sums){.base = partial,
                         .is_partial = 1,
                         .zeros = p->sums.zeros,
                         .zero_count = p->sums.zero_count,
                         .zero_step = p->sum_count * p->shares * p->pieces};
    void *of_columns[] = {&p->matrix, &sums, &p->teams, &p->shares, &p->fold, &p->tail};
    void *of_tiles[] = {&p->matrix, &sums, &p->per_lane, &p->tile_bytes};
    void *of_rows[] = {&p->matrix, &sums, &p->shares};
    void *of_lanes[] = {&p->matrix, &sums, &p->row_team, &p->shares};
    void *of_layout[] = {&p->layout, &sums, &p->sum_count, &p->terms, &p->team, &p->shares};
    void *of_levels[] = {&p->layout,       &sums, &p->sum_count, &p->terms, &p->lanes,
                         &p->level_shares, &words};
    void **arguments = p->lanes      ? of_levels
                       : p->team     ? of_layout
                       : p->teams    ? of_columns
                       : p->per_lane ? of_tiles
                       : p->row_team ? of_lanes
                                     : of_rows;
    gr_step step = {p->strategy, p->kernel, {(unsigned)p->grid, 1}, p->block, p->shared_bytes};
    return gr_launch(&step, arguments, p->request->stream, launched, error);
}

/* Scratch memory, in this order: words of exact sums that warps share (at the arena's base), bits
 * of unproven sums, partial sums of shares. */
typedef struct {
    gr_arena arena;
    void *partial; /* NULL: there are no shares */
} scratch;

/* `last`: the launch that adds up unproven sums again, if there may be any. `is_next`: the plan's
 * own launch is the next one. If it leaves partial sums, it also sets the zeros, without a memset.
 */
static gr_status allocate(gr_axis_plan *plan, gr_axis_plan *last, bool is_next, scratch *needed,
                          gr_error *error)
{
    const gr_groups_request *request = plan->request;
    gr_arena *arena = &needed->arena;
    size_t shares = plan->shares * plan->pieces;
    bool has_partial = shares > 1 || plan->is_apart;
    gr_arena_take(arena, last ? last->words : plan->words, sizeof(uint64_t));
    size_t marks = gr_arena_take(arena, last ? plan->sum_count / 32 + 2 : 0, sizeof(unsigned));
    size_t zeroed = arena->bytes;
    arena->zeroed = has_partial && is_next ? 0 : zeroed;
    size_t partial = gr_arena_take(arena, has_partial ? plan->sum_count * shares : 0,
                                   gr_axis_acc_size(request->acc));
    if (gr_arena_open(arena, request->device, request->stream, error) != GR_OK)
        return error->status;
    needed->partial = has_partial ? arena->base + partial : NULL;
    if (last) {
        plan->sums.any_unproven = last->sums.any_unproven = (void *)(arena->base + marks);
        plan->sums.unproven = last->sums.unproven = plan->sums.any_unproven + 1;
        plan->sums.zeros = (void *)arena->base;
        plan->sums.zero_count = arena->zeroed ? 0 : zeroed / sizeof(unsigned);
    }
    return GR_OK;
}

/* Stores the sums at `to`, or where the plan says if `to` is NULL. */
static gr_status launch(gr_axis_plan *plan, const scratch *needed, void *to, gr_launched *launched,
                        gr_error *error)
{
    gr_axis_plan next;
    if (gr_launch_axis(plan, needed->partial ? needed->partial : to, (void *)needed->arena.base,
                       launched, error) == GR_OK &&
        needed->partial && gr_plan_shares(plan, needed->partial, &next, error) == GR_OK)
        gr_launch_axis(&next, to, NULL, launched, error);
    return error->status;
}

/* Leaves the sums at `to`, unrounded: gr_axis_acc_size() bytes each. */
static gr_status add_partial(const gr_groups_request *request, void *to, gr_launched *launched,
                             gr_error *error)
{
    gr_axis_plan plan;
    scratch needed = {{0}, NULL};
    if (gr_plan_axis(request, &plan, error) == GR_OK &&
        allocate(&plan, NULL, false, &needed, error) == GR_OK)
        launch(&plan, &needed, to, launched, error);
    gr_arena_close(&needed.arena);
    return error->status;
}

enum {
    LEAST_WINDOW = 64, /* elements of windows that are worth the sums of chunks .. */
    LEAST_OVERLAP = 4  /* .. if each element lies in so many windows */
};

/* Adds up chunks of elements if the plan's groups are long windows that overlap. A window of w
 * elements then adds up w / chunk sums, and less than 2 chunk elements beside them. */
static gr_status add_chunks(gr_axis_plan *plan, gr_arena *arena, gr_launched *launched,
                            gr_error *error)
{
    gr_groups_request chunks = *plan->request;
    gr_axes *axes = &chunks.axes;
    gr_layout *layout = &plan->layout;
    const gr_layout_dim *last = layout->dim + (layout->kept ? layout->kept - 1 : 0);
    uint64_t chunk = 1, window = (uint64_t)axes->ranges.size;
    bool are_long = axes->ranges.kind >= GR_RANGE_WINDOWS && window >= LEAST_WINDOW;
    if (!are_long || !plan->terms || plan->shares > 1 || last->mask != 1 ||
        last->size < LEAST_OVERLAP * plan->terms / window)
        return GR_OK;
    while (chunk * chunk < 2 * window)
        chunk *= 2;
    layout->chunk = chunk;
    layout->chunk_count = gr_ceil_div(plan->terms, chunk);
    axes->ranges = (gr_ranges){GR_RANGE_WINDOWS, NULL, 0, (int64_t)chunk, (int64_t)chunk};
    for (int i = 0; i < axes->kept.count; i++)
        if (axes->kept.dim[i].mask == 1)
            axes->kept.dim[i].size = layout->chunk_count;
    gr_arena_take(arena, gr_axes_size(&axes->kept), gr_axis_acc_size(chunks.acc));
    if (gr_arena_open(arena, chunks.device, chunks.stream, error) == GR_OK &&
        add_partial(&chunks, arena->base, launched, error) == GR_OK)
        layout->chunks = arena->base;
    return error->status;
}

/* Adds up each part of complex numbers and its squares, and plans the launch that makes results. */
static gr_status add_parts(const gr_groups_request *request, gr_axis_plan *plan, gr_arena *arena,
                           gr_launched *launched, gr_error *error)
{
    gr_groups_request parts = *request;
    gr_axis_list *kept = &parts.axes.kept;
    ptrdiff_t bytes = parts.sums.bytes;
    parts.axes.components = 1;
    parts.sums.parts = 2;
    parts.sums.made.is_made = 0;
    for (int i = 0; i < kept->count; i++)
        kept->dim[i].out *= 2; /* two sums take the place of a result */
    gr_axes_push(kept, (gr_axis){2, (ptrdiff_t)gr_axis_element_bytes(parts.load), 0, bytes});
    gr_arena_take(arena, gr_axes_size(kept), gr_axis_acc_size(parts.acc));
    if (gr_arena_open(arena, parts.device, parts.stream, error) != GR_OK ||
        add_partial(&parts, arena->base, launched, error) != GR_OK)
        return error->status;
    return gr_plan_join(request, arena->base, plan, error);
}

static gr_status plan_whole(const gr_groups_request *request, gr_axis_plan *plan, gr_arena *before,
                            gr_launched *launched, gr_error *error)
{
    if (request->axes.components == 2 && !gr_needs_digits(request))
        return add_parts(request, plan, before, launched, error);
    if (gr_plan_axis(request, plan, error) == GR_OK)
        add_chunks(plan, before, launched, error);
    return error->status;
}

static gr_status run_whole(const gr_groups_request *request, gr_launched *launched, gr_error *error)
{
    gr_axis_plan plan, last;
    scratch needed = {{0}, NULL};
    gr_arena before = {0};

    if (plan_whole(request, &plan, &before, launched, error) != GR_OK)
        goto done;
    bool has_last = gr_acc_is_proven(request->acc) && !plan.lanes && !plan.adds_again;
    if (has_last && gr_plan_levels(&plan, &last, error) != GR_OK)
        goto done;
    if (allocate(&plan, has_last ? &last : NULL, true, &needed, error) == GR_OK &&
        launch(&plan, &needed, NULL, launched, error) == GR_OK && has_last)
        gr_launch_axis(&last, NULL, (void *)needed.arena.base, launched, error);
done:
    gr_arena_close(&needed.arena);
    gr_arena_close(&before);
    return error->status;
}

/* --- arrays of more elements than one launch should read ---------------------------------------
 *
 * A broadcast array may have any number of elements. A signal cannot end a launch on a GPU, nor the
 * loop of a lane on the emulator. So launches read at most gr_backend_elements_at_once()
 * elements: some of the sums, or a piece of one sum, which becomes a partial sum. */

/* Dimensions in parts. A part has one entry of each of the first `outer` dimensions, up to `step`
 * entries of the next dimension, and all entries of the dimensions after it. */
typedef struct {
    const gr_axis_list *list;
    int outer;
    size_t step, size, entries; /* of the divided dimension, and of all outer ones together */
} division;

/* Divides dimensions with more than `most` entries. */
static division divide(const gr_axis_list *list, size_t most)
{
    division by = {.list = list, .outer = list->count, .step = 1, .size = 1, .entries = 1};
    size_t rest = 1;
    while (by.outer > 0 && list->dim[by.outer - 1].size <= most / rest)
        rest *= list->dim[--by.outer].size;
    if (by.outer > 0) {
        by.size = list->dim[--by.outer].size;
        by.step = most / rest;
    }
    for (int i = 0; i < by.outer; i++)
        by.entries *= list->dim[i].size;
    return by;
}

/* Restricts one list of `axes` to the part at entry `k` of the outer dimensions and entry `at` of
 * the divided one. */
static void take_part(gr_axes *axes, gr_axis_list *part, const division *by, size_t k, size_t at)
{
    gr_axes_place place;
    gr_axes_go(&place, by->list, by->outer, k);
    part->count = 0;
    for (int i = by->outer; i < by->list->count; i++) {
        gr_axis dim = by->list->dim[i];
        if (i == by->outer) {
            place.in += (ptrdiff_t)at * dim.in;
            place.mask += (ptrdiff_t)at * dim.mask;
            place.out += (ptrdiff_t)at * dim.out;
            dim.size = gr_least(by->step, dim.size - at);
        }
        gr_axes_push(part, dim);
    }
    axes->in += place.in;
    axes->out += place.out;
    if (axes->mask)
        axes->mask += place.mask;
    axes->ranges.first += place.mask * axes->ranges.step;
    axes->ranges.offset += axes->ranges.offset ? place.mask * axes->ranges.step : 0;
}

/* Waits for the part if the caller waits for sums. Returns whether to go on with the next part. */
static bool goes_on(const gr_groups_request *request, gr_error *error)
{
    if (request->waits)
        TRY(cudaStreamSynchronize(request->stream));
done:
    return error->status == GR_OK && !gr_ask_for_interrupts();
}

enum { PARTIAL_SUMS = 16 }; /* in memory at a time */

typedef struct {
    char *now, *other; /* the partial sums, and space for as many merged ones */
    size_t bytes;      /* of a partial sum */
    unsigned count;
} partial_sums;

/* Adds up the partial sums: to the result if `is_last`, otherwise to one partial sum. */
static gr_status merge(gr_axis_plan *of, partial_sums *sums, bool is_last, gr_launched *launched,
                       gr_error *error)
{
    gr_axis_plan next;
    char *merged = sums->other;
    of->shares = sums->count;
    if (gr_plan_shares(of, sums->now, &next, error) != GR_OK ||
        gr_launch_axis(&next, is_last ? NULL : merged, NULL, launched, error) != GR_OK)
        return error->status;
    sums->other = sums->now;
    sums->now = merged;
    sums->count = 1;
    return GR_OK;
}

/* A single sum that is too long for one launch. */
static gr_status run_long(const gr_groups_request *request, gr_launched *launched, gr_error *error)
{
    gr_groups_request piece = *request;
    gr_axis_plan plan, last;
    division by = divide(&request->axes.reduced, gr_backend_elements_at_once());
    scratch needed = {{0}, NULL};
    bool more = true, has_last = gr_acc_is_proven(request->acc);

    gr_start_axis_plan(request, &plan);
    plan.shares = 2 * PARTIAL_SUMS;
    if ((has_last && gr_plan_levels(&plan, &last, error) != GR_OK) ||
        allocate(&plan, has_last ? &last : NULL, false, &needed, error) != GR_OK)
        goto done;
    partial_sums sums = {.now = needed.partial, .bytes = gr_axis_acc_size(request->acc)};
    sums.other = sums.now + PARTIAL_SUMS * sums.bytes;
    for (size_t k = 0; k < by.entries && more; k++)
        for (size_t at = 0; at < by.size && more; at += by.step) {
            piece.axes = request->axes;
            take_part(&piece.axes, &piece.axes.reduced, &by, k, at);
            if ((sums.count == PARTIAL_SUMS &&
                 merge(&plan, &sums, false, launched, error) != GR_OK) ||
                add_partial(&piece, sums.now + sums.count++ * sums.bytes, launched, error) != GR_OK)
                goto done;
            more = goes_on(request, error);
        }
    if (more && merge(&plan, &sums, true, launched, error) == GR_OK && has_last)
        gr_launch_axis(&last, NULL, (void *)needed.arena.base, launched, error);
done:
    gr_arena_close(&needed.arena);
    return error->status;
}

static gr_status run_parts(const gr_groups_request *request, size_t at_once, bool are_long,
                           gr_launched *launched, gr_error *error)
{
    gr_groups_request part = *request;
    const gr_axis_list *kept = &request->axes.kept;
    division by = divide(kept, at_once);
    bool more = true;

    for (size_t k = 0; k < by.entries && more; k++)
        for (size_t at = 0; at < by.size && more; at += by.step) {
            part.axes = request->axes;
            take_part(&part.axes, &part.axes.kept, &by, k, at);
            if (request->sums.parts == 2 && by.outer == kept->count - 1) {
                part.sums.parts = 1;
                part.sums.initial[0] = request->sums.initial[at];
                part.sums.initial[1] = (gr_value){0};
            }
            if ((are_long ? run_long : run_whole)(&part, launched, error) != GR_OK)
                return error->status;
            more = goes_on(request, error);
        }
    return error->status;
}

gr_status gr_run_axis(const gr_groups_request *request, gr_launched *launched, gr_error *error)
{
    size_t most = gr_backend_elements_at_once(), terms = gr_axis_usual_terms(&request->axes);
    bool are_long = terms > most && !gr_needs_digits(request) && !request->axes.ranges.kind;
    size_t at_once = terms && terms < most ? most / terms : 1;
    *launched = (gr_launched){0};
    error->status = GR_OK;
    if (request->sums.as_digits && at_once < request->sums.parts)
        at_once = request->sums.parts; /* one launch must store the digits of both complex parts */
    if (!terms || (!are_long && gr_axes_size(&request->axes.kept) <= at_once))
        run_whole(request, launched, error);
    else
        run_parts(request, at_once, are_long, launched, error);
    if (error->status == GR_OK)
        gr_record_time(request->times, GR_AT_SUMMED, request->stream, error);
    return error->status;
}

int gr_stream_is_captured(void *stream)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    cudaError_t found = cudaStreamIsCapturing(stream, &status);
    bool is_legacy_beside_it = found == cudaErrorStreamCaptureImplicit;
    if (found != cudaSuccess) /* clears this error; an earlier launch's stays pending */
        (void)cudaGetLastError();
    return is_legacy_beside_it || status != cudaStreamCaptureStatusNone;
}
