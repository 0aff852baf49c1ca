/* Launches the kernels of sums by segment.
 *
 * Offsets: segment_bounds checks them. segment_rows, segment_packs or segment_lanes adds up, and
 * segment_tasks long segments.
 *
 * Few ids that are not checked: segment_few or segment_few_packs.
 *
 * Sorted ids: segment_runs adds up single values. segment_join adds up segments that several warps
 * share, and segment_digits sums whose rounding is not proven. segment_put copies the sums to the
 * caller's array. For several columns, initial numbers, and exact sums of float64, segment_bounds
 * makes offsets of the ids, and the kernels for offsets follow.
 *
 * Unsorted ids: rows of many bytes are put in order by segment_count, segment_claim and
 * segment_order, or by segment_order_few, and the kernels for offsets follow. For other rows,
 * segment_range finds the exponents, and segment_sample frequent ids. segment_shared or
 * segment_atomics adds up integers, and segment_round rounds their sums. segment_zeros sets the
 * signs of zeros that rows are added to in place.
 *
 * Only the device knows whether ids are sorted. So the host launches the kernels for both, without
 * waiting, and those that have nothing to do return at once.
 *
 * Digits of sums: as for unsorted ids. With offsets, each element's segment is found by a search.
 */
#include "engine/groups.h"

#include "engine/axis_plan.h"
#include "engine/segment_launch.h"
#include "engine/times.h"
#include "exact/device_layout.h"

#include <string.h>

enum {
    BLOCK = GR_DEFAULT_BLOCK,
    CLUSTER_THREADS = GR_CLUSTER_BLOCKS * BLOCK * 2,
    SAMPLED_ROWS = 1 << 20 /* fewer ids are not sampled for frequent ones */
};

typedef gr_segment_run run;
typedef gr_segment_step step;

/* Adds up elements as integers, in one pass over a range of segments. */
static gr_status add_words(run *r)
{
    const gr_groups_request *request = r->request;
    gr_load load = (gr_load)request->load;
    size_t lanes = 1;
    while (lanes < request->columns && lanes < GR_WARP)
        lanes *= 2;
    size_t per_block = 8 * BLOCK * 2 / lanes; /* rows whose loads are in flight together */
    size_t hot = GR_HOT_SLOTS * 8 + 2 * 2 * GR_HOT_SLOTS * GR_HOT_COPIES * sizeof(unsigned);
    bool samples = r->request->rows >= SAMPLED_ROWS && r->request->columns == 1;
    step global = {"segment_atomics", load,
                   GR_ACC_u64,        gr_least(gr_ceil_div(request->rows, per_block), r->sms * 4),
                   r->tiles,          2 * BLOCK,
                   samples ? hot : 0};
    if (gr_launch_segment_step(r, global) != GR_OK || !r->job.shared_words)
        return r->error->status;
    size_t bytes = r->job.shared_words * 8;
    size_t rows = GR_SEGMENT_THREADS / lanes;
    return gr_launch_segment_step(r, (step){"segment_shared", load, GR_ACC_u64,
                                            gr_least(gr_ceil_div(request->rows, 8 * rows), r->sms),
                                            1, GR_SEGMENT_THREADS, bytes});
}

/* Launches all passes over ranges of segments. A second attempt is seldom needed. If the host must
 * launch it before it knows, the attempt has as few passes as possible: they usually return at
 * once. */
static gr_status attempt(run *r, int number)
{
    const gr_groups_request *request = r->request;
    size_t sums = request->segments * request->columns;
    r->job.attempt = number;
    if (number > 0 && !request->check) {
        r->job.passes = r->fewest_passes;
        r->job.cached_words = SIZE_MAX;
    }
    r->job.pass = 0;
    if (gr_launch_segment_threads(r, "segment_clear", sums / 2 + 1, BLOCK, 0) != GR_OK)
        return r->error->status;
    for (; r->job.pass < r->job.passes; r->job.pass++)
        if ((request->rows && add_words(r) != GR_OK) ||
            gr_launch_segment_threads(r, "segment_round", sums, BLOCK, 0) != GR_OK)
            return r->error->status;
    return GR_OK;
}

