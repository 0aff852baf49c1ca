/* Functions of the emulator's runtime that kernel code calls. Kernels do not include this directly;
 * the headers that replace CUDA's do. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "vector_types.h"

/* In the traced build, kernels are compiled with the compiler's memory access hooks, and so are
 * these headers. GR_UNTRACED turns the hooks off in header functions whose own accesses are not the
 * kernel's. */
#if defined(__SANITIZE_THREAD__)
#define GR_KERNEL_TRACED 1
#define GR_UNTRACED __attribute__((no_sanitize_thread))
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define GR_KERNEL_TRACED 1
#define GR_UNTRACED __attribute__((no_sanitize("thread"), disable_sanitizer_instrumentation))
#endif
#endif
#ifndef GR_UNTRACED
#define GR_UNTRACED
#endif

/* For structure copies clang 14 calls memcpy itself; gcc and later versions of clang call a
 * hook. */
#if defined(GR_KERNEL_TRACED) && defined(__clang__)
__asm__(".set memcpy, __tsan_memcpy\n.set memmove, __tsan_memmove\n.set memset, __tsan_memset");
#endif

/* GR_INTRINSIC: a header function that is not an access by the kernel. GR_ACCESS: one that is, such
 * as a load or an atomic. In the traced build it is not inlined, because GR_TRACE_ACCESS reports
 * its return address: the access's place in the kernel. A whole load or store is made in one piece,
 * and does not race with other whole accesses or atomics. */
#define GR_INTRINSIC GR_UNTRACED inline
#ifdef GR_KERNEL_TRACED
#define GR_ACCESS GR_INTRINSIC __attribute__((noinline))
#define GR_TRACE_ACCESS(kind, address)                                                             \
    gr_trace_##kind(address, sizeof *(address), __builtin_return_address(0))
#else
#define GR_ACCESS inline __attribute__((always_inline))
#define GR_TRACE_ACCESS(kind, address) (void)0
#endif

/* The caller's file and line, as default arguments. Every function that can make a lane wait takes
 * them, so that reports name lines of the kernel without macros in the kernel. */
#define GR_SITE const char *file = __builtin_FILE(), int line = __builtin_LINE()

/* Kernels of users are libraries of their own, and call what is declared from here on. */
#pragma GCC visibility push(default)

/* The built-in variables of the running lane, which the scheduler sets at every switch.
 * initial-exec, because they are read very often and fit into the spare room of the static TLS
 * block. __thread instead of thread_local avoids a wrapper function at each access. */
#define GR_BUILTIN extern __thread __attribute__((tls_model("initial-exec")))
GR_BUILTIN uint3 threadIdx;
GR_BUILTIN uint3 blockIdx;
GR_BUILTIN dim3 blockDim;
GR_BUILTIN dim3 gridDim;
GR_BUILTIN char *gr_shared;            /* the block's dynamic shared memory */
GR_BUILTIN unsigned gr_loads;          /* the number of calls of __ldcs() */
GR_BUILTIN const void *gr_place;       /* code address of the running lane's last __syncthreads() */
GR_BUILTIN const char *gr_shared_name; /* name of `gr_shared` in the kernel; null: not known */

/* The collectives of a warp's lanes. */
enum gr_collective {
    GR_SYNCWARP,
    GR_SHUFFLE_INDEX,
    GR_SHUFFLE_UP,
    GR_SHUFFLE_DOWN,
    GR_SHUFFLE_XOR,
    GR_BALLOT,
    GR_ANY,
    GR_ALL,
    GR_MATCH,
    GR_REDUCE_ADD,
    GR_REDUCE_MIN,
    GR_REDUCE_MAX,
    GR_REDUCE_MIN_SIGNED,
    GR_REDUCE_MAX_SIGNED,
    GR_REDUCE_AND,
    GR_REDUCE_OR,
    GR_REDUCE_XOR,
    GR_ACTIVE_MASK,
    GR_COLLECTIVE_COUNT
};

/* The lanes that a barrier synchronizes. */
enum gr_scope { GR_BLOCK, GR_CLUSTER, GR_GRID, GR_SCOPE_COUNT };

/* The position of the running lane's block, for cooperative groups. */
struct gr_position {
    unsigned block_rank, blocks;         /* in the grid */
    unsigned cluster_rank, cluster_size; /* in the cluster */
    /* distance between the shared memory of consecutive blocks of a cluster */
    size_t shared_stride;
    bool cooperative;
};

void gr_block_barrier(const char *file, int line);
/* Like gr_block_barrier. Returns the number of lanes with a nonzero predicate, and of all lanes. */
struct gr_votes {
    unsigned yes, all;
};
gr_votes gr_block_vote(bool predicate, const char *file, int line);
void gr_wide_barrier(gr_scope scope, const char *file, int line);
void gr_cluster_arrive(const char *file, int line);
void gr_cluster_wait(const char *file, int line);
uint64_t gr_warp_collective(gr_collective op, unsigned mask, uint64_t value, int argument,
                            int width, const char *file, int line);
/* The lanes that are at this line when no lane of the warp can go on without them. */
unsigned gr_active_lanes(const char *file, int line);
gr_position gr_where(void);
/* memcpy without memory access hooks. */
void gr_copy_bytes(void *to, const void *from, size_t bytes);
/* Lets another lane run. For lanes that spin on a lock or a flag. */
void gr_yield(void);
/* Ends the team if the launch has failed or was interrupted. */
void gr_look(void);
/* gr_await_copy: like gr_yield, for a lane that polls for a bulk copy. gr_copy_ordered: to be
 * called after starting a bulk copy. */
void gr_await_copy(const char *file, int line);
void gr_copy_ordered(void);
[[noreturn]] void gr_trap(const char *file, int line);
/* Faults: an array's index beyond its bounds, in a column of the line; a local array that was
 * written beyond its end by the function that returns to this address; an assertion. */
void gr_bad_index(const char *file, unsigned line, unsigned column, const char *type, long index);
void gr_bad_local(const void *place);
void gr_bad_assertion(const char *file, unsigned line, const char *text);
void gr_misaligned(const char *file, unsigned line, const char *type, unsigned bytes);

/* In the traced build, report an access (see GR_TRACE_ACCESS), a fence, the initialization of an
 * mbarrier for bulk copies, the start of a copy, and the end of a wait for copies. */
extern "C" {
void gr_trace_load(const void *address, size_t size, const void *place);
void gr_trace_cached_load(const void *address, size_t size, const void *place);
void gr_trace_atomic(const void *address, size_t size, const void *place);
void gr_trace_block_atomic(const void *address, size_t size, const void *place);
void gr_trace_whole_load(const void *address, size_t size, const void *place);
void gr_trace_whole_store(const void *address, size_t size, const void *place);
void gr_trace_fence(gr_scope scope, const char *file, int line);
void gr_trace_copy_barrier(const void *barrier, const char *file, int line);
void gr_trace_copy(const void *shared, const void *global, size_t bytes, const void *barrier,
                   const char *file, int line);
void gr_trace_copied(const void *barrier, const char *file, int line);
}
#ifdef GR_KERNEL_TRACED
#define GR_TRACE(event, ...) gr_trace_##event(__VA_ARGS__)
#else
#define GR_TRACE(event, ...) ((void)file, (void)line)
#endif

#pragma GCC visibility pop

/* This thread's rank in its block; x varies fastest. */
GR_INTRINSIC unsigned gr_thread_rank(void)
{
    return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}
