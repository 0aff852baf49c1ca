/* Launches the kernels of a sum along axes. */
#include "engine/axis_plan.h"
#include "engine/times.h"

#include "threads/interrupts.h"
#include "transfer/staging.h"

#include <stdbool.h>
#include <string.h>

gr_status gr_launch_axis(const gr_axis_plan *p, void *partial, uint64_t *words,
                         gr_axis_outcome *outcome, gr_error *error)
{
    gr_matrix matrix = p->matrix;
    gr_layout layout = p->layout;
    gr_sums sums = partial ? (gr_sums){.base = partial, .is_partial = 1} : p->sums;
    unsigned teams = p->teams, shares = p->shares, fold = p->fold, tail = p->tail, team = p->team;
    unsigned per_lane = p->per_lane, tile_bytes = p->tile_bytes, lanes = p->lanes;
    size_t level_shares = p->level_shares;
    size_t count = p->sum_count, terms = p->terms;
    void *of_columns[] = {&matrix, &sums, &teams, &shares, &fold, &tail};
    void *of_tiles[] = {&matrix, &sums, &per_lane, &tile_bytes};
    void *of_rows[] = {&matrix, &sums, &shares};
    void *of_layout[] = {&layout, &sums, &count, &terms, &team, &shares, &partial};
    void *of_levels[] = {&layout, &sums, &count, &terms, &lanes, &level_shares, &words};
    void **arguments = lanes      ? of_levels
                       : team     ? of_layout
                       : teams    ? of_columns
                       : per_lane ? of_tiles
                                  : of_rows;
    size_t sizes[] = {p->shared_bytes, gr_facts_of(p->request->device)->shared_bytes};
    cudaLaunchConfig_t config;

    error->status = GR_OK;
    if (sizes[0] > 48 * 1024)
        TRY(cudaFuncSetAttribute(p->kernel->entry, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 (int)sizes[1]));
    memset(&config, 0, sizeof config);
    config.gridDim = (dim3){(unsigned)p->grid, 1, 1};
    config.blockDim = (dim3){p->block, 1, 1};
    config.dynamicSmemBytes = p->shared_bytes;
    config.stream = p->request->stream;
    TRY(cudaLaunchKernelExC(&config, p->kernel->entry, arguments));
    if (outcome->launches++ == 0) {
        outcome->strategy = (int)(p->strategy - gr_strategy_at(0));
        outcome->block = p->block;
        outcome->grid = (unsigned)p->grid;
    }
done:
    return error->status;
}

/* Device memory that a call needs besides: sums of shares, words of shares, and marks of sums that
 * are not proven. */
typedef struct {
    void *partial;
    uint64_t *zeroed; /* the words; then whether there is a mark, and a bit for each sum */
} scratch;

/* `last`: the launch for sums that are not proven, if there may be any. */
static gr_status allocate(gr_axis_plan *plan, const gr_axis_plan *last, scratch *needed,
                          gr_error *error)
{
    gr_acc acc = plan->request->acc;
    cudaStream_t stream = plan->request->stream;
    int device = plan->request->device;
    size_t words = last ? last->words : plan->words;
    size_t bytes = words * sizeof(uint64_t);
    if (last)
        bytes += (plan->sum_count / 32 + 2) * sizeof(unsigned);
    error->status = GR_OK;
    if (plan->shares > 1 &&
        gr_allocate(device, plan->sum_count * plan->shares * gr_axis_acc_size(acc), stream,
                    &needed->partial, error) != GR_OK)
        return error->status;
    if (bytes) {
        if (gr_allocate(device, bytes, stream, (void **)&needed->zeroed, error) != GR_OK)
            return error->status;
        TRY(cudaMemsetAsync(needed->zeroed, 0, bytes, stream));
    }
    if (last) {
        plan->sums.any_unproven = (unsigned *)(needed->zeroed + words);
        plan->sums.unproven = plan->sums.any_unproven + 1;
    }
done:
    return error->status;
}