/* Launches attempts number `first` to `last`, and then segment_zeros if rows are added in place. */
static gr_status attempts(run *r, int first, int last)
{
    const gr_groups_request *request = r->request;
    for (int number = first; number <= last; number++)
        if (attempt(r, number) != GR_OK)
            return r->error->status;
    if (request->in_place && request->rows && gr_adds_floats(r))
        gr_launch_segment_threads(r, "segment_zeros", request->rows, BLOCK, 0);
    return r->error->status;
}

/* Finds frequent ids, and the exponents of the values. Exponents of a sample, if there is one, are
 * found first; if they suffice, the second launch returns at once. */
static gr_status find_range(run *r)
{
    const gr_groups_request *request = r->request;
    size_t values = request->rows * request->columns;
    if (request->rows >= SAMPLED_ROWS && request->columns == 1 &&
        gr_launch_segment_threads(r, "segment_sample", 1, GR_SEGMENT_THREADS,
                                  GR_SAMPLE_SLOTS * 12) != GR_OK)
        return r->error->status;
    for (int in_sample = r->job.sampled > 1; gr_adds_floats(r) && values && in_sample >= 0;
         in_sample--) {
        size_t read = in_sample ? values / r->job.sampled : values;
        step range = {"segment_range",
                      (gr_load)request->load,
                      GR_ACC_u64,
                      gr_least(gr_ceil_div(read, BLOCK * 8), r->sms * 8),
                      1,
                      BLOCK,
                      0};
        r->job.in_sample = in_sample;
        if (gr_launch_segment_step(r, range) != GR_OK)
            return r->error->status;
    }
    return GR_OK;
}

/* The element type that segment_join is compiled for: partial sums. */
static gr_load merged(gr_acc acc)
{
    return acc == GR_ACC_u64                            ? GR_LOAD_u64
           : acc == GR_ACC_f64 || acc == GR_ACC_proven3 ? GR_LOAD_f64
                                                        : GR_LOAD_f32;
}

/* The shared memory in which a block adds up a sum again: digits, and the bounds of a segment. */
static const size_t bytes_again = (GR_LEVELS_WORDS + 2) * sizeof(uint64_t);

/* Adds up unproven sums again. */
static gr_status add_digits(run *r)
{
    if (!gr_acc_is_proven(r->request->acc))
        return GR_OK;
    return gr_launch_segment_step(r, (step){"segment_digits", GR_LOAD_u64, GR_ACC_u64, r->sms * 8,
                                            1, BLOCK / 2, bytes_again});
}

/* Adds up rows of sorted ids, in one pass over ids and values. */
static gr_status add_runs(run *r)
{
    const gr_groups_request *request = r->request;
    gr_error *error = r->error;
    gr_acc acc = request->acc;
    size_t warps = gr_ceil_div(request->rows, r->job.task_rows), per_block = BLOCK / GR_WARP;
    step runs = {
        "segment_runs", (gr_load)request->load, acc, gr_ceil_div(warps, per_block), 1, BLOCK, 0};
    step join = {"segment_join", merged(acc), acc, gr_ceil_div(2 * warps, per_block), 1, BLOCK, 0};
    error->status = GR_OK;
    TRY(cudaMemsetAsync(r->job.staged, 0, request->segments * request->sums.bytes,
                        request->stream));
    if (gr_launch_segment_step(r, runs) == GR_OK && gr_launch_segment_step(r, join) == GR_OK &&
        add_digits(r) == GR_OK)
        gr_launch_segment_threads(r, "segment_put", request->segments, BLOCK, 0);
done:
    return error->status;
}

/* Sorts the row numbers by segment. */
static gr_status order_rows(run *r)
{
    const gr_groups_request *request = r->request;
    unsigned block = r->job.orders_in_shared ? GR_SEGMENT_THREADS : BLOCK;
    size_t bytes = r->job.orders_in_shared ? request->segments * sizeof(unsigned) : 0;
    if (r->by_cluster)
        return gr_launch_segment_threads(r, "segment_order_few", CLUSTER_THREADS, BLOCK * 2, 0);
    if (gr_launch_segment_threads(r, "segment_count", request->rows, block, bytes) == GR_OK &&
        gr_launch_segment_threads(r, "segment_claim", request->segments, BLOCK, 0) == GR_OK)
        gr_launch_segment_threads(r, "segment_order", request->rows, block, bytes);
    return r->error->status;
}

