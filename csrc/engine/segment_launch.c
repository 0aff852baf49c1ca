#include "engine/segment_launch.h"

gr_status gr_launch_segment_step(gr_segment_run *r, gr_segment_step s)
{
    int number = gr_strategy_named(s.kernel);
    void *arguments[] = {&r->job};
    gr_step step = {gr_strategy_at(number),
                    gr_find_kernel(number, s.load, s.acc, 0),
                    {(unsigned)(s.grid ? s.grid : 1), s.tiles ? s.tiles : 1},
                    s.block,
                    s.shared_bytes};
    if (!step.kernel)
        return gr_fail(r->error, GR_BAD_DTYPE, "%s cannot sum this dtype in that of the result",
                       s.kernel);
    return gr_launch(&step, arguments, r->request->stream, &r->outcome->launched, r->error);
}

gr_status gr_launch_segment_threads(gr_segment_run *r, const char *kernel, size_t threads,
                                    unsigned block, size_t shared_bytes)
{
    gr_segment_step step = {kernel, GR_LOAD_u64, GR_ACC_u64, 0, 1, block, shared_bytes};
    step.grid = gr_least(gr_ceil_div(threads, block), gr_blocks_to_fill(r->request->device, block));
    return gr_launch_segment_step(r, step);
}

gr_status gr_launch_segment_bounds(gr_segment_run *r)
{
    const gr_groups_request *request = r->request;
    size_t count = request->by_offsets ? request->segments + 1 : request->rows / 8 + 1;
    size_t gaps = 8 + 3 * 64 * sizeof(uint64_t);
    return gr_launch_segment_threads(r, "segment_bounds", count, GR_DEFAULT_BLOCK, gaps);
}
