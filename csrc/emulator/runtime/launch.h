/* One launch of a kernel, shared by all workers. */
#pragma once

#include <atomic>
#include <mutex>
#include <new>
#include <string>
#include <stdint.h>

#include "cuda_runtime_api.h"
#include "kernel_entry.h"
#include "shared_variables.h"
#include "threads/interrupts.h"

namespace gr
{

/* The emulated device */
constexpr int device_sms = 4, device_l2_bytes = 1 << 20;
constexpr int device_threads_per_sm = 2048;
constexpr int device_blocks_per_sm = 32;
constexpr int device_threads_per_block = 1024;
constexpr size_t device_shared_per_sm = 228 << 10;
constexpr size_t device_shared_per_block = 48 << 10;
constexpr size_t device_shared_optin = 227 << 10;
constexpr size_t device_shared_reserved = 1 << 10; /* per block, reserved by the system */
constexpr unsigned device_portable_cluster = 8;
constexpr unsigned device_largest_cluster = 16;
constexpr int most_devices = 64; /* emulated devices */

/* The calling thread's current device. */
int current_device();

/* An error unless launches on the stream can run on the current device. */
cudaError_t check_stream(cudaStream_t stream);

/* The order in which the lanes (CUDA threads) of a block, and the blocks of a grid, run. A correct
 * kernel returns the same sum under all four schedules; an incorrect one usually fails under at
 * least one. The numbers are those of gr_backend_schedule().
 *
 * FORWARD   lanes and blocks 0, 1, 2, ...; a lane runs until it has to wait
 * REVERSE   like FORWARD, from the last to the first
 * RANDOM    every switch draws the next lane at random, and blocks are permuted. The draws depend
 *           only on the seed and the block. The traced build also switches at about every 16th
 *           memory access. Under the race detector, the blocks of a small grid run side by side
 * LOCKSTEP  traced build: the lanes of a warp switch at every memory access, as warps did before
 *           Volta. Plain build: like FORWARD
 */
enum gr_schedule {
    GR_SCHEDULE_FORWARD,
    GR_SCHEDULE_REVERSE,
    GR_SCHEDULE_RANDOM,
    GR_SCHEDULE_LOCKSTEP
};

struct Kernel {
    uint64_t magic; /* tells a handle from any other pointer */
    gr_any_kernel kernel;
    gr_kernel_caller caller;
    /* by parameter: its name, and the size of the type that it points to; 0: it is no pointer */
    const char *const *names;
    const unsigned *pointees;
    unsigned parameters;
    std::atomic<size_t> dynamic_shared; /* the kernel's limit */
    std::atomic<bool> large_clusters;
    const gr_variable *variables; /* its __shared__ variables, and others of its library */
};

/* Everything that a worker's array layout depends on. */
struct Shape {
    dim3 block;
    unsigned cluster_blocks, team_blocks;
    size_t shared; /* bytes of a block's dynamic shared memory */
    const gr_variable *variables;
};

struct Launch {
    const Kernel *kernel;
    void **args;
    dim3 grid, cluster;
    Shape shape;
    bool cooperative;
    gr_schedule schedule;
    uint64_t number, seed; /* of the schedule: as given, and mixed */
    uint64_t teams, batch;

    const gr_interrupts *watch; /* interrupts of the launching thread; may be null */

    std::atomic<bool> failed;
    std::mutex mutex; /* guards the two below */
    cudaError_t error;
    std::string fault;
};

/* Whether teams that have not started must not start. Callable from any thread. */
inline bool is_stopped(const Launch *launch)
{
    return launch->failed || gr_is_interrupted(launch->watch);
}

/* The team that runs at this turn in the launch's order. */
uint64_t team_at(const Launch *launch, uint64_t turn);

/* Records a launch's failure; only the first one counts. Throws nothing. */
void launch_failed(Launch *launch, cudaError_t error, const char *fault);

/* Runs part of a runtime function; turns std::bad_alloc into an error code. */
template <typename Step> cudaError_t without_throwing(Step step)
{
    try {
        return step();
    } catch (const std::bad_alloc &) {
        return cudaErrorMemoryAllocation;
    }
}

/* Finds the device allocation that contains this address. Returns its size, or 0 if there is
 * none. */
size_t device_range(const void *address, uintptr_t *first);

/* Sets the thread's last error. */
cudaError_t set_error(cudaError_t error);

} // namespace gr