/* Adds up segments whose rows are contiguous, or whose row numbers are contiguous in `order`. */
static gr_status add_rows(run *r)
{
    const gr_groups_request *request = r->request;
    gr_load load = (gr_load)request->load;
    gr_acc acc = request->acc;
    step rows = {r->in_packs   ? "segment_packs"
                 : r->in_lanes ? "segment_lanes"
                               : "segment_rows",
                 load,
                 acc,
                 r->row_blocks,
                 r->row_tiles,
                 BLOCK,
                 0};
    size_t bytes = BLOCK * gr_axis_acc_size(acc);
    step tasks = {"segment_tasks", load, acc, r->sms * 8, 1, BLOCK, bytes};
    if (gr_acc_is_proven(acc) && bytes < bytes_again)
        tasks.shared_bytes = bytes_again;
    if (gr_launch_segment_step(r, rows) == GR_OK && request->rows > r->job.long_rows)
        gr_launch_segment_step(r, tasks);
    return r->error->status;
}

/* --- memory -----------------------------------------------------------------------------------
 */

/* Allocates scratch memory, points the job to it, and clears the part that must be zero. */
static gr_status allocate(run *r, gr_arena *arena)
{
    const gr_groups_request *request = r->request;
    gr_segment_job *job = &r->job;
    size_t sums = gr_numbered_segments(r) * request->columns;
    size_t longs = r->in_rows && !r->in_runs ? request->rows / job->long_rows : 0;
    size_t tasks = r->in_runs   ? 2 * gr_ceil_div(request->rows, job->task_rows)
                   : r->in_rows ? request->rows / job->task_rows + longs
                                : 0;
    size_t marks = r->in_rows && gr_acc_is_proven(request->acc) ? sums / 32 + 1 : 0;
    size_t counts = r->in_order ? request->segments : 0;
    size_t tiles = gr_ceil_div(request->columns, GR_WARP);
    size_t state = gr_arena_take(arena, 1, sizeof *job->state);
    size_t unproven = gr_arena_take(arena, marks, sizeof(unsigned));
    size_t arrived = gr_arena_take(arena, longs * tiles, sizeof *job->arrived);
    size_t count = gr_arena_take(arena, counts, sizeof *job->counts);
    bool has_empty = r->by_cluster && !job->by_row; /* segment_order_few skips empty segments */
    size_t cleared = gr_arena_take(arena, has_empty ? counts : 0, sizeof *job->ends);
    arena->zeroed = arena->bytes;
    size_t ends = has_empty ? cleared : gr_arena_take(arena, counts, sizeof *job->ends);
    size_t order = gr_arena_take(arena, r->in_order ? request->rows : 0, sizeof *job->order);
    bool has_places = r->in_order && !job->orders_in_shared;
    size_t places = gr_arena_take(arena, has_places ? request->rows : 0, sizeof *job->places);
    size_t owned = r->in_order && job->by_row ? request->rows : 0;
    size_t own = gr_arena_take(arena, owned, sizeof *job->own);
    size_t task = gr_arena_take(arena, tasks, sizeof *job->task);
    size_t of_long = gr_arena_take(arena, longs, sizeof *job->longs);
    size_t partial = gr_arena_take(arena, tasks * request->columns, gr_axis_acc_size(request->acc));
    /* Offsets, staged sums or words: one of them is in use at a time. */
    size_t sorted = r->in_runs        ? request->segments * request->sums.bytes
                    : job->try_sorted ? (request->segments + 1) * sizeof *job->offsets
                                      : 0;
    size_t room = r->in_words ? job->room * sizeof *job->words : 0;
    size_t shared = gr_arena_take(arena, sorted > room ? sorted : room, 1);

    if (gr_arena_open(arena, request->device, request->stream, r->error) != GR_OK)
        return r->error->status;
    char *memory = arena->base;
    job->task_room = tasks;
    job->long_room = longs;
    job->state = (gr_segment_state *)(void *)(memory + state);
    job->sums.unproven = (unsigned *)(void *)(memory + unproven);
    job->sums.any_unproven = &job->state->any_unproven;
    job->task = (gr_segment_task *)(void *)(memory + task);
    job->longs = (gr_long_segment *)(void *)(memory + of_long);
    job->partial = memory + partial;
    job->arrived = (unsigned *)(void *)(memory + arrived);
    job->words = job->offsets = (uint64_t *)(void *)(memory + shared);
    job->staged = r->in_runs ? memory + shared : NULL;
    job->counts = (unsigned *)(void *)(memory + count);
    job->ends = (unsigned *)(void *)(memory + ends);
    job->places = (unsigned *)(void *)(memory + places);
    job->own = owned ? (gr_own_segment *)(void *)(memory + own) : NULL;
    job->order = r->in_order ? (unsigned *)(void *)(memory + order) : NULL;
    return GR_OK;
}

