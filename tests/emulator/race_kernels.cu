/* Small kernels that test the race detector: operations that order two threads, and operations that
 * do not. Each line that begins with KERNEL has its traits for the engine, and what the detector
 * must report as missing; tools/mutant_build.py reads it. */
#include "parts/common.h"

#include <cooperative_groups.h>

// KERNEL warp_barrier: ONE | PARTIALS | SHARED_THREADS: nothing
template <typename In, typename Acc> __global__ void warp_barrier(In, Acc *out, size_t)
{
    Acc *shared = shared_array<Acc>();
    shared[threadIdx.x] = 1;
    __syncwarp();
    Acc right = shared[threadIdx.x ^ 1];
    if (threadIdx.x == 0)
        out[blockIdx.x] = right;
}

// KERNEL shuffle_alone: ONE | PARTIALS | SHARED_THREADS: __syncwarp()
template <typename In, typename Acc> __global__ void shuffle_alone(In, Acc *out, size_t)
{
    Acc *shared = shared_array<Acc>();
    shared[threadIdx.x] = 1;
    Acc sum = warp_sum(Acc(1)) + shared[threadIdx.x ^ 1];
    if (threadIdx.x == 0)
        out[blockIdx.x] = sum;
}

// KERNEL ballot_alone: ONE | PARTIALS | SHARED_THREADS: __syncwarp()
template <typename In, typename Acc> __global__ void ballot_alone(In, Acc *out, size_t)
{
    Acc *shared = shared_array<Acc>();
    shared[threadIdx.x] = 1;
    Acc sum = __ballot_sync(0xffffffffu, 1) + shared[threadIdx.x ^ 1];
    if (threadIdx.x == 0)
        out[blockIdx.x] = sum;
}

// KERNEL own_bytes: ONE | PARTIALS | SHARED_THREADS: nothing
template <typename In, typename Acc> __global__ void own_bytes(In, Acc *out, size_t)
{
    unsigned char *shared = shared_array<unsigned char>();
    shared[threadIdx.x] = 1;
    shared[threadIdx.x] += 1;
    if (threadIdx.x == 0)
        out[blockIdx.x] = shared[0];
}

// KERNEL word_over_bytes: ONE | PARTIALS | SHARED_THREADS: __syncwarp()
template <typename In, typename Acc> __global__ void word_over_bytes(In, Acc *out, size_t)
{
    shared_array<unsigned char>()[threadIdx.x] = 1;
    if (threadIdx.x == 0)
        out[blockIdx.x] = shared_array<unsigned>()[0];
}

/* Thread 0 hands a value to thread 32, by a flag. */
template <typename Acc, bool Released, bool Acquired> __device__ void hand_over(Acc *out)
{
    Acc *value = shared_array<Acc>();
    unsigned *flag = reinterpret_cast<unsigned *>(value + 1);
    if (threadIdx.x == 0)
        *flag = 0;
    __syncthreads();
    if (threadIdx.x == 0) {
        *value = 1;
        if (Released)
            __threadfence_block();
        atomicExch(flag, 1u);
    }
    if (threadIdx.x == 32) {
        while (atomicAdd(flag, 0u) == 0)
            ;
        if (Acquired)
            __threadfence_block();
        out[blockIdx.x] = *value;
    }
}

// KERNEL flag_with_fences: ONE | PARTIALS | SHARED_THREADS: nothing
template <typename In, typename Acc> __global__ void flag_with_fences(In, Acc *out, size_t)
{
    hand_over<Acc, true, true>(out);
}

// KERNEL flag_not_released: ONE | PARTIALS | SHARED_THREADS: __threadfence()
template <typename In, typename Acc> __global__ void flag_not_released(In, Acc *out, size_t)
{
    hand_over<Acc, false, true>(out);
}

// KERNEL flag_not_acquired: ONE | PARTIALS | SHARED_THREADS: __threadfence()
template <typename In, typename Acc> __global__ void flag_not_acquired(In, Acc *out, size_t)
{
    hand_over<Acc, true, false>(out);
}

// KERNEL volatile_is_not_atomic: ONE | PARTIALS | SHARED_THREADS: __syncthreads()
template <typename In, typename Acc> __global__ void volatile_is_not_atomic(In, Acc *out, size_t)
{
    volatile Acc *shared = shared_array<Acc>();
    if (threadIdx.x == 0)
        shared[0] = 1;
    if (threadIdx.x == 32)
        out[blockIdx.x] = shared[0];
}

