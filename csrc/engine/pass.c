#include "engine/pass.h"

#include "engine/axis_plan.h"
#include "engine/launch.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

static gr_status make_plan(const gr_request *request, int later, gr_plan *plan, gr_error *error)
{
    gr_load load = later ? gr_load_of_acc(request->acc) : request->load;
    if (request->n > PTRDIFF_MAX / gr_load_size(load))
        return gr_fail(error, GR_BAD_VALUE, "%zu elements of %zu bytes exceed the address space",
                       request->n, gr_load_size(load));
    if (gr_wake(request->device, NULL, error) != GR_OK || gr_check_request(request, error) != GR_OK)
        return error->status;
    return gr_make_plan(request, load, request->n, later, plan, error);
}

gr_status gr_plan_pass(const gr_request *request, int later, gr_pass *pass, gr_error *error)
{
    gr_plan plan;
    if (make_plan(request, later, &plan, error) != GR_OK)
        return error->status;
    pass->block = plan.block;
    pass->grid = plan.grid;
    pass->outs = plan.outs;
    pass->team_blocks = plan.strategy->traits & COOPERATIVE ? plan.grid
                        : plan.strategy->traits & CLUSTER
                            ? gr_cluster_blocks(plan.strategy, plan.grid)
                            : 1;
    return GR_OK;
}

/* Maps zeros, which take no memory until they are touched. */
static gr_status take_zeros(gr_buffer *buffer, size_t bytes, gr_error *error)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    if (bytes == 0)
        return error->status = GR_OK;
    void *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (data == MAP_FAILED)
        return gr_fail(error, GR_NO_MEMORY, "no address space for %zu bytes", bytes);
    buffer->data = data;
    buffer->bytes = bytes;
    return GR_OK;
}

static void give_zeros(gr_buffer *buffer)
{
    if (buffer->data)
        munmap(buffer->data, buffer->bytes);
}

gr_status gr_run_pass(const gr_request *request, int later,
                      int (*prepare)(void *context, const gr_arrivals *arrivals), void *context,
                      gr_error *error)
{
    gr_plan plan;
    gr_workspace space;
    unsigned ticket = 0;

    if (make_plan(request, later, &plan, error) != GR_OK)
        return error->status;
    memset(&space, 0, sizeof space);
    space.ticket = &ticket;
    size_t slot = gr_acc_size(request->acc), work = (size_t)plan.grid * plan.block * slot;
    if (plan.strategy->traits & DIGITS)
        work = plan.out_bytes; /* the totals are as large as the result */
    size_t element = later ? slot : gr_load_size(request->load);
    if (take_zeros(&space.in, request->n * element, error) == GR_OK &&
        gr_reserve(&space.out[0], plan.out_bytes, error) == GR_OK &&
        take_zeros(&space.work, work, error) == GR_OK) {
        void *in = space.in.data;
        space.totals = space.marked.data = space.work.data;
        gr_arrivals arrivals = {.ticket = plan.strategy->traits & TICKET ? &ticket : NULL};
        if (plan.strategy->traits & MARKED_BLOCKS) {
            arrivals.marked = space.work.data;
            arrivals.marked_bytes = (size_t)plan.grid * 2 * slot; /* fits into work: block > 2 */
        }
        if (plan.strategy->traits & DIGITS) {
            arrivals.word = space.totals;
            arrivals.words = GR_EXACT_WORDS;
            arrivals.shift = 64 - GR_EXACT_COUNT_BITS;
        }
        if (prepare(context, &arrivals))
            gr_launch_plan(&plan, &in, space.out[0].data, request->n, &space, NULL, error);
        else
            gr_fail(error, GR_NO_MEMORY, "no memory for counters");
    }
    give_zeros(&space.in);
    cudaFree(space.out[0].data);
    give_zeros(&space.work);
    return error->status;
}

/* --- sums along an axis ------------------------------------------------------------------------
 */

static void describe_axes(gr_groups_request *request, const size_t shape[2], int axis)
{
    ptrdiff_t size = (ptrdiff_t)gr_load_size((gr_load)request->load);
    size_t bytes = gr_acc_size(request->acc);
    gr_axis row = {.size = shape[0], .in = size * (ptrdiff_t)shape[1]};
    gr_axis column = {.size = shape[1], .in = size};
    row.out = column.out = (ptrdiff_t)bytes;
    memset(&request->axes, 0, sizeof request->axes);
    gr_axes_push(axis ? &request->axes.kept : &request->axes.reduced, row);
    gr_axes_push(axis ? &request->axes.reduced : &request->axes.kept, column);
    request->sums = (gr_sums){
        .type = gr_load_of_acc(request->acc), .bytes = (unsigned)bytes, .is_native = 1, .parts = 1};
}

gr_status gr_run_axis_pass(gr_groups_request *request, const size_t shape[2], int axis,
                           int (*prepare)(void *context, const gr_arrivals *arrivals),
                           void *context, gr_launched *launched, gr_error *error)
{
    gr_axis_plan plan;
    gr_arrivals arrivals = {0};
    gr_buffer in = {0}, out = {0}, words = {0};
    size_t count = shape[0] * shape[1], acc = gr_acc_size(request->acc);

    describe_axes(request, shape, axis);
    if (gr_wake(request->device, NULL, error) != GR_OK ||
        take_zeros(&in, count * gr_load_size((gr_load)request->load), error) != GR_OK)
        return error->status;
    request->axes.in = in.data;
    if (gr_plan_axis(request, &plan, error) == GR_OK &&
        take_zeros(&out, plan.sum_count * plan.shares * acc, error) == GR_OK &&
        take_zeros(&words, plan.words * sizeof(uint64_t), error) == GR_OK) {
        plan.sums.base = out.data;
        if (prepare(context, &arrivals))
            gr_launch_axis(&plan, plan.shares > 1 ? out.data : NULL, words.data, launched, error);
        else
            gr_fail(error, GR_NO_MEMORY, "no memory for counters");
    }
    give_zeros(&in);
    give_zeros(&out);
    give_zeros(&words);
    return error->status;
}
