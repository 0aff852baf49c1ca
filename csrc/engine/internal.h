/* Shared by the files of the engine only. */
#pragma once

#include "backend/backend.h"
#include "engine/compiled_kernels.h"
#include "engine/engine.h"
#include "shared/matrix.h"

/* Properties of a device that are used often and queried once. */
typedef struct {
    unsigned sms;
    int capability;      /* times ten */
    size_t shared_bytes; /* the most that a block can have */
    size_t memory_bytes, l2_bytes;
    cudaMemPool_t pool; /* of gr_allocate() */
} gr_facts;

/* Makes the device the calling thread's current device. The first use creates its context, which
 * takes long: *init_ms is that time, which does not count as kernel time. It may be NULL. */
gr_status gr_wake(int device, double *init_ms, gr_error *error);

/* Returns the facts of a device. gr_wake() must have been called for it. */
const gr_facts *gr_facts_of(int device);

enum { GR_DEFAULT_BLOCK = 256 };

/* The blocks whose threads fill a device that has 2048 per multiprocessor. */
static inline unsigned gr_blocks_to_fill(int device, unsigned block)
{
    return gr_facts_of(device)->sms * (2048 / block);
}

/* The size of a sum on the device: one accumulator, or the words of an exact sum. */
size_t gr_result_bytes(const gr_request *request);

/* One launch of one strategy. */
typedef struct {
    const gr_strategy *strategy;
    gr_kernel *kernel;
    unsigned block, grid;
    unsigned outs; /* values that it leaves in out[] */
    size_t shared_bytes, out_bytes;
} gr_plan;

/* The blocks per cluster, for strategies with clusters. */
static inline unsigned gr_cluster_blocks(const gr_strategy *strategy, unsigned grid)
{
    return strategy->traits & ALONE ? grid : GR_CLUSTER_BLOCKS;
}

/* Device memory for one call, in regions. Take all regions, open, use, and close the arena. */
typedef struct {
    size_t bytes, zeroed; /* of all regions; of the first ones, which must be zero */
    char *base;           /* NULL: there are no regions, or the arena is not open */
    void *stream;
} gr_arena;

/* Returns the offset of a new region. */
size_t gr_arena_take(gr_arena *arena, size_t count, size_t size);

/* Allocates all regions in the order of the stream. */
gr_status gr_arena_open(gr_arena *arena, int device, void *stream, gr_error *error);
void gr_arena_close(const gr_arena *arena);

/* One launch of any kernel. The strategy's traits decide the launch's attributes. */
typedef struct {
    const gr_strategy *strategy;
    gr_kernel *kernel;
    unsigned grid[2], block;
    size_t shared_bytes;
} gr_step;

/* Puts a launch on the stream, on the calling thread's current device. `launched` counts launches,
 * unless it is NULL. */
gr_status gr_launch(const gr_step *step, void **arguments, void *stream, gr_launched *launched,
                    gr_error *error);

/* The dynamic shared memory of a block, as the strategy's traits say. */
size_t gr_shared_bytes(const gr_strategy *strategy, gr_load load, gr_acc acc, unsigned block);

/* Permits launches of a kernel with so much dynamic shared memory on the current device. */
gr_status gr_allow_shared(gr_kernel *kernel, size_t bytes, gr_error *error);

/* Plans a launch over n > 0 elements. With `limit_grid`, which passes after the first have, the
 * grid is at most the requested one. */
gr_status gr_make_plan(const gr_request *request, gr_load load, size_t n, int limit_grid,
                       gr_plan *plan, gr_error *error);

/* Finds how many blocks can be resident on the device at the same time. This query also loads the
 * kernel onto the device. Otherwise the first launch would, and the kernel's time would include
 * that. */
gr_status gr_resident_blocks(const gr_request *request, gr_kernel *kernel, unsigned block,
                             size_t shared_bytes, size_t *blocks, gr_error *error);

/* The largest number of elements that one launch can sum. */
size_t gr_max_elements(const gr_request *request);

/* Checks a request's block, dtype, finish and the device's compute capability. */
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

/* Returns the description of a strided array or of samples, which the kernel takes in place of an
 * array's address. Returns NULL for contiguous arrays. */
static inline const void *gr_view_of(const gr_request *request)
{
    return request->load == GR_LOAD_any       ? (const void *)request->elements
           : request->load == GR_LOAD_samples ? (const void *)request->samples
                                              : NULL;
}

/* Whether sums that prove their rounding start from a nonzero number. */
static inline int gr_has_initial(const gr_sums *sums)
{
    return sums->initial[0].f64 != 0 || sums->initial[1].f64 != 0;
}
