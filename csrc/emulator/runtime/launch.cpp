/* Kernel launches: kernel handles, the checks that CUDA makes, and the division of a grid into
 * teams. */
#include "emulator/runtime/launch.h"

#include <string.h>

#include <map>
#include <mutex>

#include "backend/backend.h"
#include "emulator/runtime/guard.h"
#include "emulator/trace/recorder.h"
#include "emulator/races/detector.h"
#include "emulator/scheduler/thread_end.h"
#include "cpu/floating_point_mode.h"
#include "threads/pool.h"
#include "threads/processors.h"

namespace gr
{

static constexpr uint64_t kernel_magic = 0x6b65726e656c2121;

static __thread gr_schedule thread_schedule;
static __thread uint64_t thread_seed;
static __thread char *thread_fault; /* NULL: there was no memory for the text */
static __thread bool thread_faulted;
static const AtThreadEnd fault_at_end(free);

/* Takes over a text from malloc. */
static void set_fault(char *text)
{
    free(thread_fault);
    thread_fault = text;
    if (!fault_at_end.keep(text)) {
        free(text);
        thread_fault = nullptr;
    }
}

static Kernel *kernel_of(const void *func)
{
    Kernel *kernel = static_cast<Kernel *>(const_cast<void *>(func));
    return kernel && kernel->magic == kernel_magic ? kernel : nullptr;
}

void launch_failed(Launch *launch, cudaError_t error, const char *fault)
{
    std::lock_guard<std::mutex> lock(launch->mutex);
    if (launch->failed)
        return;
    launch->error = error;
    try {
        launch->fault = fault;
    } catch (const std::bad_alloc &) { /* the error is reported without its text */
    }
    launch->failed = true;
}

/* A bijection on 0..count-1 that depends on the seed: a Feistel network on the next even number of
 * bits, iterated until the result is below count. */
static uint64_t permute(uint64_t number, uint64_t count, uint64_t seed)
{
    unsigned half = 1;
    while (half < 31 && (1ull << (2 * half)) < count)
        ++half;
    uint64_t mask = (1ull << half) - 1;
    do {
        uint64_t left = number >> half, right = number & mask;
        for (uint64_t round = 1; round <= 4; ++round) {
            uint64_t mixed = (right + seed) * 0x9e3779b97f4a7c15 + round * 0xd1b54a32d192ed03;
            mixed = (mixed ^ mixed >> 29) * 0xbf58476d1ce4e5b9;
            uint64_t next = left ^ (mixed >> 32 & mask);
            left = right;
            right = next;
        }
        number = left << half | right;
    } while (number >= count);
    return number;
}

uint64_t team_at(const Launch *launch, uint64_t turn)
{
    switch (launch->schedule) {
    case GR_SCHEDULE_REVERSE: return launch->teams - 1 - turn;
    case GR_SCHEDULE_RANDOM: return permute(turn, launch->teams, launch->seed);
    default: return turn;
    }
}

/* Sets the default floating-point mode, because arithmetic on a device does not depend on the mode
 * of the host thread. */
struct AsOnACard {
    gr_arithmetic before = gr_begin_plain();
    ~AsOnACard()
    {
        gr_end_plain(before);
    }
};

static void run_task(size_t task, void *context)
{
    Launch *launch = static_cast<Launch *>(context);
    if (is_stopped(launch))
        return;
    AsOnACard arithmetic;
    Worker *w = worker_for(launch);
    if (!w) {
        launch_failed(launch, cudaErrorMemoryAllocation, "");
        return;
    }
    uint64_t turn = task * launch->batch, end = turn + launch->batch;
    for (; turn < end && turn < launch->teams && !is_stopped(launch); ++turn)
        run_team(w, team_at(launch, turn));
}

/* Teams per task: large enough for negligible overhead per task, small enough to keep all threads
 * busy. */
static uint64_t batch_for(const Launch *launch)
{
    uint64_t team_threads = (uint64_t)launch->shape.team_blocks * launch->shape.block.x *
                            launch->shape.block.y * launch->shape.block.z;
    uint64_t wanted = 8192 / team_threads + 1;
    uint64_t most = launch->teams / (8 * (uint64_t)gr_thread_count()) + 1;
    return wanted < most ? wanted : most;
}

static void run_teams(Launch *launch)
{
    if (Watch *watch = thread_watch()) {
        launch->batch = launch->teams;
        watch_launch(watch, launch);
        run_task(0, launch);
        watch_launch_end(watch);
        return;
    }
    if (thread_recorder()) {
        run_samples(launch);
        return;
    }
    launch->batch = batch_for(launch);
    size_t tasks = (launch->teams + launch->batch - 1) / launch->batch;
    if (tasks == 1)
        run_task(0, launch);
    else
        gr_parallel(0, tasks, run_task, launch);
}

static cudaError_t run(Launch *launch)
{
    run_teams(launch);
    if (!launch->failed)
        check_guarded(launch);
    if (gr_is_interrupted(launch->watch))
        launch_failed(launch, cudaErrorUnknown, "");
    if (!launch->failed)
        return cudaSuccess;
    if (launch->error == cudaErrorLaunchFailure) {
        set_fault(strdup(launch->fault.c_str()));
        thread_faulted = true;
    }
    return launch->error;
}

static uint64_t volume(dim3 size)
{
    return (uint64_t)size.x * size.y * size.z;
}

static cudaError_t check_sizes(const Launch *launch, const cudaLaunchConfig_t *config)
{
    dim3 grid = launch->grid, block = launch->shape.block;
    if (!volume(grid) || !volume(block) || grid.x > 0x7fffffff || grid.y > 65535 ||
        grid.z > 65535 || block.x > 1024 || block.y > 1024 || block.z > 64 ||
        volume(block) > device_threads_per_block)
        return cudaErrorInvalidConfiguration;
    if (config->dynamicSmemBytes > launch->kernel->dynamic_shared)
        return cudaErrorInvalidValue;
    return cudaSuccess;
}

static cudaError_t check_cluster(const Launch *launch)
{
    dim3 grid = launch->grid, cluster = launch->cluster;
    uint64_t blocks = volume(cluster);
    if (!blocks || grid.x % cluster.x || grid.y % cluster.y || grid.z % cluster.z)
        return cudaErrorInvalidConfiguration;
    if (blocks >
        (launch->kernel->large_clusters ? device_largest_cluster : device_portable_cluster))
        return cudaErrorInvalidClusterSize;
    return cudaSuccess;
}

/* Number of resident blocks per multiprocessor, for this block size. */
static int resident_blocks(uint64_t threads, size_t dynamic_shared)
{
    uint64_t warps = (threads + 31) / 32;
    uint64_t blocks = (uint64_t)device_threads_per_sm / (warps * 32);
    uint64_t by_shared = device_shared_per_sm / (dynamic_shared + device_shared_reserved);
    blocks = by_shared < blocks ? by_shared : blocks;
    return (int)(blocks < device_blocks_per_sm ? blocks : device_blocks_per_sm);
}

static void read_attributes(Launch *launch, const cudaLaunchConfig_t *config)
{
    launch->cluster = dim3(1, 1, 1);
    for (unsigned i = 0; i < config->numAttrs; ++i) {
        const cudaLaunchAttribute *attribute = &config->attrs[i];
        if (attribute->id == cudaLaunchAttributeCooperative)
            launch->cooperative = attribute->val.cooperative != 0;
        else if (attribute->id == cudaLaunchAttributeClusterDimension)
            launch->cluster = dim3(attribute->val.clusterDim.x, attribute->val.clusterDim.y,
                                   attribute->val.clusterDim.z);
    }
}

/* The race detector runs the blocks of such a grid side by side, in random order. */
static constexpr unsigned most_beside = 16;

/* Sets which blocks form a team, and checks that the device has room for them. */
static cudaError_t form_teams(Launch *launch)
{
    Shape *shape = &launch->shape;
    uint64_t blocks = volume(launch->grid);
    uint64_t room =
        (uint64_t)device_sms * (uint64_t)resident_blocks(volume(shape->block), shape->shared);
    shape->cluster_blocks = (unsigned)volume(launch->cluster);
    if (shape->cluster_blocks > room)
        return cudaErrorInvalidClusterSize;
    if (launch->cooperative && blocks > room)
        return cudaErrorCooperativeLaunchTooLarge;
    bool beside = thread_watch() && launch->schedule == GR_SCHEDULE_RANDOM && blocks <= most_beside;
    shape->team_blocks = launch->cooperative || beside ? (unsigned)blocks : shape->cluster_blocks;
    launch->teams = blocks / shape->team_blocks;
    return cudaSuccess;
}

static cudaError_t launch_kernel(const cudaLaunchConfig_t *config, const void *func, void **args)
{
    thread_faulted = false;
    Kernel *kernel = kernel_of(func);
    if (!kernel)
        return cudaErrorInvalidDeviceFunction;
    if (!config || (config->numAttrs && !config->attrs))
        return cudaErrorInvalidValue;
    if (cudaError_t error = check_stream(config->stream))
        return error;
    Launch launch = {};
    launch.kernel = kernel;
    launch.args = args;
    launch.grid = config->gridDim;
    launch.shape.block = config->blockDim;
    launch.shape.shared = config->dynamicSmemBytes;
    launch.shape.variables = kernel->variables;
    launch.schedule = thread_schedule;
    launch.number = thread_seed;
    launch.seed = thread_seed * 0x9e3779b97f4a7c15 + 1;
    launch.watch = gr_current_watch();
    read_attributes(&launch, config);
    cudaError_t error = check_sizes(&launch, config);
    if (!error)
        error = check_cluster(&launch);
    if (!error)
        error = form_teams(&launch);
    return error ? error : run(&launch);
}

/* A thread's emulator state, saved while a signal handler runs on the thread. */
struct Aside {
    gr_schedule schedule;
    uint64_t seed;
    int device;
    bool faulted;
    char *fault;
    cudaError_t error;
    WorkerAside worker;
    gr_recorder *recorder;
    Watch *watch;
};

} // namespace gr

