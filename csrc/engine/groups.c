/* Sums of groups on a device; of arrays in host memory, which are copied to the device, and their
 * sums back. */
#include "engine/groups.h"

#include "engine/internal.h"
#include "engine/times.h"
#include "threads/interrupts.h"
#include "transfer/staging.h"

/* Device copies of the two inputs (the second may be empty) and of the sums, of the arrays' exact
 * sizes: so accesses beyond them are found in users' kernels. */
typedef struct {
    const gr_span *span; /* the arrays in host memory */
    gr_arena of[3];
    gr_workspace *workspace;
    gr_times *times;
} copies;

static gr_status copy_in(copies *c, int device, gr_error *error)
{
    if (gr_open_workspace(device, &c->workspace, NULL, error) != GR_OK)
        return error->status;
    void *stream = gr_workspace_stream(c->workspace);
    for (int i = 0; i < 3; i++) {
        gr_arena_take(&c->of[i], c->span[i].size, 1);
        if (gr_arena_open(&c->of[i], device, stream, error) != GR_OK)
            return error->status;
    }
    if (gr_begin_piece(c->times, error) != GR_OK ||
        gr_record_time(c->times, GR_AT_START, stream, error) != GR_OK)
        return error->status;
    for (int i = 0; i < 2; i++)
        if (c->span[i].size && gr_copy_to_device(device, c->of[i].base, c->span[i].base,
                                                 c->span[i].size, stream, error) != GR_OK)
            return error->status;
    return gr_record_time(c->times, GR_AT_COPIED, stream, error);
}

/* Returns the address in copy `i` that an address in its array corresponds to. */
static void *copied(const copies *c, int i, const void *address)
{
    char *base = c->of[i].base;
    return address && base ? base + ((const char *)address - (const char *)c->span[i].base) : NULL;
}

/* Copies the sums back unless something failed, and frees the copies. */
static gr_status copy_out(copies *c, bool has_sums, gr_error *error)
{
    const gr_span *out = &c->span[2];
    if (error->status == GR_OK && !gr_interrupted()) {
        void *stream = gr_workspace_stream(c->workspace);
        if (has_sums && out->size)
            TRY(cudaMemcpyAsync(out->base, c->of[2].base, out->size, cudaMemcpyDeviceToHost,
                                stream));
        if (gr_record_time(c->times, GR_AT_RETURNED, stream, error) == GR_OK)
            TRY(cudaStreamSynchronize(stream));
    }
done:
    for (int i = 0; i < 3; i++)
        gr_arena_close(&c->of[i]);
    if (c->workspace)
        gr_close_workspace(c->workspace, error->status == GR_OK && !gr_interrupted());
    return error->status;
}

/* Points the request at the copies. */
static void use_copies(const copies *c, gr_groups_request *request)
{
    gr_axes *axes = &request->axes;
    if (request->by_segment) {
        request->values.base = copied(c, 0, request->values.base);
        request->index.base = copied(c, 1, request->index.base);
        request->out.base = copied(c, 2, request->out.base);
    } else {
        axes->in = copied(c, 0, axes->in);
        axes->mask = copied(c, 1, axes->mask);
        axes->out = copied(c, 2, axes->out);
    }
    request->stream = gr_workspace_stream(c->workspace);
    request->waits = 1;
}

static gr_status run(const gr_groups_request *request, gr_groups_outcome *outcome, gr_error *error)
{
    return request->by_segment ? gr_run_segments(request, outcome, error)
           : request->running  ? gr_run_running(request, &outcome->launched, error)
                               : gr_run_axis(request, &outcome->launched, error);
}

gr_status gr_sum_groups(gr_groups_request *request, const gr_span host[3],
                        gr_groups_outcome *outcome, gr_error *error)
{
    copies c = {.span = host, .times = request->times};
    if (!host) {
        if (gr_wake(request->device, NULL, error) != GR_OK ||
            gr_begin_piece(request->times, error) != GR_OK ||
            gr_record_time(request->times, GR_AT_COPIED, request->stream, error) != GR_OK)
            return error->status;
        return run(request, outcome, error);
    }
    if (copy_in(&c, request->device, error) == GR_OK && !gr_interrupted()) {
        use_copies(&c, request);
        run(request, outcome, error);
    }
    return copy_out(&c, !outcome->is_bad && !outcome->is_unsorted, error);
}
