/* Launch geometry: grid, block and shared memory. Also the checks of a request. */
#include "exact/device_layout.h"
#include "engine/internal.h"

#include <stdio.h>

static const size_t MAX_GRID = 0x7fffffff; /* CUDA's limit for gridDim.x */

static unsigned block_of(const gr_request *request)
{
    return request->block ? request->block : GR_DEFAULT_BLOCK;
}

size_t gr_result_bytes(const gr_request *request)
{
    return gr_strategy_at(request->strategy)->traits & DIGITS ? GR_EXACT_WORDS * sizeof(gr_value)
                                                              : gr_acc_size(request->acc);
}

size_t gr_max_elements(const gr_request *request)
{
    const gr_strategy *strategy = gr_strategy_at(request->strategy);
    if (strategy->traits & (ONE | TWO | FOUR | EIGHT | SIXTEEN | THIRTY_TWO))
        return MAX_GRID * block_of(request) * gr_per_thread(strategy);
    return SIZE_MAX;
}

static gr_status check_finish(const gr_strategy *strategy, gr_finish finish, gr_error *error)
{
    if (strategy->traits & FINISHES && finish != GR_FINISH_DEFAULT && finish != GR_FINISH_SINGLE)
        return gr_fail(error, GR_BAD_VALUE,
                       "%s adds up all blocks in one launch: finish must be \"single\" or left out",
                       strategy->name);
    if (strategy->traits & PARTIALS && !(strategy->traits & FINISHES) && finish == GR_FINISH_SINGLE)
        return gr_fail(error, GR_BAD_VALUE,
                       "%s stores one sum per block: finish must be \"relaunch\" or \"host\"",
                       strategy->name);
    return GR_OK;
}

gr_status gr_check_request(const gr_request *request, gr_error *error)
{
    const gr_strategy *strategy = gr_strategy_at(request->strategy);
    unsigned block = block_of(request);

    if (strategy->kind == GR_KIND_AXIS)
        return gr_fail(error, GR_BAD_VALUE,
                       "%s sums along an axis: pass axis, as in gpureduce.sum(arr, \"%s\", "
                       "axis=%d)",
                       strategy->name, strategy->name, strategy->traits & ROWS ? -1 : 0);
    if (strategy->kind == GR_KIND_SEGMENTS)
        return gr_fail(
            error, GR_BAD_VALUE,
            "%s is an internal step of gpureduce.segment_sum(values, segment_ids), not a strategy",
            strategy->name);
    if (strategy->kind == GR_KIND_KEYS)
        return gr_fail(error, GR_BAD_VALUE,
                       "%s makes segment sums: call gpureduce.segment_sum(values, segment_ids, "
                       "strategy=\"%s\")",
                       strategy->name, strategy->name);
    if (strategy->kind == GR_KIND_SCAN)
        return gr_fail(error, GR_BAD_VALUE,
                       "%s makes running sums: call gpureduce.cumsum(arr, strategy=\"%s\")",
                       strategy->name, strategy->name);
    if (block < GR_MIN_BLOCK || block > GR_MAX_BLOCK || block % GR_WARP)
        return gr_fail(error, GR_BAD_VALUE, "block must be a multiple of %d from %d to %d, not %u",
                       GR_WARP, GR_MIN_BLOCK, GR_MAX_BLOCK, block);
    if (strategy->dtypes == GR_DTYPES_INT32 && request->acc != GR_ACC_u32)
        return gr_fail(error, GR_BAD_DTYPE,
                       "%s sums 32-bit integers in 32 bits only: pass an int32 or uint32 array "
                       "and dtype=\"int32\" or \"uint32\"",
                       strategy->name);
    if (strategy->traits & DIGITS && request->acc != GR_ACC_f32 && request->acc != GR_ACC_f64)
        return gr_fail(error, GR_BAD_DTYPE, "%s sums floats only: use fast for integers",
                       strategy->name);
    int capability = gr_facts_of(request->device)->capability;
    if (capability < strategy->capability) {
        gr_fail(error, GR_CUDA_ERROR, "%s needs compute capability %d.%d; this GPU has %d.%d",
                strategy->name, strategy->capability / 10, strategy->capability % 10,
                capability / 10, capability % 10);
        snprintf(error->name, sizeof error->name, "%s", cudaGetErrorName(cudaErrorNotSupported));
        return error->status;
    }
    return check_finish(strategy, request->finish, error);
}