using namespace gr;

const void *gr_register_kernel(gr_any_kernel function, gr_kernel_caller caller,
                               const char *const *names, const unsigned *pointees,
                               unsigned parameters, const gr_variable *variables)
{
    static std::mutex mutex;
    static auto *kernels = new std::map<gr_any_kernel, Kernel *>; /* never destroyed */
    std::lock_guard<std::mutex> lock(mutex);
    try {
        if (Kernel *known = (*kernels)[function])
            return known;
        Kernel *kernel = new Kernel();
        kernel->magic = kernel_magic;
        kernel->kernel = function;
        kernel->caller = caller;
        kernel->names = names;
        kernel->pointees = pointees;
        kernel->parameters = parameters;
        kernel->dynamic_shared = device_shared_per_block;
        kernel->variables = variables;
        return (*kernels)[function] = kernel;
    } catch (const std::bad_alloc &) {
        return nullptr;
    }
}

extern "C" {

void *gr_backend_put_aside(void)
{
    Aside *aside = new (std::nothrow) Aside();
    if (!aside)
        return nullptr;
    aside->schedule = thread_schedule;
    aside->seed = thread_seed;
    aside->device = current_device();
    aside->faulted = thread_faulted;
    aside->fault = thread_fault;
    thread_fault = nullptr;
    (void)fault_at_end.keep(nullptr);
    aside->error = cudaGetLastError();
    put_worker_aside(&aside->worker);
    aside->recorder = exchange_recorder(nullptr);
    aside->watch = exchange_watch(nullptr);
    return aside;
}

void gr_backend_take_up(void *saved)
{
    Aside *aside = static_cast<Aside *>(saved);
    if (!aside)
        return;
    (void)exchange_recorder(aside->recorder);
    (void)exchange_watch(aside->watch);
    take_worker_up(&aside->worker);
    (void)cudaGetLastError();
    set_error(aside->error);
    set_fault(aside->fault);
    thread_faulted = aside->faulted;
    thread_schedule = aside->schedule;
    thread_seed = aside->seed;
    gr_backend_return_to(aside->device);
    delete aside;
}

void gr_backend_schedule(int order, uint64_t seed)
{
    thread_schedule = static_cast<gr_schedule>(order);
    thread_seed = seed;
}

const char *gr_backend_fault(void)
{
    return thread_faulted && thread_fault ? thread_fault : "";
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *func, void **args)
{
    return set_error(without_throwing([&] { return launch_kernel(config, func, args); }));
}

cudaError_t cudaFuncSetAttribute(const void *func, enum cudaFuncAttribute attr, int value)
{
    Kernel *kernel = kernel_of(func);
    if (!kernel)
        return set_error(cudaErrorInvalidDeviceFunction);
    switch (attr) {
    case cudaFuncAttributeMaxDynamicSharedMemorySize:
        if (value < 0 || (size_t)value > device_shared_optin)
            return set_error(cudaErrorInvalidValue);
        kernel->dynamic_shared = (size_t)value;
        return cudaSuccess;
    case cudaFuncAttributeNonPortableClusterSizeAllowed:
        kernel->large_clusters = value != 0;
        return cudaSuccess;
    case cudaFuncAttributePreferredSharedMemoryCarveout: return cudaSuccess;
    default: return set_error(cudaErrorInvalidValue);
    }
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *func,
                                                          int block_size, size_t dynamic_shared)
{
    Kernel *kernel = kernel_of(func);
    if (!kernel)
        return set_error(cudaErrorInvalidDeviceFunction);
    if (!blocks || block_size < 1)
        return set_error(cudaErrorInvalidValue);
    bool fits = block_size <= device_threads_per_block && dynamic_shared <= kernel->dynamic_shared;
    *blocks = fits ? resident_blocks((uint64_t)block_size, dynamic_shared) : 0;
    return cudaSuccess;
}
}