static gr_status run(const gr_axis_request *request, gr_axis_outcome *outcome, gr_error *error)
{
    gr_axis_plan plan, next, last;
    scratch needed = {NULL, NULL};

    memset(outcome, 0, sizeof *outcome);
    if (gr_plan_axis(request, &plan, error) != GR_OK)
        return error->status;
    bool has_last = gr_acc_is_proven(request->acc) && !plan.lanes;
    if (has_last && gr_plan_levels(&plan, &last, error) != GR_OK)
        return error->status;
    if (allocate(&plan, has_last ? &last : NULL, &needed, error) == GR_OK)
        gr_launch_axis(&plan, needed.partial, needed.zeroed, outcome, error);
    if (error->status == GR_OK && needed.partial &&
        gr_plan_shares(&plan, needed.partial, &next, error) == GR_OK)
        gr_launch_axis(&next, NULL, NULL, outcome, error);
    if (error->status == GR_OK && has_last) {
        last.sums.any_unproven = plan.sums.any_unproven;
        last.sums.unproven = plan.sums.unproven;
        gr_launch_axis(&last, NULL, needed.zeroed, outcome, error);
    }
    if (needed.partial)
        (void)cudaFreeAsync(needed.partial, request->stream);
    if (needed.zeroed)
        (void)cudaFreeAsync(needed.zeroed, request->stream);
    return error->status;
}

gr_status gr_sum_axis(const gr_axis_request *request, gr_axis_outcome *outcome, gr_error *error)
{
    double init_ms;
    if (gr_wake(request->device, &init_ms, error) != GR_OK ||
        gr_begin_piece(request->times, error) != GR_OK ||
        gr_record_time(request->times, GR_AT_COPIED, request->stream, error) != GR_OK ||
        run(request, outcome, error) != GR_OK)
        return error->status;
    return gr_record_time(request->times, GR_AT_SUMMED, request->stream, error);
}

int gr_stream_is_captured(void *stream)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    cudaError_t found = cudaStreamIsCapturing(stream, &status);
    if (found != cudaSuccess)
        (void)cudaGetLastError(); /* the legacy stream, while another one is captured */
    return found != cudaSuccess || status != cudaStreamCaptureStatusNone;
}

/* --- arrays in host memory ---------------------------------------------------------------------
 */

/* The device memory for the array, its mask and its sums: one after the other. */
static size_t rounded(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

static gr_status copy_and_sum(gr_axis_request *request, gr_span in, gr_span mask, gr_span out,
                              char *memory, gr_axis_outcome *outcome, gr_error *error)
{
    gr_axes *axes = &request->axes;
    char *mask_at = memory + rounded(in.size), *out_at = mask_at + rounded(mask.size);
    const unsigned char *host = axes->in, *host_mask = axes->mask;
    axes->in = (unsigned char *)memory + (host - (unsigned char *)in.base);
    if (host_mask)
        axes->mask = (unsigned char *)mask_at + (host_mask - (unsigned char *)mask.base);
    axes->out = (unsigned char *)out_at + (axes->out - (unsigned char *)out.base);

    if (gr_begin_piece(request->times, error) != GR_OK ||
        gr_record_time(request->times, GR_AT_START, request->stream, error) != GR_OK ||
        (in.size && gr_copy_to_device(request->device, memory, in.base, in.size, request->stream,
                                      error) != GR_OK) ||
        (mask.size && gr_copy_to_device(request->device, mask_at, mask.base, mask.size,
                                        request->stream, error) != GR_OK) ||
        gr_interrupted() ||
        gr_record_time(request->times, GR_AT_COPIED, request->stream, error) != GR_OK ||
        run(request, outcome, error) != GR_OK ||
        gr_record_time(request->times, GR_AT_SUMMED, request->stream, error) != GR_OK)
        return error->status;
    TRY(cudaMemcpyAsync(out.base, out_at, out.size, cudaMemcpyDeviceToHost, request->stream));
    if (gr_record_time(request->times, GR_AT_RETURNED, request->stream, error) == GR_OK)
        TRY(cudaStreamSynchronize(request->stream));
done:
    return error->status;
}

gr_status gr_sum_axis_of_host(gr_axis_request *request, gr_span in, gr_span mask, gr_span out,
                              gr_axis_outcome *outcome, gr_error *error)
{
    gr_workspace *workspace;
    double init_ms;
    void *memory = NULL;
    if (gr_open_workspace(request->device, &workspace, &init_ms, error) != GR_OK)
        return error->status;
    request->stream = gr_workspace_stream(workspace);
    if (gr_allocate(request->device, rounded(in.size) + rounded(mask.size) + rounded(out.size),
                    request->stream, &memory, error) == GR_OK) {
        copy_and_sum(request, in, mask, out, memory, outcome, error);
        (void)cudaFreeAsync(memory, request->stream);
    }
    gr_close_workspace(workspace, error->status == GR_OK && !gr_interrupted());
    return error->status;
}
