/* gr_sum: copies an array to the device, in pieces if necessary, unless it is there already.
 * Launches the strategy until one value is left, and fetches that value. */
#include "threads/clock.h"
#include "cpu/cpu_sum.h"
#include "engine/launch.h"
#include "engine/times.h"
#include "transfer/staging.h"
#include "cpu/floating_point_mode.h"
#include "threads/interrupts.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* The smallest piece when memory is short. With smaller pieces a sum would hardly ever end. */
static const size_t MIN_PIECE = (size_t)1 << 16, ALIGNED_PIECE = 1 << 9;

/* The kernel itself, or a copy, writes the result to a slot in pinned memory, which the host polls:
 * that is faster than waiting for the stream. The slot starts with this unlikely bit pattern. If a
 * sum happens to be the pattern, the stream's completion ends the wait. */
static const uint64_t NOT_YET = 0x7ff4a5c3e1b2d697u;

static int has_come(const gr_workspace *workspace, size_t bytes)
{
    for (size_t i = 1; i < bytes / sizeof *workspace->slot; i++)
        if (__atomic_load_n(&workspace->slot[i].u64, __ATOMIC_ACQUIRE) == NOT_YET)
            return 0;
    return __atomic_load_n(&workspace->slot->u64, __ATOMIC_ACQUIRE) != NOT_YET;
}

/* Polls; occasionally checks whether the stream finished or failed. The first check comes after
 * small sums have finished, because polling stops while the driver answers. During sums that take
 * milliseconds, yields the processor. */
static gr_status wait_for_result(const gr_workspace *workspace, size_t bytes, cudaStream_t stream,
                                 gr_error *error)
{
    enum { LOOKS = 500 };
    static const double ASKS_EACH_MS = 0.05, YIELDS_AFTER_MS = 0.3;
    double start = gr_now_ms(), asked = start;

    error->status = GR_OK;
    for (;;) {
        for (unsigned look = 0; look < LOOKS; look++)
            if (has_come(workspace, bytes))
                return GR_OK;
        double now = gr_now_ms();
        if (now - asked > ASKS_EACH_MS) {
            cudaError_t state = cudaStreamQuery(stream);
            if (state == cudaSuccess)
                return GR_OK;
            if (state != cudaErrorNotReady)
                TRY(state);
            (void)cudaGetLastError(); /* clears "not ready", or a later call would report it */
            asked = now;
        }
        if (now - start > YIELDS_AFTER_MS)
            sched_yield();
    }
done:
    return error->status;
}

static void add_value(gr_acc acc, gr_value *total, gr_value value)
{
    gr_arithmetic before = gr_begin_plain();
    switch (acc) {
    case GR_ACC_u32: total->u32 += value.u32; break;
    case GR_ACC_u64: total->u64 += value.u64; break;
    case GR_ACC_f32: total->f32 += value.f32; break;
    default: total->f64 += value.f64; break;
    }
    gr_end_plain(before);
}

static void expect_result(gr_workspace *workspace, size_t bytes)
{
    workspace->slot->u64 = NOT_YET;
    for (size_t i = 1; i < bytes / sizeof *workspace->slot; i++)
        workspace->slot[i].u64 = NOT_YET;
}

static void add_result(const gr_request *request, const gr_workspace *workspace,
                       gr_outcome *outcome)
{
    const gr_value *slot = (const gr_value *)workspace->slot;
    if (!(gr_strategy_at(request->strategy)->traits & DIGITS)) {
        add_value(request->acc, &outcome->value, *slot);
        return;
    }
    gr_exact_add_digits(&outcome->exact, (const int64_t *)slot, GR_EXACT_DIGITS, 0);
    outcome->exact.flags |= (uint32_t)slot[GR_EXACT_DIGITS].u64;
}

/* Copies the block sums to the host and adds them up there. */
static gr_status add_on_host(const gr_request *request, const gr_reduced *reduced,
                             cudaStream_t stream, gr_outcome *outcome, gr_error *error)
{
    size_t bytes = reduced->count * gr_acc_size(request->acc);
    gr_value sums[2];
    void *partial = malloc(bytes);

    if (!partial)
        return gr_fail(error, GR_NO_MEMORY, "no host memory for %u block sums", reduced->count);
    error->status = GR_OK;
    TRY(cudaMemcpyAsync(partial, reduced->values, bytes, cudaMemcpyDeviceToHost, stream));
    if (gr_record_time(request->times, GR_AT_RETURNED, stream, error) != GR_OK)
        goto done;
    TRY(cudaStreamSynchronize(stream));
    gr_cpu_sum(partial, reduced->count, gr_load_of_acc(request->acc), request->acc, 1, 1, sums);
    add_value(request->acc, &outcome->value, sums[0]);
done:
    free(partial);
    return error->status;
}

