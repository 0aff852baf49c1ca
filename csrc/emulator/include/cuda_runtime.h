/* CUDA C's keywords and functions for the host's C++ compiler. A kernel that includes this runs on
 * the CPU, with one fiber per thread (see emulator/scheduler/scheduler.h). */
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>
#include <type_traits>

#include "cuda_runtime_api.h"
#include "lane.h"
#include "shared_variables.h"
#include "vector_functions.h"

#define __global__
#define __host__
/* `inline`, because several kernel files may include a header with device functions. C++ allows
 * `inline` only once, so __forceinline__ does not add it: device code writes `__device__` or
 * `__device__ __forceinline__`, never `__device__ inline`. */
#define __device__ inline
#define __forceinline__ __attribute__((always_inline))
#define __constant__
#define __grid_constant__
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __align__(n) __attribute__((aligned(n)))

static const int warpSize = 32;

/* Barriers and fences */
GR_ACCESS void __syncthreads(GR_SITE)
{
    gr_place = __builtin_return_address(0);
    gr_block_barrier(file, line);
}
GR_INTRINSIC int __syncthreads_count(int predicate, GR_SITE)
{
    return (int)gr_block_vote(predicate != 0, file, line).yes;
}
GR_INTRINSIC int __syncthreads_or(int predicate, GR_SITE)
{
    return gr_block_vote(predicate != 0, file, line).yes != 0;
}
GR_INTRINSIC int __syncthreads_and(int predicate, GR_SITE)
{
    gr_votes votes = gr_block_vote(predicate != 0, file, line);
    return votes.yes == votes.all;
}
GR_ACCESS void __syncwarp(unsigned mask = 0xffffffff, GR_SITE)
{
    gr_warp_collective(GR_SYNCWARP, mask, 0, 0, 32, file, line);
}
#define GR_FENCE(name, scope)                                                                      \
    GR_INTRINSIC void name(GR_SITE)                                                                \
    {                                                                                              \
        GR_TRACE(fence, scope, file, line);                                                        \
        __atomic_thread_fence(__ATOMIC_SEQ_CST);                                                   \
    }
GR_FENCE(__threadfence_block, GR_BLOCK)
GR_FENCE(__threadfence, GR_GRID)
GR_FENCE(__threadfence_system, GR_GRID)
#undef GR_FENCE
GR_INTRINSIC void __nanosleep(unsigned)
{
    gr_yield();
}
[[noreturn]] GR_INTRINSIC void __trap(GR_SITE)
{
    gr_trap(file, line);
}

/* Shuffles: any arithmetic type of 4 or 8 bytes */
template <typename T>
GR_INTRINSIC T gr_shuffle(gr_collective op, unsigned mask, T value, int argument, int width,
                          const char *file, int line)
{
    static_assert(std::is_arithmetic<T>::value && (sizeof(T) == 4 || sizeof(T) == 8),
                  "CUDA shuffles 4 and 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    bits = gr_warp_collective(op, mask, bits, argument, width, file, line);
    memcpy(&value, &bits, sizeof value);
    return value;
}
#define GR_SHUFFLE(name, type, op)                                                                 \
    template <typename T>                                                                          \
    GR_INTRINSIC T name(unsigned mask, T value, type lane, int width = 32, GR_SITE)                \
    {                                                                                              \
        return gr_shuffle(op, mask, value, (int)lane, width, file, line);                          \
    }
GR_SHUFFLE(__shfl_sync, int, GR_SHUFFLE_INDEX)
GR_SHUFFLE(__shfl_up_sync, unsigned, GR_SHUFFLE_UP)
GR_SHUFFLE(__shfl_down_sync, unsigned, GR_SHUFFLE_DOWN)
GR_SHUFFLE(__shfl_xor_sync, int, GR_SHUFFLE_XOR)
#undef GR_SHUFFLE

/* Votes and reductions over a warp */
GR_INTRINSIC unsigned __activemask(GR_SITE)
{
    return gr_active_lanes(file, line);
}
#define GR_VOTE(name, type, op)                                                                    \
    GR_INTRINSIC type name(unsigned mask, int predicate, GR_SITE)                                  \
    {                                                                                              \
        return (type)gr_warp_collective(op, mask, predicate != 0, 0, 32, file, line);              \
    }
GR_VOTE(__ballot_sync, unsigned, GR_BALLOT)
GR_VOTE(__any_sync, int, GR_ANY)
GR_VOTE(__all_sync, int, GR_ALL)
#undef GR_VOTE
/* Of any arithmetic type: small ones become int, as in CUDA. */
template <typename T> GR_INTRINSIC unsigned __match_any_sync(unsigned mask, T value, GR_SITE)
{
    auto whole = +value;
    uint64_t bits = 0;
    static_assert(sizeof whole <= sizeof bits, "CUDA compares numbers of 4 and 8 bytes");
    memcpy(&bits, &whole, sizeof whole);
    return (unsigned)gr_warp_collective(GR_MATCH, mask, bits, 0, 32, file, line);
}
#define GR_REDUCE(name, type, op)                                                                  \
    GR_INTRINSIC type name(unsigned mask, type value, GR_SITE)                                     \
    {                                                                                              \
        return (type)gr_warp_collective(op, mask, (unsigned)value, 0, 32, file, line);             \
    }
GR_REDUCE(__reduce_add_sync, unsigned, GR_REDUCE_ADD)
GR_REDUCE(__reduce_add_sync, int, GR_REDUCE_ADD)
GR_REDUCE(__reduce_min_sync, unsigned, GR_REDUCE_MIN)
GR_REDUCE(__reduce_min_sync, int, GR_REDUCE_MIN_SIGNED)
GR_REDUCE(__reduce_max_sync, unsigned, GR_REDUCE_MAX)
GR_REDUCE(__reduce_max_sync, int, GR_REDUCE_MAX_SIGNED)
GR_REDUCE(__reduce_and_sync, unsigned, GR_REDUCE_AND)
GR_REDUCE(__reduce_or_sync, unsigned, GR_REDUCE_OR)
GR_REDUCE(__reduce_xor_sync, unsigned, GR_REDUCE_XOR)
#undef GR_REDUCE

/* Loads with a cache hint. Stores do not reach the cache of __ldg, and other hints are ignored. */
#define GR_LOAD(name, kind)                                                                        \
    template <typename T> GR_ACCESS T name(const T *address)                                       \
    {                                                                                              \
        T value;                                                                                   \
        GR_TRACE_ACCESS(kind, address);                                                            \
        memcpy(&value, address, sizeof value);                                                     \
        return value;                                                                              \
    }
GR_LOAD(__ldg, cached_load)
GR_LOAD(__ldca, load)
GR_LOAD(__ldcg, load)
GR_LOAD(__ldlu, load)
GR_LOAD(__ldcv, load)
#undef GR_LOAD

/* A load of elements that are read once, as in long loops. Now and then, it checks for Ctrl-C. */
template <typename T> GR_ACCESS T __ldcs(const T *address)
{
    GR_TRACE_ACCESS(load, address);
    if (__builtin_expect(gr_loads++ % 65536 == 65535, 0))
        gr_look();
    return *address;
}

#include "device_arithmetic.h"
#include "device_atomics.h"
