/* Ids and offsets of sums by segment without the sums: their checks, and the largest id. */
#include "engine/segment_launch.h"
#include "engine/times.h"
#include "threads/interrupts.h"

#include <stddef.h>

enum { BLOCK = GR_DEFAULT_BLOCK };

static gr_status fetch(const gr_segment_run *r, const void *from, size_t bytes, void *to)
{
    gr_error *error = r->error;
    cudaStream_t stream = r->request->stream;
    error->status = GR_OK;
    TRY(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream));
    TRY(cudaStreamSynchronize(stream));
done:
    return error->status;
}

gr_status gr_fetch_segment_state(const gr_segment_run *r, gr_segment_state *state)
{
    return fetch(r, r->job.state, offsetof(gr_segment_state, hot), state);
}

/* Fetches an id or offset. Negative ones are sign-extended. */
static gr_status fetch_index(const gr_segment_run *r, uint64_t place, uint64_t *number)
{
    const gr_index *of = &r->request->index;
    union {
        int8_t i8;
        uint8_t u8;
        int16_t i16;
        uint16_t u16;
        int32_t i32;
        uint32_t u32;
        uint64_t u64;
    } found;
    const char *at = (const char *)of->base + (int64_t)place * of->step;
    if (fetch(r, at, gr_load_size(of->load), &found) != GR_OK)
        return r->error->status;
    switch (of->load) {
    case GR_LOAD_i8: *number = (uint64_t)(int64_t)found.i8; break;
    case GR_LOAD_u8: *number = found.u8; break;
    case GR_LOAD_i16: *number = (uint64_t)(int64_t)found.i16; break;
    case GR_LOAD_u16: *number = found.u16; break;
    case GR_LOAD_i32: *number = (uint64_t)(int64_t)found.i32; break;
    case GR_LOAD_u32: *number = found.u32; break;
    default: *number = found.u64; break;
    }
    return GR_OK;
}

gr_status gr_report_index(const gr_segment_run *r, const gr_segment_state *state, uint64_t first)
{
    gr_groups_outcome *outcome = r->outcome;
    bool by_offsets = r->request->by_offsets;
    uint64_t unsorted = r->request->sorted == GR_SORTED ? state->unsorted : 0;
    if (!state->bad && !unsorted)
        return GR_OK;
    /* Reports the first fault. Both numbers are complements of places: the larger one is first. */
    outcome->is_bad = state->bad >= unsorted;
    outcome->is_unsorted = !outcome->is_bad;
    /* The last id also stands for the lanes of a warp beyond the last row. If another thread
     * changes it meanwhile, the error may be reported there. */
    uint64_t last = by_offsets ? r->request->segments : r->request->rows - 1;
    outcome->place = gr_least(first + ~(outcome->is_bad ? state->bad : unsorted), last);
    uint64_t beside = by_offsets ? outcome->place + 1 : outcome->place - 1;
    bool has_beside = by_offsets ? outcome->place < r->request->segments : outcome->place > 0;
    if (fetch_index(r, outcome->place, &outcome->found) == GR_OK && has_beside)
        fetch_index(r, beside, &outcome->next);
    return r->error->status;
}

/* Launches a kernel on the request's ids, piece by piece, until one is invalid. Broadcast ids may
 * have any number of rows, and signals cannot end a launch: hence the pieces. `job` has no ids yet.
 * Sets *first to the start of the last piece. */
static gr_status launch_by_pieces(gr_segment_run *r, const char *kernel, gr_segment_job job,
                                  gr_segment_state *state, uint64_t *first)
{
    const gr_groups_request *request = r->request;
    const char *base = request->index.base;
    for (uint64_t at = 0; at < request->rows && !gr_ask_for_interrupts(); at += job.rows) {
        *first = at;
        job.rows = gr_least(request->rows - at, gr_backend_elements_at_once());
        job.index = request->index;
        job.index.base = base + (int64_t)at * job.index.step;
        r->job = job;
        if (gr_launch_segment_threads(r, kernel, job.rows, BLOCK, 0) != GR_OK ||
            gr_fetch_segment_state(r, state) != GR_OK || state->bad)
            break;
    }
    return r->error->status;
}

/* Checks the request's ids or offsets. `memory` is for a state and the offsets of sorted ids. */
static gr_status check(gr_segment_run *r, void *memory, gr_segment_state *state, uint64_t *first)
{
    const gr_groups_request *request = r->request;
    gr_segment_job job = {.segments = request->segments, .columns = 1, .state = memory};
    if (request->by_offsets || request->sorted == GR_SORTED) {
        job.index = request->index;
        job.rows = request->rows;
        job.by_offsets = request->by_offsets;
        job.offsets = (uint64_t *)(void *)(job.state + 1);
        r->job = job;
        return gr_launch_segment_bounds(r) == GR_OK ? gr_fetch_segment_state(r, state)
                                                    : r->error->status;
    }
    /* Without memory for words, segment_atomics only checks ids. All elements are the same zero. */
    job.values.base = job.state->hot_id;
    job.values.parts = 1;
    job.load = GR_LOAD_u64;
    return launch_by_pieces(r, "segment_atomics", job, state, first);
}

gr_status gr_check_index(const gr_groups_request *request, gr_groups_outcome *outcome,
                         gr_error *error)
{
    gr_segment_run r = {.request = request, .outcome = outcome, .error = error};
    gr_segment_state state = {0};
    bool is_sorted = !request->by_offsets && request->sorted == GR_SORTED;
    size_t offsets = is_sorted ? (request->segments + 1) * sizeof(uint64_t) : 0;
    uint64_t first = 0;
    gr_arena arena = {.zeroed = sizeof state};
    if (is_sorted && request->segments > SIZE_MAX / 64)
        return gr_fail(error, GR_NO_MEMORY, "there is no memory for all sums");
    gr_arena_take(&arena, sizeof state + offsets, 1);
    r.sms = gr_facts_of(request->device)->sms;
    if (gr_arena_open(&arena, request->device, request->stream, error) == GR_OK &&
        check(&r, (void *)arena.base, &state, &first) == GR_OK &&
        gr_report_index(&r, &state, first) == GR_OK)
        gr_record_time(request->times, GR_AT_SUMMED, request->stream, error);
    gr_arena_close(&arena);
    return error->status;
}

gr_status gr_largest_id(const gr_index *ids, uint64_t count, int device, void *stream,
                        int64_t *largest, gr_error *error)
{
    gr_groups_request request = {.index = *ids, .rows = count, .device = device, .stream = stream};
    gr_groups_outcome outcome = {0};
    gr_segment_state state = {0};
    gr_arena arena = {.zeroed = sizeof state};
    uint64_t first;
    gr_segment_run r = {.request = &request, .outcome = &outcome, .error = error};
    gr_arena_take(&arena, 1, sizeof state);
    if (gr_wake(device, NULL, error) == GR_OK &&
        gr_arena_open(&arena, device, stream, error) == GR_OK) {
        gr_segment_job job = {.state = (void *)arena.base};
        r.sms = gr_facts_of(device)->sms;
        launch_by_pieces(&r, "segment_largest", job, &state, &first);
    }
    *largest = (int64_t)(state.largest ^ (uint64_t)1 << 63);
    gr_arena_close(&arena);
    return error->status;
}
