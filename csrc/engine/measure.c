/* gr_measure: times a strategy's launches on data that is on the device. The times exclude Python,
 * copies to the device, and fetching the result. */
#include "engine/launch.h"
#include "transfer/staging.h"
#include "threads/interrupts.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    const gr_request *request;
    const gr_plan *plan;
    gr_workspace *workspace;
    char *data;
    size_t bytes;  /* of one copy of the input */
    size_t stride; /* bytes from one copy of the input to the next */
    unsigned copies;
    /* A word that a memset writes before each sum, or NULL. No kernel starts before the memset has
     * ended, so the sums do not overlap. */
    void *between;
    int only_between; /* launch only the memsets, to time them */
    int load_only;
    gr_error *error;
} gr_round;

/* Launches one sum of each copy, and the memsets between the sums. */
static int launch_round(void *context)
{
    gr_round *round = context;
    gr_error *error = round->error;
    gr_reduced reduced;
    for (unsigned copy = 0; copy < round->copies && error->status == GR_OK; copy++) {
        if (round->between)
            TRY(cudaMemsetAsync(round->between, 0, sizeof(unsigned), round->workspace->stream));
        char *data = round->data + copy * round->stride;
        if (round->only_between)
            continue;
        if (round->load_only)
            TRY(gr_backend_load_only(data, round->bytes, round->workspace->out[0].data,
                                     round->workspace->stream));
        else
            gr_reduce(round->request, *round->plan, data, round->request->n, round->workspace,
                      round->workspace->stream, NULL, &reduced, error);
    }
done:
    return (int)error->status;
}

/* Returns how many rounds over the copies one run consists of. Small copies need several rounds, or
 * starting the run would take a large part of the measured time. */
static unsigned rounds_of(unsigned copies, size_t bytes)
{
    static const size_t LAUNCHES = 16, BYTES = (size_t)2 << 30;
    size_t launches = gr_least(BYTES / (bytes ? bytes : 1), LAUNCHES);
    return launches > copies ? (unsigned)((launches + copies - 1) / copies) : 1;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Measures the median time of the memsets between the sums. */
static cudaError_t time_between(gr_round *round, unsigned in_a_row, double *ms)
{
    enum { REPEATS = 15, MANY = 1000 }; /* the mean of many varies little */
    double times[REPEATS];
    unsigned repeats = in_a_row * round->copies > MANY ? 3 : REPEATS;
    round->only_between = 1;
    cudaError_t state = gr_backend_replay(round->workspace->stream, launch_round, round, in_a_row,
                                          2, repeats, times);
    round->only_between = 0;
    if (state == cudaSuccess) {
        qsort(times, repeats, sizeof *times, ascending);
        *ms = times[repeats / 2];
    }
    return state;
}

static gr_status fill_copies(const gr_request *request, const gr_round *round, gr_error *error)
{
    size_t bytes = round->bytes;
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
    /* Copies start on 512-byte boundaries, plus the requested offset. */
    size_t stride = (request->n * element + how->offset * element + 511) / 512 * 512;
    size_t bytes = gr_view_of(request) ? 0 : stride * how->copies;
    size_t between = how->apart ? sizeof(unsigned) : 0;
    unsigned in_a_row = rounds_of(how->copies, request->n * (element ? element : sizeof(double)));
    double between_ms = 0;
    gr_round round = {
        .request = request,
        .plan = &plan,
        .workspace = workspace,
        .bytes = request->n * element,
        .stride = stride,
        .copies = how->copies,
        .load_only = how->load_only,
        .error = error,
    };

    if (gr_plan_first(request, request->n, &plan, error) != GR_OK ||
        gr_make_room(request, &plan, request->n, workspace, error) != GR_OK ||
        gr_reserve(&buffer, bytes + between, error) != GR_OK)
        goto done;
    if (between)
        round.between = (char *)buffer.data + bytes;
    if (bytes) {
        round.data = (char *)buffer.data + how->offset * element;
        if (fill_copies(request, &round, error) != GR_OK)
            goto done;
    }
    outcome->block = plan.block;
    outcome->grid = plan.grid;
    cudaError_t replayed = between ? time_between(&round, in_a_row, &between_ms) : cudaSuccess;
    if (replayed == cudaSuccess)
        replayed = gr_backend_replay(workspace->stream, launch_round, &round, in_a_row,
                                     how->warmups, how->repeats, ms);
    if (error->status != GR_OK)
        goto done;
    TRY(replayed);
    for (unsigned i = 0; i < how->repeats && !gr_interrupted(); i++)
        ms[i] = (ms[i] - between_ms) / how->copies;
done:
    (void)cudaFree(buffer.data);
    return error->status;
}

gr_status gr_measure(gr_request *request, const gr_measurement *how, double *ms,
                     gr_outcome *outcome, gr_error *error)
{
    gr_workspace *workspace;

    memset(outcome, 0, sizeof *outcome);
    if (gr_open_workspace(request->device, &workspace, NULL, error) != GR_OK)
        return error->status;
    if (request->choose)
        gr_choose(request);
    gr_shape_exact(request);
    if (gr_check_request(request, error) == GR_OK)
        measure_in(workspace, request, how, ms, outcome, error);
    gr_close_workspace(workspace, error->status == GR_OK);
    return error->status;
}
