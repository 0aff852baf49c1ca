#include "engine/segment_launch.h"

#include <string.h>

enum { SM_THREADS = 2048, BLOCK = 256 };

gr_status gr_launch_segment_step(gr_segment_run *r, gr_segment_step s)
{
    gr_error *error = r->error;
    gr_kernel *kernel = gr_find_kernel(gr_strategy_named(s.kernel), s.load, s.acc, 0);
    void *arguments[] = {&r->job};
    cudaLaunchConfig_t config;
    if (!kernel)
        return gr_fail(error, GR_BAD_DTYPE, "%s does not add up these elements in this dtype",
                       s.kernel);
    error->status = GR_OK;
    if (s.shared_bytes > 48 * 1024)
        TRY(cudaFuncSetAttribute(kernel->entry, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 (int)r->shared_bytes));
    memset(&config, 0, sizeof config);
    config.gridDim = (dim3){(unsigned)(s.grid ? s.grid : 1), s.tiles ? s.tiles : 1, 1};
    config.blockDim = (dim3){s.block, 1, 1};
    config.dynamicSmemBytes = s.shared_bytes;
    config.stream = r->request->stream;
    TRY(cudaLaunchKernelExC(&config, kernel->entry, arguments));
    if (r->outcome->launches++ == 0) {
        r->outcome->block = s.block;
        r->outcome->grid = config.gridDim.x;
    }
done:
    return error->status;
}

gr_status gr_launch_segment_threads(gr_segment_run *r, const char *kernel, size_t threads,
                                    unsigned block, size_t shared_bytes)
{
    size_t most = r->sms * (SM_THREADS / block);
    gr_segment_step step = {kernel, GR_LOAD_u64, GR_ACC_u64, 0, 1, block, shared_bytes};
    step.grid = gr_least(gr_ceil_div(threads, block), most);
    return gr_launch_segment_step(r, step);
}

gr_status gr_launch_segment_bounds(gr_segment_run *r)
{
    const gr_segment_request *request = r->request;
    size_t count = request->by_offsets ? request->segments + 1 : request->rows / 8 + 1;
    size_t gaps = 8 + 3 * 64 * sizeof(uint64_t);
    return gr_launch_segment_threads(r, "segment_bounds", count, BLOCK, gaps);
}