// KERNEL atomic_and_plain: ONE | PARTIALS | SHARED_THREADS: __syncthreads()
template <typename In, typename Acc> __global__ void atomic_and_plain(In, Acc *out, size_t)
{
    Acc *shared = shared_array<Acc>();
    if (threadIdx.x == 0)
        shared[0] = 0;
    __syncthreads();
    atomicAdd(shared, Acc(1));
    if (threadIdx.x == 32)
        out[blockIdx.x] = shared[0];
}

/* Thread 32 writes, and fences ahead of the barrier; thread 0 draws the ticket behind it. */
template <typename Acc, bool Fenced>
__device__ void draw_for_another(Acc *out, Acc *work, unsigned *ticket)
{
    bool last = false;
    if (threadIdx.x == 32) {
        work[blockIdx.x] = 1;
        if (Fenced)
            __threadfence();
    }
    __syncthreads();
    if (threadIdx.x == 0)
        last = atomicInc(ticket, gridDim.x - 1) == gridDim.x - 1;
    if (!__syncthreads_or(last))
        return;
    __threadfence();
    if (threadIdx.x == 64)
        *out = work[0] + work[gridDim.x - 1];
}

// KERNEL fence_before_barrier: MANY | FINISHES | SHARED_WARPS | WORK_BLOCKS | TICKET: nothing
template <typename In, typename Acc>
__global__ void fence_before_barrier(In, Acc *out, size_t, Acc *work, unsigned *ticket)
{
    draw_for_another<Acc, true>(out, work, ticket);
}

// KERNEL no_fence_before_barrier: MANY | FINISHES | SHARED_WARPS | WORK_BLOCKS | TICKET:
// __threadfence()
template <typename In, typename Acc>
__global__ void no_fence_before_barrier(In, Acc *out, size_t, Acc *work, unsigned *ticket)
{
    draw_for_another<Acc, false>(out, work, ticket);
}

/* The block that draws the last ticket, or the first one, resets the ticket by a plain store. */
template <bool Last> __device__ void reset_ticket(unsigned *ticket)
{
    if (threadIdx.x == 0 && atomicAdd(ticket, 1u) == (Last ? gridDim.x - 1 : 0))
        *ticket = 0;
}

// KERNEL reset_by_the_last: MANY | FINISHES | SHARED_WARPS | WORK_BLOCKS | TICKET: nothing
template <typename In, typename Acc>
__global__ void reset_by_the_last(In, Acc *, size_t, Acc *, unsigned *ticket)
{
    reset_ticket<true>(ticket);
}

// KERNEL reset_by_the_first: MANY | FINISHES | SHARED_WARPS | WORK_BLOCKS | TICKET: grid.sync()
template <typename In, typename Acc>
__global__ void reset_by_the_first(In, Acc *, size_t, Acc *, unsigned *ticket)
{
    reset_ticket<false>(ticket);
}

/* A block writes before, or after, it arrives at the cluster's barrier. */
template <typename Acc, bool Before> __device__ void arrive_and_wait(Acc *out)
{
    cooperative_groups::cluster_group group = cooperative_groups::this_cluster();
    Acc *shared = shared_array<Acc>();
    if (Before && threadIdx.x == 0)
        shared[0] = 1;
    group.barrier_arrive();
    if (!Before && threadIdx.x == 0)
        shared[0] = 1;
    group.barrier_wait();
    if (group.block_rank() == 0 && threadIdx.x == 0)
        out[blockIdx.x / group.num_blocks()] = *group.map_shared_rank(shared, 5);
    group.sync();
}

// KERNEL written_before_arrival: MANY | PARTIALS | SHARED_WARPS | CLUSTER: nothing
template <typename In, typename Acc> __global__ void written_before_arrival(In, Acc *out, size_t)
{
    arrive_and_wait<Acc, true>(out);
}

// KERNEL written_after_arrival: MANY | PARTIALS | SHARED_WARPS | CLUSTER: cluster.sync()
template <typename In, typename Acc> __global__ void written_after_arrival(In, Acc *out, size_t)
{
    arrive_and_wait<Acc, false>(out);
}