/* Waits for the result and adds it to the outcome. Copies it from the device first, unless the last
 * kernel writes it to the slot. */
static gr_status fetch(const gr_request *request, const gr_reduced *reduced, cudaStream_t stream,
                       gr_workspace *workspace, gr_outcome *outcome, gr_error *error)
{
    size_t result_bytes = gr_result_bytes(request);
    if (reduced->count > 1)
        return add_on_host(request, reduced, stream, outcome, error);
    error->status = GR_OK;
    if (reduced->values != (void *)workspace->slot) {
        TRY(cudaMemcpyAsync((void *)workspace->slot, reduced->values, result_bytes,
                            cudaMemcpyDeviceToHost, stream));
        if (gr_record_time(request->times, GR_AT_RETURNED, stream, error) != GR_OK)
            return error->status;
    }
    if (wait_for_result(workspace, result_bytes, stream, error) == GR_OK)
        add_result(request, workspace, outcome);
done:
    return error->status;
}

static cudaStream_t stream_of(const gr_workspace *workspace)
{
    void *stream = workspace->progress.request.stream;
    return stream ? (cudaStream_t)stream : workspace->stream;
}

/* Returns the address of the present piece. A view's pieces have none: they are described. */
static const void *data_of_piece(gr_progress *progress)
{
    const gr_request *request = &progress->request;
    if (request->load == GR_LOAD_samples)
        progress->samples.first = progress->at;
    else if (request->load == GR_LOAD_any)
        progress->elements.first = progress->at;
    else
        return (const char *)request->data + progress->at * gr_load_size(request->load);
    return request->data;
}

/* Copies a piece of the array unless it is on the device, and puts the launches on the stream. */
static gr_status begin_piece(gr_workspace *workspace, gr_outcome *outcome, gr_error *error)
{
    gr_progress *progress = &workspace->progress;
    const gr_request *request = &progress->request;
    cudaStream_t stream = stream_of(workspace);
    size_t n = gr_least(progress->piece, request->n - progress->at);
    const void *data = data_of_piece(progress);

    if ((n < progress->piece && gr_plan_first(request, n, &progress->plan, error) != GR_OK) ||
        gr_begin_piece(request->times, error) != GR_OK)
        return error->status;
    if (!request->on_device) {
        size_t bytes = n * gr_load_size(request->load);
        if (gr_record_time(request->times, GR_AT_START, stream, error) != GR_OK ||
            gr_copy_to_device(request->device, workspace->in.data, data, bytes, stream, error) !=
                GR_OK ||
            gr_interrupted())
            return error->status;
        data = workspace->in.data;
    }
    /* A user's kernel writes to memory of exactly the size of its result. */
    void *last = gr_is_added_strategy(request->strategy) ? NULL : (void *)workspace->slot;
    expect_result(workspace, gr_result_bytes(request));
    if (gr_record_time(request->times, GR_AT_COPIED, stream, error) != GR_OK ||
        gr_reduce(request, progress->plan, data, n, workspace, stream, last, &progress->reduced,
                  error) != GR_OK ||
        gr_record_time(request->times, GR_AT_SUMMED, stream, error) != GR_OK)
        return error->status;
    outcome->launches += progress->reduced.launches;
    return GR_OK;
}

/* Sets *piece to the number of elements of a host array that fit on the device at a time. Each
 * element takes room for itself, for the strategy's scratch memory and, at worst, for its share of
 * two sums per smallest block. */
static gr_status piece_size(const gr_request *request, int chosen, const gr_workspace *workspace,
                            size_t *piece, gr_error *error)
{
    size_t free_bytes = 0, total_bytes = 0;
    unsigned traits = gr_strategy_at(request->strategy)->traits;
    size_t load = gr_load_size(request->load), per_element = load + 1;
    size_t most = gr_max_elements(request);

    error->status = GR_OK;
    if (traits & WORK_ELEMENTS)
        per_element += gr_acc_size(request->acc);
    *piece = request->n;
    /* If the caller has not named a strategy, which implies one launch of the whole array, pieces
     * fit into the memory that is kept between calls. Allocating and freeing more takes time. */
    if (chosen && *piece > gr_kept_bytes(request->device) / load)
        *piece = gr_kept_bytes(request->device) / load / ALIGNED_PIECE * ALIGNED_PIECE;
    /* cudaMemGetInfo takes long. Small arrays skip it: they find room, or fail cleanly. */
    if (*piece > MIN_PIECE && workspace->in.bytes < *piece * load) {
        TRY(cudaMemGetInfo(&free_bytes, &total_bytes));
        size_t room = (free_bytes - free_bytes / 16) / per_element;
        *piece = *piece < room ? *piece : room;
        *piece = *piece < MIN_PIECE ? MIN_PIECE : *piece;
    }
    *piece = *piece < most ? *piece : most;
done:
    return error->status;
}

