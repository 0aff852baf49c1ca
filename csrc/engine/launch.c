/* A single launch, and the sequence of launches of a sum. */
#include "engine/launch.h"

#include <string.h>

enum { MAX_ATTRIBUTES = 2 };

static unsigned attributes_of(const gr_step *step, cudaLaunchAttribute attribute[MAX_ATTRIBUTES])
{
    unsigned count = 0, traits = step->strategy->traits;
    if (traits & COOPERATIVE) {
        attribute[count].id = cudaLaunchAttributeCooperative;
        attribute[count++].val.cooperative = 1;
    }
    if (traits & CLUSTER) {
        attribute[count].id = cudaLaunchAttributeClusterDimension;
        attribute[count].val.clusterDim.x = gr_cluster_blocks(step->strategy, step->grid[0]);
        attribute[count].val.clusterDim.y = attribute[count].val.clusterDim.z = 1;
        count++;
    }
    if (traits & OVERLAPS) {
        attribute[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attribute[count++].val.programmaticStreamSerializationAllowed = 1;
    }
    return count;
}

gr_status gr_launch(const gr_step *step, void **arguments, void *stream, gr_launched *launched,
                    gr_error *error)
{
    cudaLaunchAttribute attribute[MAX_ATTRIBUTES];
    cudaLaunchConfig_t config = {.gridDim = {step->grid[0], step->grid[1], 1},
                                 .blockDim = {step->block, 1, 1},
                                 .dynamicSmemBytes = step->shared_bytes,
                                 .stream = stream,
                                 .attrs = attribute,
                                 .numAttrs = attributes_of(step, attribute)};
    if (gr_allow_shared(step->kernel, step->shared_bytes, error) != GR_OK)
        return error->status;
    TRY(cudaLaunchKernelExC(&config, step->kernel->entry, arguments));
    if (launched && launched->launches++ == 0) {
        launched->strategy = (int)(step->strategy - gr_strategy_at(0));
        launched->block = step->block;
        launched->grid = step->grid[0];
    }
done:
    return error->status;
}

gr_status gr_launch_plan(const gr_plan *plan, void *in, void *out, size_t n,
                         gr_workspace *workspace, cudaStream_t stream, gr_error *error)
{
    void *work = plan->strategy->traits & DIGITS          ? workspace->totals
                 : plan->strategy->traits & MARKED_BLOCKS ? workspace->marked.data
                                                          : workspace->work.data;
    void *arguments[] = {in, &out, &n, &work, &workspace->ticket};
    gr_step step = {plan->strategy, plan->kernel, {plan->grid, 1}, plan->block, plan->shared_bytes};
    error->status = GR_OK;
    if (plan->strategy->traits & ZEROED)
        TRY(cudaMemsetAsync(out, 0, plan->out_bytes, stream));
    gr_launch(&step, arguments, stream, NULL, error);
done:
    return error->status;
}

static gr_status call_library(const gr_request *request, const void *in, void *out, size_t n,
                              gr_workspace *workspace, cudaStream_t stream, gr_error *error)
{
    size_t bytes = workspace->work.bytes;
    error->status = GR_OK;
    TRY(gr_backend_cub(in, out, n, request->load, request->acc, workspace->work.data, &bytes,
                       stream));
done:
    return error->status;
}

gr_status gr_make_room(const gr_request *request, const gr_plan *plan, size_t n,
                       gr_workspace *workspace, gr_error *error)
{
    unsigned traits = plan->strategy->traits;
    size_t slot = gr_acc_size(request->acc), bytes = 0;

    error->status = GR_OK;
    if (traits & WORK_ELEMENTS)
        bytes = (size_t)plan->grid * plan->block * slot;
    else if (traits & WORK_BLOCKS)
        bytes = plan->grid * slot;
    else if (traits & WORK_LIBRARY)
        TRY(gr_backend_cub(NULL, NULL, n, request->load, request->acc, NULL, &bytes, NULL));
    size_t marked = traits & MARKED_BLOCKS ? (size_t)plan->grid * 2 * slot : 0;
    if (gr_reserve(&workspace->work, bytes, error) != GR_OK ||
        gr_reserve_zeros(workspace, &workspace->marked, marked, error) != GR_OK ||
        gr_reserve(&workspace->out[0], plan->out_bytes, error) != GR_OK)
        return error->status;
    if (plan->outs > 1) {
        /* A kernel for the block sums' element type adds up the block sums. Querying it loads it
         * onto the device now. Otherwise its first launch would, and the kernel's time would
         * include that. */
        size_t blocks;
        gr_kernel *kernel = gr_find_kernel(request->strategy, gr_load_of_acc(request->acc),
                                           request->acc, plan->block);
        if (kernel)
            gr_resident_blocks(request, kernel, plan->block, plan->shared_bytes, &blocks, error);
        if (error->status == GR_OK)
            gr_reserve(&workspace->out[1], plan->out_bytes, error);
    }
done:
    return error->status;
}

gr_status gr_plan_first(const gr_request *request, size_t n, gr_plan *plan, gr_error *error)
{
    if (gr_strategy_at(request->strategy)->kind != GR_KIND_LIBRARY)
        return gr_make_plan(request, request->load, n, 0, plan, error);
    if (request->load == GR_LOAD_samples)
        return gr_fail(error, GR_BAD_VALUE, "%s sums arrays and cannot integrate functions",
                       gr_strategy_at(request->strategy)->name);
    memset(plan, 0, sizeof *plan);
    plan->strategy = gr_strategy_at(request->strategy);
    plan->outs = 1;
    plan->out_bytes = gr_acc_size(request->acc);
    return error->status = GR_OK;
}

gr_status gr_reduce(const gr_request *request, gr_plan plan, const void *data, size_t n,
                    gr_workspace *workspace, cudaStream_t stream, void *last, gr_reduced *reduced,
                    gr_error *error)
{
    const void *in = data;
    const void *view = gr_view_of(request);
    void *first_in = view ? (void *)view : (void *)&in;
    int host_adds = request->finish == GR_FINISH_HOST;
    /* Atomics need out[] in device memory, not in the pinned slot `last`. */
    int final = plan.outs == 1 && last && !(plan.strategy->traits & ZEROED);
    void *out = final ? last : workspace->out[0].data;

    if (plan.strategy->kind == GR_KIND_LIBRARY)
        call_library(request, in, out, n, workspace, stream, error);
    else
        gr_launch_plan(&plan, first_in, out, n, workspace, stream, error);
    reduced->launches = 1;
    while (error->status == GR_OK && plan.outs > 1 && !host_adds) {
        n = plan.outs;
        in = out;
        if (gr_make_plan(request, gr_load_of_acc(request->acc), n, 1, &plan, error) != GR_OK)
            break;
        out = plan.outs == 1 && last         ? last
              : in == workspace->out[0].data ? workspace->out[1].data
                                             : workspace->out[0].data;
        gr_launch_plan(&plan, &in, out, n, workspace, stream, error);
        reduced->launches++;
    }
    reduced->values = out;
    reduced->count = plan.outs;
    return error->status;
}
