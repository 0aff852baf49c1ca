/* Sums by segment of arrays in host memory: copies them to the device, and the sums back. */
#include "engine/internal.h"
#include "engine/segments.h"
#include "engine/times.h"
#include "threads/interrupts.h"
#include "transfer/staging.h"

static size_t rounded(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

static gr_status copy_and_sum(gr_segment_request *request, gr_span values, gr_span index,
                              gr_span out, char *memory, gr_segment_outcome *outcome,
                              gr_error *error)
{
    char *index_at = memory + rounded(values.size), *out_at = index_at + rounded(index.size);
    void *stream = request->stream;
    request->values.base = memory + ((const char *)request->values.base - (char *)values.base);
    request->index.base = index_at + ((const char *)request->index.base - (char *)index.base);
    request->out.base = out_at + ((const char *)request->out.base - (char *)out.base);
    if (gr_begin_piece(request->times, error) != GR_OK ||
        gr_record_time(request->times, GR_AT_START, stream, error) != GR_OK ||
        (values.size && gr_copy_to_device(request->device, memory, values.base, values.size, stream,
                                          error) != GR_OK) ||
        (index.size && gr_copy_to_device(request->device, index_at, index.base, index.size, stream,
                                         error) != GR_OK) ||
        gr_interrupted() || gr_record_time(request->times, GR_AT_COPIED, stream, error) != GR_OK ||
        gr_launch_segment_sums(request, outcome, error) != GR_OK)
        return error->status;
    if (out.size && !outcome->is_bad && !outcome->is_unsorted)
        TRY(cudaMemcpyAsync(out.base, out_at, out.size, cudaMemcpyDeviceToHost, stream));
    if (gr_record_time(request->times, GR_AT_RETURNED, stream, error) == GR_OK)
        TRY(cudaStreamSynchronize(stream));
done:
    return error->status;
}

gr_status gr_sum_segments_of_host(gr_segment_request *request, gr_span values, gr_span index,
                                  gr_span out, gr_segment_outcome *outcome, gr_error *error)
{
    gr_workspace *workspace;
    double init_ms;
    void *memory = NULL;
    if (gr_open_workspace(request->device, &workspace, &init_ms, error) != GR_OK)
        return error->status;
    request->stream = gr_workspace_stream(workspace);
    if (gr_allocate(request->device, rounded(values.size) + rounded(index.size) + rounded(out.size),
                    request->stream, &memory, error) == GR_OK) {
        copy_and_sum(request, values, index, out, memory, outcome, error);
        (void)cudaFreeAsync(memory, request->stream);
    }
    gr_close_workspace(workspace, error->status == GR_OK && !gr_interrupted());
    return error->status;
}
