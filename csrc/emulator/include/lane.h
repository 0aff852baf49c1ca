/* What kernel code calls in the emulator's runtime. Kernels never include this: the headers that
 * stand in for CUDA's do. */
#ifndef GPUREDUCE_EMULATOR_LANE_H
#define GPUREDUCE_EMULATOR_LANE_H

#include <stddef.h>
#include <stdint.h>

#include "vector_types.h"

/* In the traced build the kernels, and with them these headers, are compiled with the compiler's
 * memory hooks. What a header function touches for its own ends is not the kernel's access. */
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

/* For copies of structures clang 14 calls memcpy itself where gcc, and later ones, call a hook. */
#if defined(GR_KERNEL_TRACED) && defined(__clang__)
__asm__(".set memcpy, __tsan_memcpy\n.set memmove, __tsan_memmove\n.set memset, __tsan_memset");
#endif

/* A function of these headers that is no access by the kernel; one that is (a load, an atomic) is
 * inlined always, so that its hook's return address lies in the kernel. */
#define GR_INTRINSIC GR_UNTRACED inline
#define GR_ACCESS inline __attribute__((always_inline))

/* Every function that can make a lane wait takes the place it was called from, through default
 * arguments, so that a report names the kernel's lines without a macro in the kernel's text. */
#define GR_SITE const char *file = __builtin_FILE(), int line = __builtin_LINE()

/* The lane that runs now. The scheduler sets these whenever it switches; initial-exec, for they are
 * read at every step and are few enough for the static TLS block's spare room. __thread, not
 * thread_local: no wrapper function stands before the access. */
#define GR_BUILTIN extern __thread __attribute__((tls_model("initial-exec")))
GR_BUILTIN uint3 threadIdx;
GR_BUILTIN uint3 blockIdx;
GR_BUILTIN dim3 blockDim;
GR_BUILTIN dim3 gridDim;
GR_BUILTIN char *gr_shared; /* the block's dynamic shared memory */

/* What lanes of a warp can do together. */
enum gr_collective {
    GR_SYNCWARP,
    GR_SHUFFLE_INDEX,
    GR_SHUFFLE_UP,
    GR_SHUFFLE_DOWN,
    GR_SHUFFLE_XOR,
    GR_BALLOT,
    GR_ANY,
    GR_ALL,
    GR_REDUCE_ADD,
    GR_REDUCE_MIN,
    GR_REDUCE_MAX,
    GR_REDUCE_MIN_SIGNED,
    GR_REDUCE_MAX_SIGNED,
    GR_REDUCE_AND,
    GR_REDUCE_OR,
    GR_REDUCE_XOR,
    GR_COLLECTIVE_COUNT
};

/* Whom a barrier gathers. */
enum gr_scope { GR_BLOCK, GR_CLUSTER, GR_GRID, GR_SCOPE_COUNT };

/* Where the running lane's block stands, for cooperative groups. */
struct gr_position {
    unsigned block_rank, blocks;         /* in the grid */
    unsigned cluster_rank, cluster_size; /* in the cluster */
    size_t shared_stride; /* from one block's shared memory to the next one's of its cluster */
    bool cooperative;
};

void gr_block_barrier(const char *file, int line);
/* As gr_block_barrier; returns the number of lanes whose predicate is not 0, and of all lanes. */
struct gr_votes {
    unsigned yes, all;
};
gr_votes gr_block_vote(bool predicate, const char *file, int line);
void gr_wide_barrier(gr_scope scope, const char *file, int line);
void gr_cluster_arrive(const char *file, int line);
void gr_cluster_wait(const char *file, int line);
uint64_t gr_warp_collective(gr_collective op, unsigned mask, uint64_t value, int argument,
                            int width, const char *file, int line);
unsigned gr_warp_live(void);
gr_position gr_where(void);
/* memcpy, unseen. */
void gr_copy_bytes(void *to, const void *from, size_t bytes);
/* Lets another lane run: for lanes that wait in a loop of their own, on a lock or a flag. */
void gr_yield(void);
/* The same for a lane that waits for a bulk copy; and somebody has ordered one. */
void gr_await_copy(const char *file, int line);
void gr_copy_ordered(void);
[[noreturn]] void gr_trap(const char *file, int line);

/* The traced build's word for "an atomic access here"; its return address is the place. And for a
 * load or a store in one piece, which no other such access races with. */
extern "C" {
void gr_trace_atomic(const void *address, size_t size);
void gr_trace_whole_load(const void *address, size_t size);
void gr_trace_whole_store(const void *address, size_t size);
}
#ifdef GR_KERNEL_TRACED
#define GR_TRACE_ATOMIC(address) gr_trace_atomic(address, sizeof *(address))
#define GR_TRACE_WHOLE(access, address) gr_trace_whole_##access(address, sizeof *(address))
#else
#define GR_TRACE_ATOMIC(address) (void)0
#define GR_TRACE_WHOLE(access, address) (void)0
#endif

/* The same for a fence and for bulk copies: a barrier made for them, a copy ordered, copies waited
 * for. */
extern "C" {
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

/* This thread's rank in its block; x runs fastest. */
GR_INTRINSIC unsigned gr_thread_rank(void)
{
    return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}

#endif
