/* Shared by the files of the engine only. */
#ifndef GPUREDUCE_ENGINE_INTERNAL_H
#define GPUREDUCE_ENGINE_INTERNAL_H

#include "backend/backend.h"
#include "engine/compiled_kernels.h"
#include "engine/engine.h"

/* What is asked of a device often, and asked the device once. */
typedef struct {
    unsigned sms;
    int capability;      /* times ten */
    size_t shared_bytes; /* that a block can have at most */
    size_t memory_bytes;
} gr_facts;

/* Makes the device the calling thread's. The first use creates its context, which takes long and is
 * nobody's kernel time: *init_ms says how long. */
gr_status gr_wake(int device, double *init_ms, gr_error *error);

/* Of a device that was woken. */
const gr_facts *gr_facts_of(int device);

/* What a launch that finishes leaves: one accumulator, or the words of an exact sum. */
size_t gr_result_bytes(const gr_request *request);

/* One launch of one strategy. */
typedef struct {
    const gr_strategy *strategy;
    gr_kernel *kernel;
    unsigned block, grid;
    unsigned outs; /* how many values it leaves in out[] */
    size_t shared_bytes, out_bytes;
} gr_plan;

/* How many blocks stand in a cluster of a strategy that has clusters. */
static inline unsigned gr_cluster_blocks(const gr_plan *plan)
{
    return plan->strategy->traits & ALONE ? plan->grid : GR_CLUSTER_BLOCKS;
}

/* Plans a launch over n > 0 elements. `limit_grid`: a later pass, where a grid that was asked for
 * is an upper limit rather than an order. */
gr_status gr_make_plan(const gr_request *request, gr_load load, size_t n, int limit_grid,
                       gr_plan *plan, gr_error *error);

/* The blocks that fill the card once, all at work at the same time. Asking also loads the kernel
 * onto the card, which happens at a kernel's first use and is nobody's kernel time. */
gr_status gr_resident_blocks(const gr_request *request, gr_kernel *kernel, unsigned block,
                             size_t shared_bytes, size_t *blocks, gr_error *error);

/* How many elements one launch can take at most. */
size_t gr_max_elements(const gr_request *request);

/* Checks name-independent arguments: block, finish, dtype, the card's capability. */
gr_status gr_check_request(const gr_request *request, gr_error *error);

static inline gr_load gr_load_of_acc(gr_acc acc)
{
    static const gr_load loads[GR_ACC_COUNT] = {
        [GR_ACC_u32] = GR_LOAD_u32,
        [GR_ACC_u64] = GR_LOAD_u64,
        [GR_ACC_f32] = GR_LOAD_f32,
        [GR_ACC_f64] = GR_LOAD_f64,
    };
    return loads[acc];
}

/* What a kernel reads in place of an array; NULL where it reads an array. */
static inline const void *gr_view_of(const gr_request *request)
{
    return request->load == GR_LOAD_any       ? (const void *)request->elements
           : request->load == GR_LOAD_samples ? (const void *)request->samples
                                              : NULL;
}

/* Threads that one element or two or a stride's worth keep busy: elements per thread, at least. */
static inline unsigned gr_per_thread(const gr_strategy *strategy)
{
    return strategy->traits & TWO ? 2 : 1;
}

#endif
