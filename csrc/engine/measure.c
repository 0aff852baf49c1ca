/* gr_measure: how long a strategy's launches take on data that lies on the device, without Python,
 * the copies or the fetching of the result. */
#include "engine/launch.h"
#include "engine/staging.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    const gr_request *request;
    const gr_plan *plan;
    gr_workspace *workspace;
    char *data;
    size_t stride; /* bytes from one copy of the input to the next */
    unsigned copies;
    gr_error *error;
} gr_round;

/* One sum of each copy. */
static int launch_round(void *context)
{
    gr_round *round = context;
    gr_reduced reduced;
    for (unsigned copy = 0; copy < round->copies; copy++)
        if (gr_reduce(round->request, *round->plan, round->data + copy * round->stride,
                      round->request->n, round->workspace, round->workspace->stream, NULL, &reduced,
                      round->error) != GR_OK)
            break;
    return (int)round->error->status;
}

static gr_status fill_copies(const gr_request *request, const gr_round *round, gr_error *error)
{
    size_t bytes = request->n * gr_load_size(request->load);
    cudaStream_t stream = round->workspace->stream;

    error->status = GR_OK;
    if (gr_copy_to_device(request->device, round->data, request->data, bytes, stream, error) !=
        GR_OK)
        return error->status;
    for (unsigned copy = 1; copy < round->copies; copy++)
        TRY(cudaMemcpyAsync(round->data + copy * round->stride, round->data, bytes,
                            cudaMemcpyDeviceToDevice, stream));
    TRY(cudaStreamSynchronize(stream));
done:
    return error->status;
}

static gr_status measure_in(gr_workspace *workspace, const gr_request *request,
                            const gr_measurement *how, double *ms, gr_outcome *outcome,
                            gr_error *error)
{
    size_t element = gr_load_size(request->load);
    gr_plan plan;
    gr_buffer buffer = {NULL, 0};
    /* Copies start on 512-byte boundaries, plus the offset that was asked for. */
    size_t stride = (request->n * element + how->offset * element + 511) / 512 * 512;
    size_t bytes = gr_view_of(request) ? 0 : stride * how->copies;
    gr_round round = {request, &plan, workspace, NULL, stride, how->copies, error};

    if (gr_plan_first(request, request->n, &plan, error) != GR_OK ||
        gr_make_room(request, &plan, request->n, workspace, error) != GR_OK ||
        gr_reserve(&buffer, bytes, error) != GR_OK)
        goto done;
    if (bytes) {
        round.data = (char *)buffer.data + how->offset * element;
        if (fill_copies(request, &round, error) != GR_OK)
            goto done;
    }
    outcome->block = plan.block;
    outcome->grid = plan.grid;
    cudaError_t replayed =
        gr_backend_replay(workspace->stream, launch_round, &round, how->warmups, how->repeats, ms);
    if (error->status == GR_OK)
        TRY(replayed);
    for (unsigned i = 0; i < how->repeats; i++)
        ms[i] /= how->copies;
done:
    (void)cudaFree(buffer.data);
    return error->status;
}

gr_status gr_measure(gr_request *request, int choose, const gr_measurement *how, double *ms,
                     gr_outcome *outcome, gr_error *error)
{
    gr_workspace *workspace;

    memset(outcome, 0, sizeof *outcome);
    if (gr_open_workspace(request->device, &workspace, error) != GR_OK)
        return error->status;
    if (choose)
        gr_choose(request);
    gr_shape_exact(request);
    if (gr_check_request(request, error) == GR_OK)
        measure_in(workspace, request, how, ms, outcome, error);
    gr_close_workspace(workspace, error->status == GR_CUDA_ERROR);
    return error->status;
}
