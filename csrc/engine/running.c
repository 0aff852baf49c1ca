/* Launches running sums: kernels/running. */
#include "engine/axis_plan.h"
#include "engine/times.h"
#include "exact/device_layout.h"
#include "shared/running.h"

enum {
    LONG_ROW = 16,    /* rows of at least so many tiles are a line each */
    WALKS = 1 << 16,  /* parts of lines, one per thread of running_again: enough to fill a GPU */
    LEAST_WALK = 128, /* elements of such a part */
    FEW_BYTES = 64,   /* tiles whose sums take no more bytes form no groups */
    LOG_BLOCK = 7,    /* log2 of GR_RUNNING_BLOCK */
    AGAIN_BLOCKS = 4, /* of running_again, per multiprocessor */
    FEW_TILES = 256,  /* fewer tiles than these become smaller, so that more blocks share .. */
    LEAST_ITEMS = 16  /* .. down to so many elements per thread */
};

static const gr_axis one = {1, 0, 0, 0};

static gr_axis take_last(gr_axis_list *list)
{
    return list->count ? list->dim[--list->count] : one;
}

/* Describes the lines along the innermost dimensions, and leaves the other dimensions in `kept`. */
static gr_running_lines lines_of(const gr_groups_request *request, const gr_axis *axis,
                                 gr_axis_list *kept)
{
    ptrdiff_t size = (ptrdiff_t)gr_axis_element_bytes(request->load);
    size_t bytes = gr_load_size((gr_load)gr_axis_load(request));
    unsigned items = bytes > 4 || request->sums.bytes > 4 ? 32 : 64;
    uint64_t elements = axis->size * gr_axes_size(kept);
    while (items > LEAST_ITEMS && elements < (uint64_t)FEW_TILES * GR_RUNNING_BLOCK * items)
        items /= 2;
    uint64_t in_tile = GR_RUNNING_BLOCK * items;
    const gr_axis *last = kept->count ? &kept->dim[kept->count - 1] : &one;
    gr_axis along = *axis, columns = one;
    uint64_t period = axis->size ? axis->size : 1;
    bool are_beside = kept->count && gr_axis_distance(last->in) < gr_axis_distance(axis->in);
    bool has_zero = (request->running & GR_RUNNING_FROM_ZERO) != 0;
    const gr_ranges *ranges = &request->axes.ranges;
    bool by_offsets = ranges->kind == GR_RANGE_OFFSETS && axis->size > 1;
    if (axis->size == 1 && kept->count && !has_zero)
        along = take_last(kept); /* each sum is one element: any dimension will do */
    else if (are_beside)
        columns = take_last(kept);
    else if (kept->count && gr_axis_continues(last, axis) && axis->size < LONG_ROW * in_tile &&
             axis->size % in_tile && !has_zero && !by_offsets) {
        along.size *= last->size;
        kept->count--;
    }
    gr_axis outer = take_last(kept);
    gr_running_lines of = {.n = along.size,
                           .columns = columns.size,
                           .outer = outer.size,
                           .step = along.in / size,
                           .column_step = columns.in / size,
                           .outer_step = outer.in / size,
                           .to_step = along.out,
                           .to_column_step = columns.out,
                           .to_outer_step = outer.out,
                           .period = period,
                           .offset = by_offsets ? ranges->offset : NULL,
                           .offsets = by_offsets ? (uint64_t)ranges->size + 1 : 0,
                           .has_zero = has_zero,
                           .items = items,
                           .in_tile = (unsigned)in_tile,
                           .width = 1};
    bool are_short =
        of.columns > GR_WARP && of.n > 0 && of.n <= items && !of.has_zero && !by_offsets;
    while (of.width < GR_WARP && of.width < of.columns)
        of.width = 1u << ++of.log_width;
    if (are_short) {
        of.width = GR_RUNNING_BLOCK;
        of.log_width = LOG_BLOCK;
        of.turns = items / (unsigned)of.n;
        of.n *= of.turns;
    }
    of.across = (unsigned)gr_ceil_div(of.columns, of.width * (are_short ? of.turns : 1));
    of.strips = of.across * of.outer;
    of.tiles = gr_ceil_div(of.n ? of.n : 1, in_tile / of.width);
    of.looks_back = of.tiles > 1 && in_tile / of.width % of.period;
    uint64_t per_line = WALKS / (of.strips * of.width);
    of.walk = per_line ? gr_ceil_div(of.n, per_line) : of.n;
    of.walk = of.walk < LEAST_WALK ? LEAST_WALK : of.walk;
    of.groups = of.width * gr_axis_acc_size(request->acc) > FEW_BYTES ? GR_RUNNING_GROUPS : 0;
    return of;
}