/* Plans the largest piece that fits into memory. An allocation may still fail, since other programs
 * use the device too. Then this first frees the memory kept for other calls, and next halves the
 * piece until it fits. */
static gr_status find_room(const gr_request *request, int chosen, gr_workspace *workspace,
                           size_t *piece, gr_plan *plan, gr_error *error)
{
    int released = 0;

    *piece = request->n;
    if (gr_view_of(request))
        *piece = gr_least(*piece, gr_backend_elements_at_once());
    if (!request->on_device && piece_size(request, chosen, workspace, piece, error) != GR_OK)
        return error->status;
    for (;;) {
        if (gr_plan_first(request, *piece, plan, error) != GR_OK)
            return error->status;
        size_t bytes = request->on_device ? 0 : *piece * gr_load_size(request->load);
        if (gr_reserve(&workspace->in, bytes, error) == GR_OK &&
            gr_make_room(request, plan, *piece, workspace, error) == GR_OK)
            return GR_OK;
        if (error->status != GR_NO_MEMORY)
            return error->status;
        if (!released) {
            gr_release(); /* changes the thread's current device */
            if (gr_wake(request->device, NULL, error) != GR_OK)
                return error->status;
            gr_shrink(workspace, 0);
            released = 1;
            if (!request->on_device &&
                piece_size(request, chosen, workspace, piece, error) != GR_OK)
                return error->status;
        } else if (request->on_device || *piece / 2 < MIN_PIECE) {
            return error->status;
        } else {
            *piece /= 2;
        }
    }
}

static gr_finish finish_used(const gr_request *request)
{
    if (gr_strategy_at(request->strategy)->traits & FINISHES)
        return GR_FINISH_SINGLE;
    return request->finish == GR_FINISH_DEFAULT ? GR_FINISH_RELAUNCH : request->finish;
}

static void start_progress(gr_progress *progress, const gr_request *request)
{
    progress->request = *request;
    progress->at = 0;
    if (request->load == GR_LOAD_samples) {
        progress->samples = *request->samples;
        progress->request.samples = &progress->samples;
    } else if (request->load == GR_LOAD_any) {
        progress->elements = *request->elements;
        progress->request.elements = &progress->elements;
    }
}

gr_status gr_begin_sum(gr_workspace *workspace, gr_request *request, gr_outcome *outcome,
                       gr_error *error)
{
    gr_progress *progress = &workspace->progress;
    memset(outcome, 0, sizeof *outcome);
    if (gr_wake(request->device, &outcome->init_ms, error) != GR_OK)
        return error->status;
    if (request->choose)
        gr_choose(request);
    gr_shape_exact(request);
    outcome->finish = finish_used(request);
    outcome->exact.count = request->n;
    start_progress(progress, request);
    if (gr_check_request(request, error) != GR_OK || request->n == 0)
        return error->status;
    int chosen = request->choose || gr_strategy_at(request->strategy)->traits & DIGITS;
    if (find_room(request, chosen, workspace, &progress->piece, &progress->plan, error) != GR_OK)
        return error->status;
    outcome->block = progress->plan.block;
    outcome->grid = progress->plan.grid;
    return begin_piece(workspace, outcome, error);
}

gr_status gr_end_sum(gr_workspace *workspace, gr_outcome *outcome, gr_error *error)
{
    gr_progress *progress = &workspace->progress;
    const gr_request *request = &progress->request;

    error->status = GR_OK;
    while (progress->at < request->n && !gr_interrupted()) {
        if (gr_wake(request->device, NULL, error) != GR_OK ||
            fetch(request, &progress->reduced, stream_of(workspace), workspace, outcome, error) !=
                GR_OK)
            return error->status;
        progress->at += progress->piece;
        if (progress->at < request->n && !gr_interrupted() &&
            begin_piece(workspace, outcome, error) != GR_OK)
            return error->status;
    }
    return GR_OK;
}

gr_status gr_sum(gr_request *request, gr_outcome *outcome, gr_error *error)
{
    gr_workspace *workspace;
    double init_ms;

    memset(outcome, 0, sizeof *outcome);
    if (gr_open_workspace(request->device, &workspace, &init_ms, error) != GR_OK)
        return error->status;
    if (gr_begin_sum(workspace, request, outcome, error) == GR_OK)
        gr_end_sum(workspace, outcome, error);
    outcome->init_ms += init_ms;
    gr_close_workspace(workspace, error->status == GR_OK);
    return error->status;
}
