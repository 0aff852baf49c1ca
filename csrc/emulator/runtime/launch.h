/* One launch of a kernel, as all workers see it. */
#ifndef GPUREDUCE_EMULATOR_LAUNCH_H
#define GPUREDUCE_EMULATOR_LAUNCH_H

#include <atomic>
#include <mutex>
#include <new>
#include <string>
#include <stdint.h>

#include "cuda_runtime_api.h"
#include "emulator/runtime/emulator.h"
#include "kernel_entry.h"
#include "threads/interrupts.h"

namespace gr
{

/* The emulated device */
constexpr int device_sms = 4;
constexpr int device_threads_per_sm = 2048;
constexpr int device_blocks_per_sm = 32;
constexpr int device_threads_per_block = 1024;
constexpr size_t device_shared_per_sm = 228 << 10;
constexpr size_t device_shared_per_block = 48 << 10;
constexpr size_t device_shared_optin = 227 << 10;
constexpr size_t device_shared_reserved = 1 << 10; /* per block, the system's own */
constexpr unsigned device_portable_cluster = 8;
constexpr unsigned device_largest_cluster = 16;

struct Kernel {
    uint64_t magic; /* tells a handle from another pointer */
    gr_any_kernel kernel;
    gr_kernel_caller caller;
    const unsigned *pointees; /* by parameter: bytes of what it points to; 0: no pointer */
    unsigned parameters;
    std::atomic<size_t> dynamic_shared; /* what it may ask for */
    std::atomic<bool> large_clusters;
};

/* What decides how a worker lays out its arrays. */
struct Shape {
    dim3 block;
    unsigned cluster_blocks, team_blocks;
    size_t shared;
};

struct Launch {
    const Kernel *kernel;
    void **args;
    dim3 grid, cluster;
    Shape shape;
    size_t shared_stride; /* from one block's shared memory to the next one's */
    bool cooperative;
    gr_schedule schedule;
    uint64_t seed;
    uint64_t teams, batch;

    const gr_interrupts *watch; /* of the thread that launched; may be null */

    std::atomic<bool> failed;
    std::mutex mutex; /* for the two below */
    cudaError_t error;
    std::string fault;
};

/* Whether what has not run yet shall not run: from any thread. */
inline bool is_stopped(const Launch *launch)
{
    return launch->failed || gr_is_interrupted(launch->watch);
}

/* The first failure of a launch counts. Throws nothing. */
void launch_failed(Launch *launch, cudaError_t error, const char *fault);

/* What a function of the runtime does, which may throw for want of memory. */
template <typename Step> cudaError_t without_throwing(Step step)
{
    try {
        return step();
    } catch (const std::bad_alloc &) {
        return cudaErrorMemoryAllocation;
    }
}

/* The device memory that this address lies in, from its first byte; 0 bytes: it lies in none. */
size_t device_range(const void *address, uintptr_t *first);

/* Sets the thread's last error. */
cudaError_t set_error(cudaError_t error);

} // namespace gr

#endif