/* Adds up few rows by one launch. */
static gr_status add_few(run *r)
{
    const gr_groups_request *request = r->request;
    size_t bytes = GR_FEW_ROOM + GR_FEW_BYTES + gr_few_marks(&r->job) * sizeof(unsigned) +
                   2 * request->rows * sizeof(unsigned);
    step few = {r->in_packs ? "segment_few_packs" : "segment_few",
                (gr_load)request->load,
                request->acc,
                gr_ceil_div(gr_numbered_segments(r), r->job.few),
                r->row_tiles,
                BLOCK,
                bytes};
    if (gr_launch_segment_step(r, few) != GR_OK)
        return r->error->status;
    return gr_record_time(request->times, GR_AT_SUMMED, request->stream, r->error);
}

/* --- plan and launches ------------------------------------------------------------------------
 */

/* Returns whether the sums are finished because the ids are sorted. Waits for the answer if many
 * passes over ranges of segments would follow, since launching idle passes takes longer. */
static bool is_done(run *r)
{
    gr_segment_state state;
    return r->in_runs && r->passes > GR_WIDE_PASSES && r->request->check &&
           gr_fetch_segment_state(r, &state) == GR_OK && !state.unsorted;
}

static gr_status add(run *r)
{
    const gr_groups_request *request = r->request;
    bool has_bounds = !r->in_runs && (r->job.try_sorted || request->by_offsets);
    if ((r->in_runs && add_runs(r) != GR_OK) ||
        (has_bounds && gr_launch_segment_bounds(r) != GR_OK) ||
        (r->in_order && order_rows(r) != GR_OK) ||
        (r->in_rows && !r->in_runs && add_rows(r) != GR_OK))
        return r->error->status;
    if (r->in_words && !is_done(r)) {
        bool may_overflow = gr_most_segment_words(r) > 2 || r->job.sampled > 1;
        int first = r->in_one_attempt ? 2 : 0;
        int last = may_overflow && !request->check && !r->in_one_attempt ? 1 : first;
        if (r->error->status != GR_OK || find_range(r) != GR_OK ||
            attempts(r, first, last) != GR_OK)
            return r->error->status;
    }
    return gr_record_time(request->times, GR_AT_SUMMED, request->stream, r->error);
}

/* Waits for the sums. Repeats them if a checked word overflowed. Reports invalid ids. */
static gr_status check(run *r)
{
    gr_segment_state state;
    if (gr_fetch_segment_state(r, &state) != GR_OK ||
        (state.overflow && !state.bad && attempts(r, 1, 1) != GR_OK))
        return r->error->status;
    return gr_report_index(r, &state, 0);
}

gr_status gr_launch_segments(const gr_groups_request *request, gr_groups_outcome *outcome,
                             gr_error *error)
{
    run r = {.request = request, .outcome = outcome, .error = error};
    gr_arena arena = {0};
    if (request->kernel)
        return gr_launch_keys(request, outcome, error);
    memset(outcome, 0, sizeof *outcome);
    if (!request->segments || !request->columns)
        return gr_check_index(request, outcome, error);
    if (gr_plan_segments(&r) == GR_OK && r.are_few)
        add_few(&r);
    else if (error->status == GR_OK && allocate(&r, &arena) == GR_OK && add(&r) == GR_OK &&
             request->check)
        check(&r);
    gr_arena_close(&arena);
    return error->status;
}