gr_status gr_allow_shared(gr_kernel *kernel, size_t bytes, gr_error *error)
{
    error->status = GR_OK;
    if (bytes <= 48 * 1024)
        return GR_OK;
    int device = gr_current_device();
    uint64_t bit = (uint64_t)1 << (device & 63);
    if (__atomic_load_n(&kernel->large_shared, __ATOMIC_ACQUIRE) & bit)
        return GR_OK;
    TRY(cudaFuncSetAttribute(kernel->entry, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             (int)gr_facts_of(device)->shared_bytes)); /* for all block sizes */
    (void)__atomic_fetch_or(&kernel->large_shared, bit, __ATOMIC_RELEASE);
done:
    return error->status;
}

/* Caches the answer in the kernel: 1 + the blocks in the low half, the device in the high half. If
 * two threads compute it at the same time, both get the same value. A thread that reads it must
 * also see the kernel's attributes as they were set before: hence acquire and release. */
gr_status gr_resident_blocks(const gr_request *request, gr_kernel *kernel, unsigned block,
                             size_t shared_bytes, size_t *blocks, gr_error *error)
{
    uint64_t *kept = &kernel->resident[block / GR_WARP - 1];
    uint64_t known = __atomic_load_n(kept, __ATOMIC_ACQUIRE);
    int per_sm = 0;

    error->status = GR_OK;
    if (!known || known >> 32 != (uint64_t)request->device) {
        if (gr_allow_shared(kernel, shared_bytes, error) != GR_OK)
            return error->status;
        unsigned traits = gr_strategy_at(request->strategy)->traits;
        if (traits & CLUSTER && traits & ALONE)
            TRY(cudaFuncSetAttribute(kernel->entry, cudaFuncAttributeNonPortableClusterSizeAllowed,
                                     1));
        TRY(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, kernel->entry, (int)block,
                                                          shared_bytes));
        known = (uint64_t)request->device << 32 |
                (1 + (uint64_t)per_sm * gr_facts_of(request->device)->sms);
        __atomic_store_n(kept, known, __ATOMIC_RELEASE);
    }
    *blocks = (size_t)((known & 0xffffffff) - 1);
done:
    return error->status;
}

static size_t round_up(size_t n, size_t step)
{
    return (n + step - 1) / step * step;
}

/* A grid-stride kernel runs with any grid. More blocks than there are elements for, or than can be
 * resident at once, would only make more block sums. */
static gr_status grid_to_fill(const gr_request *request, size_t cover, size_t resident,
                              int limit_grid, gr_plan *plan, gr_error *error)
{
    unsigned traits = plan->strategy->traits;
    size_t step = traits & CLUSTER ? GR_CLUSTER_BLOCKS : 1;

    if (traits & ALONE) {
        int large = traits & CLUSTER && request->grid == GR_LARGE_CLUSTER_BLOCKS;
        if (request->grid && request->grid != step && !large)
            return gr_fail(error, GR_BAD_VALUE, "grid of %s must be %zu%s, not %u",
                           plan->strategy->name, step,
                           traits & CLUSTER ? ", or 16 if the GPU can" : "", request->grid);
        plan->grid = large ? request->grid : (unsigned)step;
        return GR_OK;
    }
    if (request->grid && !limit_grid) {
        if (request->grid % step)
            return gr_fail(error, GR_BAD_VALUE, "%s needs a grid that is a multiple of %zu, not %u",
                           plan->strategy->name, step, request->grid);
        if (traits & COOPERATIVE && request->grid > resident)
            return gr_fail(error, GR_BAD_VALUE,
                           "%s needs all its blocks on the GPU at once: with block=%u grid may "
                           "be at most %zu, not %u",
                           plan->strategy->name, plan->block, resident, request->grid);
        if (traits & DIGITS && request->grid > GR_EXACT_BLOCKS)
            return gr_fail(error, GR_BAD_VALUE,
                           "%s has a limit on its blocks: grid may be at most %d, not %u",
                           plan->strategy->name, GR_EXACT_BLOCKS, request->grid);
        plan->grid = request->grid;
        return GR_OK;
    }

    if (traits & DIGITS && resident > GR_EXACT_BLOCKS)
        resident = GR_EXACT_BLOCKS;
    size_t most = request->grid ? request->grid : resident;
    size_t grid = round_up(cover < most ? cover : most, step);
    plan->grid = (unsigned)(grid < MAX_GRID ? grid : MAX_GRID / step * step);
    return GR_OK;
}

