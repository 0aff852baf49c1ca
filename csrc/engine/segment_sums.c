/* Segment sums in the form that callers want: rounded, or as digits. For digits, kernels add up in
 * fixed-point words, also with offsets, and convert these to the integers of exact/words.h. */
#include "engine/groups.h"

#include "engine/internal.h"
#include "engine/times.h"

static gr_rows plain(const void *base, int64_t step)
{
    return (gr_rows){base, step, sizeof(uint64_t), sizeof(uint64_t), 1};
}

/* Counts the elements of each segment by summing the byte `one` for each row. */
static gr_status count_elements(const gr_groups_request *request, uint64_t *counts, const void *one,
                                gr_error *error)
{
    gr_groups_request each = *request;
    gr_groups_outcome outcome;
    each.values = plain(one, 0);
    each.out = plain(counts, sizeof *counts);
    each.columns = 1;
    each.load = GR_LOAD_u8;
    each.acc = GR_ACC_u64;
    each.sums = (gr_sums){.type = GR_LOAD_u64, .bytes = sizeof *counts, .parts = 1};
    each.check = 0; /* the launch of the sums checks the ids */
    each.times = NULL;
    return gr_launch_segments(&each, &outcome, error);
}

static gr_status launch_digits(const gr_groups_request *request, gr_groups_outcome *outcome,
                               gr_error *error)
{
    gr_groups_request sums = *request;
    gr_arena arena = {0};
    bool is_wide = request->load == GR_LOAD_i32 || request->load == GR_LOAD_u32;
    if (is_wide && request->rows > (uint64_t)1 << 32)
        return gr_fail(error, GR_BAD_VALUE,
                       "segment_digits takes at most 2^32 integers of 32 bits at once");
    if (request->segments > SIZE_MAX / 64)
        return gr_fail(error, GR_NO_MEMORY, "there is no memory for all sums");
    gr_arena_take(&arena, request->segments + 1, sizeof(uint64_t));
    if (gr_arena_open(&arena, request->device, request->stream, error) != GR_OK)
        return error->status;
    uint64_t *counts = (uint64_t *)(void *)arena.base;
    TRY(cudaMemsetAsync(counts + request->segments, 1, 1, request->stream));
    sums.sums.counts = counts;
    if (count_elements(request, counts, counts + request->segments, error) == GR_OK)
        gr_launch_segments(&sums, outcome, error);
done:
    gr_arena_close(&arena);
    return error->status;
}

gr_status gr_run_segments(const gr_groups_request *request, gr_groups_outcome *outcome,
                          gr_error *error)
{
    bool has_sums = request->segments && request->columns;
    return request->sums.as_digits && has_sums && !request->kernel
               ? launch_digits(request, outcome, error)
               : gr_launch_segments(request, outcome, error);
}
