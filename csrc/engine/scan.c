#include "engine/scan.h"

#include "engine/axis_form.h"
#include "engine/internal.h"
#include "engine/times.h"

enum { BLOCK = 256, SM_THREADS = 2048 };

typedef struct {
    const gr_groups_request *request;
    gr_kernel *kernel;
    unsigned block;
    size_t acc_bytes;
    gr_launched *launched;
    gr_error *error;
} scan;

/* Adds slots for gaps between entries, or for the data that scan_look_back keeps beside the sums. A
 * user's kernel may have a gap for each 16 entries. */
static size_t shared_bytes(const scan *s)
{
    const gr_groups_request *request = s->request;
    const gr_strategy *strategy = request->kernel;
    bool has_gaps = strategy->traits & SHARED_THREADS && strategy->traits & SHARED_WARPS;
    size_t more = strategy->kind == GR_KIND_SCAN ? 2 * s->block / GR_WARP + GR_WARP + 1
                  : has_gaps                     ? 4 * s->block / GR_WARP
                                                 : 0;
    return gr_shared_bytes(strategy, gr_load_of_acc(request->acc), request->acc, s->block) +
           more * s->acc_bytes;
}

static gr_status launch(const scan *s, const void *in, void *out, size_t n, void *work,
                        unsigned *ticket, size_t grid)
{
    void *arguments[] = {&in, &out, &n, &work, &ticket};
    gr_step step = {s->request->kernel, s->kernel, {(unsigned)grid, 1}, s->block, shared_bytes(s)};
    return gr_launch(&step, arguments, s->request->stream, s->launched, s->error);
}

/* The entries of each block, then the running sums of the blocks' sums in `work`, then scan_add. */
static gr_status launch_levels(const scan *s, const void *in, void *out, size_t n, char *work)
{
    const gr_groups_request *request = s->request;
    size_t size = s->block * gr_per_thread(request->kernel), blocks = gr_ceil_div(n, size);
    blocks = request->kernel->traits & ALONE ? 1 : blocks;
    int add = gr_strategy_named("scan_add");
    if (launch(s, in, out, n, work, NULL, blocks) != GR_OK || blocks == 1 ||
        launch_levels(s, work, work, blocks, work + blocks * s->acc_bytes) != GR_OK)
        return s->error->status;
    unsigned elements = (unsigned)size;
    void *arguments[] = {&work, &out, &n, &elements};
    gr_step step = {gr_strategy_at(add),
                    gr_find_kernel(add, gr_load_of_acc(request->acc), request->acc, 0),
                    {(unsigned)blocks - 1, 1},
                    s->block,
                    0};
    return gr_launch(&step, arguments, request->stream, s->launched, s->error);
}

/* Makes all launches, of at most `blocks` blocks each. */
static gr_status launch_all(const scan *s, const void *in, void *out, size_t n, size_t blocks)
{
    unsigned traits = s->request->kernel->traits;
    gr_arena arena = {0};
    size_t tickets = gr_arena_take(&arena, traits & TICKET ? 2 * blocks + 1 : 0, sizeof(unsigned));
    arena.zeroed = arena.bytes;
    size_t sums = gr_arena_take(&arena, 2 * blocks + GR_WARP, s->acc_bytes);
    if (gr_arena_open(&arena, s->request->device, s->request->stream, s->error) != GR_OK)
        return s->error->status;
    char *work = arena.base + sums;
    if (traits & TICKET)
        launch(s, in, out, n, work, (unsigned *)(void *)(arena.base + tickets), blocks);
    else if (!(traits & MANY)) /* or one block, of a user's kernel without `work` */
        launch_levels(s, in, out, n, work);
    else if (launch(s, in, NULL, n, work, NULL, blocks) == GR_OK &&
             launch(s, work, work, blocks, NULL, NULL, 1) == GR_OK)
        launch(s, in, out, n, work, NULL, blocks);
    gr_arena_close(&arena);
    return s->error->status;
}

/* Whether the elements and the entries are contiguous numbers of the accumulator's type. */
static bool fits(const gr_groups_request *request)
{
    const gr_axis *axis = &request->axes.reduced.dim[0];
    ptrdiff_t size = (ptrdiff_t)gr_acc_size(request->acc);
    return !request->axes.kept.count && axis->in == size && axis->out == size &&
           gr_axis_load(request) == (int)gr_load_of_acc(request->acc);
}

/* For users' kernels: runs on copies of the arrays' exact sizes, so that accesses beyond them are
 * found. */
static gr_status launch_in_copies(const scan *s, const gr_axes *axes, size_t n, size_t blocks)
{
    void *in = NULL, *out = NULL, *stream = s->request->stream;
    gr_error *error = s->error;
    size_t bytes = n * s->acc_bytes;
    if (gr_allocate(s->request->device, bytes, stream, &in, error) != GR_OK ||
        gr_allocate(s->request->device, bytes, stream, &out, error) != GR_OK)
        goto done;
    TRY(cudaMemcpyAsync(in, axes->in, bytes, cudaMemcpyDeviceToDevice, stream));
    if (launch_all(s, in, out, n, blocks) == GR_OK)
        TRY(cudaMemcpyAsync(axes->out, out, bytes, cudaMemcpyDeviceToDevice, stream));
done:
    (void)(in && cudaFreeAsync(in, stream));
    (void)(out && cudaFreeAsync(out, stream));
    return error->status;
}

gr_status gr_launch_scan(const gr_groups_request *request, gr_launched *launched, gr_error *error)
{
    const gr_axes *axes = &request->axes;
    const gr_strategy *strategy = request->kernel;
    scan s = {.request = request,
              .kernel = gr_find_kernel(request->strategy, gr_load_of_acc(request->acc),
                                       request->acc, request->block ? request->block : BLOCK),
              .block = request->block ? request->block : BLOCK,
              .acc_bytes = gr_acc_size(request->acc),
              .launched = launched,
              .error = error};
    size_t n = axes->reduced.dim[0].size, tile = s.block * gr_per_thread(strategy);
    size_t blocks = gr_ceil_div(n, tile);
    size_t full = gr_facts_of(request->device)->sms * (SM_THREADS / s.block);
    if (!s.kernel && strategy->traits & BLOCK_TEMPLATE)
        return gr_fail(error, GR_BAD_VALUE,
                       "%s is compiled per block size: block must be a power of two, not %u",
                       strategy->name, s.block);
    if (!s.kernel || !fits(request))
        return gr_fail(error, GR_BAD_DTYPE,
                       "%s reads only contiguous arrays, without a cast: copy the array, or pass "
                       "its own dtype",
                       strategy->name);
    if (strategy->traits & MANY)
        blocks = request->grid ? request->grid : full < blocks ? full : blocks;
    if (blocks > 0x7fffffff)
        return gr_fail(error, GR_BAD_VALUE, "%s would take more than 2^31 - 1 blocks",
                       strategy->name);
    bool is_users = gr_is_added_strategy(request->strategy);
    if (gr_allow_shared(s.kernel, shared_bytes(&s), error) == GR_OK &&
        (is_users ? launch_in_copies(&s, axes, n, blocks)
                  : launch_all(&s, axes->in, axes->out, n, blocks)) == GR_OK)
        gr_record_time(request->times, GR_AT_SUMMED, request->stream, error);
    return error->status;
}