static gr_status grid_to_cover(const gr_request *request, size_t n, size_t cover, int limit_grid,
                               gr_plan *plan, gr_error *error)
{
    if (cover > MAX_GRID)
        return gr_fail(error, GR_BAD_VALUE,
                       "%s gives each thread %u element%s: %zu elements with block=%u need %zu "
                       "blocks, and a launch has at most %zu: use a larger block, or fast",
                       plan->strategy->name, gr_per_thread(plan->strategy),
                       gr_per_thread(plan->strategy) == 1 ? "" : "s", n, plan->block, cover,
                       MAX_GRID);
    if (request->grid && !limit_grid && request->grid < cover)
        return gr_fail(error, GR_BAD_VALUE,
                       "%s gives each thread %u element%s: %zu elements with block=%u need "
                       "grid=%zu or more, not %u: leave grid out",
                       plan->strategy->name, gr_per_thread(plan->strategy),
                       gr_per_thread(plan->strategy) == 1 ? "" : "s", n, plan->block, cover,
                       request->grid);
    plan->grid = request->grid && !limit_grid ? request->grid : (unsigned)cover;
    return GR_OK;
}

static gr_status missing_kernel(const gr_request *request, gr_load load, gr_error *error)
{
    const gr_strategy *strategy = gr_strategy_at(request->strategy);
    if (load == GR_LOAD_samples && gr_find_kernel(request->strategy, GR_LOAD_f64, GR_ACC_f64, 256))
        gr_fail(error, GR_BAD_VALUE, "%s sums arrays and cannot integrate functions",
                strategy->name);
    else if (load == GR_LOAD_any)
        gr_fail(error, GR_BAD_DTYPE,
                "%s reads only contiguous arrays, without a cast: use fast or last_block, which "
                "take any strides and casts",
                strategy->name);
    else if (strategy->traits & BLOCK_TEMPLATE && gr_is_added_strategy(request->strategy))
        gr_fail(error, GR_BAD_VALUE,
                "%s is compiled per block size: block must be a power of two, not %u",
                strategy->name, block_of(request));
    else
        gr_fail(error, GR_CUDA_ERROR, "%s was not built for this GPU (GPUREDUCE_CUDA_ARCHS)",
                strategy->name);
    return error->status;
}

size_t gr_shared_bytes(const gr_strategy *strategy, gr_load load, gr_acc acc, unsigned block)
{
    unsigned traits = strategy->traits, warps = block / GR_WARP;
    unsigned slots = traits & SHARED_TWICE     ? 2 * block
                     : traits & SHARED_THREADS ? block
                     : traits & SHARED_WARPS   ? warps
                                               : 0;
    if (traits & RING)
        return GR_RING_BYTES;
    if (traits & DIGITS)
        return gr_exact_shared_words(load, block) * sizeof(gr_value);
    if (traits & CLUSTER && traits & ALONE)
        slots = warps + GR_LARGE_CLUSTER_BLOCKS;
    else if (strategy->kind ==
             GR_KIND_SCAN) /* gaps between entries, or what scan_look_back keeps */
        slots += 2 * warps + GR_WARP + 1;
    else if (traits & SHARED_THREADS &&
             traits & SHARED_WARPS) /* a user's scan may have more gaps */
        slots += 4 * warps;
    return slots * gr_acc_size(acc);
}

