/* Launches the lesson kernels that make sums by key: kernels/keys. */
#include "engine/groups.h"
#include "engine/internal.h"
#include "engine/times.h"

static size_t shared_bytes(const gr_groups_request *request)
{
    return request->kernel->traits & SHARED_KEYS ? request->segments * gr_acc_size(request->acc)
                                                 : 0;
}

static gr_status launch(const gr_groups_request *request, gr_kernel *kernel, char *memory,
                        gr_groups_outcome *outcome, gr_error *error)
{
    unsigned traits = request->kernel->traits, keys = (unsigned)request->segments;
    unsigned block = request->block ? request->block : GR_DEFAULT_BLOCK;
    size_t n = request->rows, needed = gr_ceil_div(n, block);
    size_t fill =
        request->grid ? request->grid : gr_least(needed, gr_blocks_to_fill(request->device, block));
    size_t grid = traits & ONE ? needed : fill;
    const void *in = request->values.base, *key = request->index.base;
    const void *out = request->out.base;
    uint64_t *word = (uint64_t *)(void *)memory;
    void *ticket = memory ? word + request->segments : NULL;
    void *arguments[] = {&in, &key, &out, &n, &keys, &word, &ticket};

    gr_step step = {
        request->kernel, kernel, {(unsigned)(grid ? grid : 1), 1}, block, shared_bytes(request)};
    error->status = GR_OK;
    if (traits & ZEROED)
        TRY(cudaMemsetAsync((void *)(uintptr_t)out, 0,
                            request->segments * gr_acc_size(request->acc), request->stream));
    gr_launch(&step, arguments, request->stream, &outcome->launched, error);
done:
    return error->status;
}

gr_status gr_launch_keys(const gr_groups_request *request, gr_groups_outcome *outcome,
                         gr_error *error)
{
    int number = (int)(request->kernel - gr_strategy_at(0));
    gr_kernel *kernel = gr_find_kernel(number, (gr_load)request->load, request->acc, 0);
    size_t most = gr_facts_of(request->device)->shared_bytes;
    gr_arena arena = {0};
    *outcome = (gr_groups_outcome){.place = 0};
    if (!kernel || request->columns != 1)
        return gr_fail(error, GR_BAD_DTYPE, "%s cannot sum this dtype", request->kernel->name);
    if (shared_bytes(request) > most)
        return gr_fail(error, GR_BAD_VALUE,
                       "%s keeps all sums in shared memory, which holds at most %zu of them, not "
                       "num_segments=%zu",
                       request->kernel->name, most / gr_acc_size(request->acc),
                       (size_t)request->segments);
    if (request->kernel->traits & TICKET) /* words and a ticket for key_fixed */
        gr_arena_take(&arena, request->segments + 1, sizeof(uint64_t));
    arena.zeroed = arena.bytes;
    if (gr_arena_open(&arena, request->device, request->stream, error) == GR_OK &&
        launch(request, kernel, arena.base, outcome, error) == GR_OK)
        gr_record_time(request->times, GR_AT_SUMMED, request->stream, error);
    gr_arena_close(&arena);
    return error->status;
}