static gr_status launch(const gr_groups_request *request, gr_running_lines *of,
                        gr_launched *launched, gr_error *error)
{
    bool is_proven = gr_acc_is_proven(request->acc);
    int first = gr_strategy_named("running_tiles"), second = gr_strategy_named("running_again");
    gr_load load = (gr_load)gr_axis_load(request);
    gr_kernel *tiles = gr_find_kernel(first, load, request->acc, 0);
    gr_kernel *again = gr_find_kernel(second, load, request->acc, 0);
    size_t sums_of_tile = 2 * of->width * gr_axis_acc_size(request->acc); /* with their marks */
    size_t element = gr_load_size(load), summed = of->looks_back ? of->tiles : 0;
    size_t stretches = summed / GR_RUNNING_STRETCH,
           groups = summed * of->groups / GR_RUNNING_STRETCH;
    size_t again_flags = is_proven ? (of->tiles + 1) * of->strips : 0;
    size_t walks = is_proven ? gr_ceil_div(of->n, of->walk) : 0;
    gr_arena arena = {0};
    gr_sums sums = request->sums;
    gr_running_memory memory;
    void *arguments[] = {of, &sums, &memory};

    if (!tiles || (is_proven && !again))
        return gr_fail(
            error, GR_BAD_DTYPE,
            "no kernel sums this dtype in the dtype of the result: convert the array first");
    if (of->tiles > 0x7fffffff / of->strips)
        return gr_fail(error, GR_BAD_VALUE,
                       "the array is too large: its running sums need more than 2^31 - 1 blocks");
    size_t of_tiles = gr_arena_take(&arena, summed * of->strips, sums_of_tile);
    size_t of_groups = gr_arena_take(&arena, groups * of->strips, sums_of_tile);
    size_t up_to = gr_arena_take(&arena, stretches * of->strips, sums_of_tile);
    size_t flags = gr_arena_take(&arena, 2 + again_flags, sizeof(unsigned));
    arena.zeroed = arena.bytes;
    size_t digits = gr_arena_take(&arena, walks > 1 ? walks * of->strips * of->width : 0,
                                  GR_EXACT_WORDS * sizeof(int64_t));
    if (gr_arena_open(&arena, request->device, request->stream, error) != GR_OK)
        return error->status;
    unsigned *flag = (unsigned *)(void *)(arena.base + flags);
    memory = (gr_running_memory){.ticket = flag,
                                 .any_again = flag + 1,
                                 .again = flag + 2,
                                 .again_end = flag + 2 + of->tiles * of->strips,
                                 .sums = arena.base + of_tiles,
                                 .group_sums = arena.base + of_groups,
                                 .up_to = arena.base + up_to,
                                 .digits = (int64_t *)(void *)(arena.base + digits)};
    sums.base = request->axes.out;
    sums.additions = 4.0 * (double)of->n + 1e5;
    gr_step step = {gr_strategy_at(first),
                    tiles,
                    {(unsigned)(of->tiles * of->strips), 1},
                    GR_RUNNING_BLOCK,
                    GR_RUNNING_SUMS * (gr_axis_acc_size(request->acc) + sizeof(double)) + 16 +
                        of->in_tile / 32 * 33 *
                            (element + (element == sums.bytes ? 0 : sums.bytes))};
    if (gr_launch(&step, arguments, request->stream, launched, error) == GR_OK && is_proven) {
        step = (gr_step){gr_strategy_at(second),
                         again,
                         {gr_facts_of(request->device)->sms * AGAIN_BLOCKS, 1},
                         GR_RUNNING_BLOCK,
                         0};
        gr_launch(&step, arguments, request->stream, launched, error);
    }
    gr_arena_close(&arena);
    return error->status;
}

gr_status gr_run_running(const gr_groups_request *request, gr_launched *launched, gr_error *error)
{
    gr_groups_request part = *request;
    gr_axes *axes = &part.axes;
    gr_axis axis = axes->reduced.count ? axes->reduced.dim[0] : one;
    ptrdiff_t last = (ptrdiff_t)axis.size - 1;
    gr_axes_place place;
    *launched = (gr_launched){0};
    if (request->kernel)
        return gr_launch_scan(request, launched, error);
    if (axis.size == 0) { /* no element is read: the array may have no address to step from */
        axis.in = 0;
        for (int i = 0; i < axes->kept.count; i++)
            axes->kept.dim[i].in = 0;
    }
    if (request->running & GR_RUNNING_BACK) {
        axes->in += last * axis.in;
        axes->out += last * axis.out;
        axis.in = -axis.in;
        axis.out = -axis.out;
    } else if (request->running & GR_RUNNING_FROM_ZERO)
        axes->out += axis.out;
    gr_axes_sort(&axes->kept);
    gr_axes_flip(axes, &axes->kept);
    gr_axes_merge(&axes->kept);
    gr_running_lines of = lines_of(request, &axis, &axes->kept);
    size_t count = gr_axes_size(&axes->kept);
    unsigned char *out = axes->out;
    error->status = GR_OK;
    for (size_t k = 0; k < count && error->status == GR_OK; k++) {
        gr_axes_go(&place, &axes->kept, axes->kept.count, k);
        of.in = axes->in + place.in;
        part.axes.out = out + place.out;
        launch(&part, &of, launched, error);
    }
    if (error->status == GR_OK)
        gr_record_time(request->times, GR_AT_SUMMED, request->stream, error);
    return error->status;
}