/* Returns the accumulator that the kernel is compiled for. */
static gr_acc kernel_acc(const gr_request *request, gr_load load)
{
    if (!(gr_strategy_at(request->strategy)->traits & DIGITS))
        return request->acc;
    return load == GR_LOAD_f64 || load == GR_LOAD_any ? GR_ACC_f64 : GR_ACC_f32;
}

/* Returns the most threads per block that the kernel of the strategy `exact` is compiled for. */
static unsigned exact_most_threads(gr_load load)
{
    switch (load) {
    case GR_LOAD_f16:
    case GR_LOAD_f32: return GR_MAX_BLOCK;
    case GR_LOAD_bf16: return GR_EXACT_BF16_THREADS;
    default: return GR_EXACT_F64_THREADS;
    }
}

/* Returns the name of the first dtype with this element type. */
static const char *name_of(gr_load wanted)
{
#define DTYPE(name, load, acc, result)                                                             \
    if (wanted == GR_LOAD_##load)                                                                  \
        return #name;
#include "dtypes.def"
#undef DTYPE
    return "strided arrays";
}

static gr_status check_block(const gr_request *request, gr_load load, const gr_plan *plan,
                             gr_error *error)
{
    size_t most = gr_facts_of(request->device)->shared_bytes;
    if (plan->strategy->traits & DIGITS && plan->block > exact_most_threads(load))
        return gr_fail(error, GR_BAD_VALUE,
                       "%s of %s takes blocks of at most %u threads, not %u: its threads need more "
                       "registers and shared memory than larger blocks have",
                       plan->strategy->name, name_of(load), exact_most_threads(load), plan->block);
    if (plan->shared_bytes > most)
        return gr_fail(error, GR_BAD_VALUE,
                       "%s needs %zu bytes of shared memory for block=%u, and this GPU has %zu: "
                       "choose a smaller block",
                       plan->strategy->name, plan->shared_bytes, plan->block, most);
    return GR_OK;
}

gr_status gr_make_plan(const gr_request *request, gr_load load, size_t n, int limit_grid,
                       gr_plan *plan, gr_error *error)
{
    const gr_strategy *strategy = gr_strategy_at(request->strategy);

    plan->strategy = strategy;
    plan->block = block_of(request);
    plan->kernel = gr_find_kernel(request->strategy, load, kernel_acc(request, load), plan->block);
    if (!plan->kernel)
        return missing_kernel(request, load, error);
    plan->shared_bytes = gr_shared_bytes(strategy, load, request->acc, plan->block);
    if (check_block(request, load, plan, error) != GR_OK)
        return error->status;

    size_t per_block = (size_t)plan->block * gr_per_thread(strategy);
    size_t cover = n / per_block + (n % per_block != 0);
    size_t resident = 0;
    gr_status status = gr_resident_blocks(request, plan->kernel, plan->block, plan->shared_bytes,
                                          &resident, error);
    if (status != GR_OK)
        return status;
    if (!resident)
        return gr_fail(error, GR_BAD_VALUE,
                       "no block of %u threads of %s fits on an SM: they need more registers or "
                       "shared memory than it has; take a smaller block, or declare the kernel "
                       "__launch_bounds__(%u)",
                       plan->block, strategy->name, plan->block);
    status = strategy->traits & MANY
                 ? grid_to_fill(request, cover, resident, limit_grid, plan, error)
                 : grid_to_cover(request, n, cover, limit_grid, plan, error);
    if (status != GR_OK)
        return status;

    unsigned teams = strategy->traits & CLUSTER ? plan->grid / GR_CLUSTER_BLOCKS : plan->grid;
    plan->outs = strategy->traits & FINISHES ? 1 : teams;
    size_t cells = strategy->traits & PARTIALS ? teams : plan->outs;
    plan->out_bytes = cells * gr_result_bytes(request);
    return GR_OK;
}
