/* Launches the lesson kernels that make running sums: kernels/scan. */
#include "engine/axis_form.h"
#include "engine/internal.h"
#include "engine/times.h"

typedef struct {
    const gr_groups_request *request;
    gr_plan plan;
    size_t acc_bytes;
    gr_launched *launched;
    gr_error *error;
} scan;

static gr_status launch(const scan *s, const void *in, void *out, size_t n, void *work,
                        unsigned *ticket, size_t grid)
{
    const gr_plan *plan = &s->plan;
    void *arguments[] = {&in, &out, &n, &work, &ticket};
    gr_step step = {
        plan->strategy, plan->kernel, {(unsigned)grid, 1}, plan->block, plan->shared_bytes};
    return gr_launch(&step, arguments, s->request->stream, s->launched, s->error);
}

/* Launches a scan of each block, scans of the blocks' sums in `work`, and then scan_add. */
static gr_status launch_levels(const scan *s, const void *in, void *out, size_t n, char *work)
{
    const gr_strategy *strategy = s->plan.strategy;
    size_t size = s->plan.block * gr_per_thread(strategy), blocks = gr_ceil_div(n, size);
    blocks = strategy->traits & ALONE ? 1 : blocks;
    int add = gr_strategy_named("scan_add");
    gr_acc acc = s->request->acc;
    if (launch(s, in, out, n, work, NULL, blocks) != GR_OK || blocks == 1 ||
        launch_levels(s, work, work, blocks, work + blocks * s->acc_bytes) != GR_OK)
        return s->error->status;
    unsigned elements = (unsigned)size;
    void *arguments[] = {&work, &out, &n, &elements};
    gr_step step = {gr_strategy_at(add),
                    gr_find_kernel(add, gr_load_of_acc(acc), acc, 0),
                    {(unsigned)blocks - 1, 1},
                    s->plan.block,
                    0};
    return gr_launch(&step, arguments, s->request->stream, s->launched, s->error);
}

/* Whether the elements and the entries are contiguous numbers of the accumulator's type. */
static bool fits(const gr_groups_request *request)
{
    const gr_axis *axis = &request->axes.reduced.dim[0];
    ptrdiff_t size = (ptrdiff_t)gr_acc_size(request->acc);
    return !request->axes.kept.count && axis->in == size && axis->out == size &&
           gr_axis_load(request) == (int)gr_load_of_acc(request->acc);
}

gr_status gr_launch_scan(const gr_groups_request *request, gr_launched *launched, gr_error *error)
{
    const void *in = request->axes.in;
    void *out = request->axes.out;
    size_t n = request->axes.reduced.dim[0].size;
    unsigned traits = request->kernel->traits;
    scan s = {request, {0}, gr_acc_size(request->acc), launched, error};
    gr_request one = {.n = n,
                      .load = gr_load_of_acc(request->acc),
                      .acc = request->acc,
                      .strategy = request->strategy,
                      .block = request->block,
                      .grid = request->grid,
                      .device = request->device};
    bool fills = traits & MANY && !request->grid;
    if (fills)
        one.grid =
            gr_blocks_to_fill(request->device, request->block ? request->block : GR_DEFAULT_BLOCK);
    if (!fits(request))
        return gr_fail(error, GR_BAD_DTYPE,
                       "%s reads only contiguous arrays, without a cast: copy the array, or pass "
                       "its own dtype",
                       request->kernel->name);
    if (gr_make_plan(&one, one.load, n, fills, &s.plan, error) != GR_OK)
        return error->status;

    size_t blocks = s.plan.grid;
    gr_arena arena = {0};
    size_t tickets = gr_arena_take(&arena, traits & TICKET ? 2 * blocks + 1 : 0, sizeof(unsigned));
    arena.zeroed = arena.bytes;
    size_t sums = gr_arena_take(&arena, 2 * blocks + GR_WARP, s.acc_bytes);
    if (gr_arena_open(&arena, request->device, request->stream, error) != GR_OK)
        return error->status;
    char *work = arena.base + sums;
    if (traits & TICKET)
        launch(&s, in, out, n, work, (unsigned *)(void *)(arena.base + tickets), blocks);
    else if (!(traits & MANY)) /* or one block, of a user's kernel without `work` */
        launch_levels(&s, in, out, n, work);
    else if (launch(&s, in, NULL, n, work, NULL, blocks) == GR_OK &&
             launch(&s, work, work, blocks, NULL, NULL, 1) == GR_OK)
        launch(&s, in, out, n, work, NULL, blocks);
    gr_arena_close(&arena);
    if (error->status == GR_OK)
        gr_record_time(request->times, GR_AT_SUMMED, request->stream, error);
    return error->status;
}
