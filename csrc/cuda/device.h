/* Named functions for operations that CUDA C has no syntax for, so that kernels contain no
 * assembly. csrc/emulator/include/device.h has the same functions for the emulator. */
#ifndef GPUREDUCE_DEVICE_H
#define GPUREDUCE_DEVICE_H

#include <cuda_runtime.h>

#include <string.h>

/* A function that kernels call and that is not inlined. */
#define DEVICE_FUNCTION static __device__ __noinline__

/* The block's dynamic shared memory, as an array of T; the launch sets its size. (A template cannot
 * contain a plain `extern __shared__ T name[]`: all T would share one name.) */
template <typename T> __device__ __forceinline__ T *shared_array()
{
    extern __shared__ __align__(16) unsigned char gr_shared_bytes[];
    return reinterpret_cast<T *>(gr_shared_bytes);
}

/* An atomic addition that returns nothing (PTX: red), so that no thread waits for it. Where
 * the result of another addition is read, the compiler would merge the two. */
__device__ __forceinline__ void add_without_result(unsigned long long *global,
                                                   unsigned long long value)
{
    asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(__cvta_generic_to_global(global)),
                 "l"(value)
                 : "memory");
}

/* The largest and the smallest number of a warp's lanes, in all of them (PTX: redux.sync). */
__device__ __forceinline__ unsigned largest_in_warp(unsigned value)
{
#if __CUDA_ARCH__ >= 800
    return __reduce_max_sync(0xffffffffu, value);
#else
    for (unsigned offset = 16; offset > 0; offset /= 2)
        value = max(value, __shfl_xor_sync(0xffffffffu, value, offset));
    return value;
#endif
}

__device__ __forceinline__ unsigned smallest_in_warp(unsigned value)
{
    return ~largest_in_warp(~value);
}

/* The larger ones of two numbers of 16 bits in a word; and the smaller ones of these less one,
 * which wrap around, and others. */
__device__ __forceinline__ unsigned largest_halves(unsigned a, unsigned b)
{
    return __vmaxu2(a, b);
}

__device__ __forceinline__ unsigned smallest_less_one(unsigned halves, unsigned others)
{
    return __viaddmin_u16x2(halves, 0xffffffffu, others);
}

/* A value that one block passes to another, with a mark that the value has been written. One store
 * writes both and one load reads both. So no fence is needed: a block that reads the mark has also
 * read the value. */
template <typename T> struct alignas(2 * sizeof(T)) Marked {
    T value;
    unsigned mark; /* all ones if the value is written, else 0 */
};

/* Stores and loads of 8 or 16 bytes as one access. */
__device__ __forceinline__ void store_whole(void *global, unsigned long long bits)
{
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(__cvta_generic_to_global(global)),
                 "l"(bits)
                 : "memory");
}

__device__ __forceinline__ void store_whole(void *global, ulonglong2 bits)
{
    asm volatile("{\n"
                 ".reg .b128 whole;\n"
                 "mov.b128 whole, {%1, %2};\n"
                 "st.relaxed.gpu.global.b128 [%0], whole;\n"
                 "}" ::"l"(__cvta_generic_to_global(global)),
                 "l"(bits.x), "l"(bits.y)
                 : "memory");
}

__device__ __forceinline__ void load_whole(const void *global, unsigned long long &bits)
{
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];"
                 : "=l"(bits)
                 : "l"(__cvta_generic_to_global(global))
                 : "memory");
}

__device__ __forceinline__ void load_whole(const void *global, ulonglong2 &bits)
{
    asm volatile("{\n"
                 ".reg .b128 whole;\n"
                 "ld.relaxed.gpu.global.b128 whole, [%2];\n"
                 "mov.b128 {%0, %1}, whole;\n"
                 "}"
                 : "=l"(bits.x), "=l"(bits.y)
                 : "l"(__cvta_generic_to_global(global))
                 : "memory");
}

/* Loads a number that other blocks change by atomic operations. */
__device__ __forceinline__ unsigned load_current(const unsigned *global)
{
    unsigned value;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];"
                 : "=r"(value)
                 : "l"(__cvta_generic_to_global(global))
                 : "memory");
    return value;
}

template <size_t bytes> struct Whole;
template <> struct Whole<8> {
    using Bits = unsigned long long;
};
template <> struct Whole<16> {
    using Bits = ulonglong2;
};

/* Stores the value with its mark. */
template <typename T> __device__ __forceinline__ void put_marked(Marked<T> *place, T value)
{
    typename Whole<sizeof(Marked<T>)>::Bits bits;
    Marked<T> marked = {value, ~0u};
    memcpy(&bits, &marked, sizeof bits);
    store_whole(place, bits);
}

/* Loads the value and returns its mark. `value` is valid if the mark is set. */
template <typename T>
__device__ __forceinline__ unsigned get_marked(const Marked<T> *place, T &value)
{
    typename Whole<sizeof(Marked<T>)>::Bits bits;
    Marked<T> marked;
    load_whole(place, bits);
    memcpy(&marked, &bits, sizeof bits);
    value = marked.value;
    return marked.mark;
}

/* Clears the mark, for the next launch. */
template <typename T> __device__ __forceinline__ void take_mark_off(Marked<T> *place)
{
    typename Whole<sizeof(Marked<T>)>::Bits bits = {};
    store_whole(place, bits);
}

/* Programmatic dependent launch: once all blocks have called this, the next kernel on the stream
 * may start while this one still runs, which hides its launch latency. The next kernel then waits
 * in wait_for_earlier_kernels(). */
__device__ __forceinline__ void invite_next_kernel()
{
#if __CUDA_ARCH__ >= 900
    cudaTriggerProgrammaticLaunchCompletion();
#endif
}

/* Waits until all earlier kernels on the stream have ended. A kernel may read what they write only
 * after this call. Every block of a kernel with the trait OVERLAPS makes it. */
__device__ __forceinline__ void wait_for_earlier_kernels()
{
#if __CUDA_ARCH__ >= 900
    cudaGridDependencySynchronize();
#endif
}

/* Prefetches a line into L2. For data that is read after wait_for_earlier_kernels(). */
__device__ __forceinline__ void fetch_into_l2(const void *global)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(global)));
#else
    (void)global; /* older cards do not wait, so the read itself follows immediately */
#endif
}

/* For a loop that most arrays run at most once, or whose body is long. Keeps the compiler from
 * unrolling it, because an unrolled loop first computes its iteration count, and has more code. */
#define MOSTLY_ONCE _Pragma("unroll 1")

/* For a loop whose index selects from an array in registers. A loop that is not unrolled would
 * need the array in local memory. */
#define UNROLLED _Pragma("unroll")

/* Copies an element to shared memory asynchronously, or stores a zero. The copies of a
 * thread are complete after wait_for_copies(). */
template <typename T>
__device__ __forceinline__ void copy_ahead(T *shared, const T *global, bool is_there)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    if constexpr (sizeof(T) == 4 || sizeof(T) == 8)
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(
                         static_cast<unsigned>(__cvta_generic_to_shared(shared))),
                     "l"(__cvta_generic_to_global(global)), "n"(sizeof(T)),
                     "r"(is_there ? (unsigned)sizeof(T) : 0)
                     : "memory");
    else
#endif
        *shared = is_there ? *global : T{};
}

__device__ __forceinline__ void wait_for_copies()
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

/* Makes the compiler compute an address or a size at this point. Otherwise, to save a register, it
 * computes the value after wait_for_earlier_kernels(), where all threads wait for it, or once per
 * iteration of a loop. */
template <typename T> __device__ __forceinline__ void settle(T &value)
{
    asm volatile("" : "+l"(value));
}

template <typename T> __device__ __forceinline__ void settle(const T *&global)
{
    asm volatile("" : "+l"(global));
    __builtin_assume(__isGlobal(global)); /* the asm hides this from the compiler */
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

/* A barrier (mbarrier) in shared memory that counts the bytes of one bulk copy at a time. Each
 * completed copy flips its phase: 0, 1, 0, ... */
struct CopyBarrier {
    unsigned long long state;
};

__device__ __forceinline__ unsigned shared_address(const void *pointer)
{
    return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

/* Called by one thread, before a block barrier. */
__device__ __forceinline__ void copy_barrier_init(CopyBarrier *barrier)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barrier)));
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/* Called by one thread. Copies `bytes` (a multiple of 16) from global to shared memory. */
__device__ __forceinline__ void copy_start(void *shared, const void *global, unsigned bytes,
                                           CopyBarrier *barrier)
{
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
        "r"(bytes)
        : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(shared_address(shared)),
                 "l"(__cvta_generic_to_global(global)), "r"(bytes), "r"(shared_address(barrier))
                 : "memory");
}

/* Called by every thread that reads the copy. Waits until the copy of that phase is complete. */
__device__ __forceinline__ void copy_wait(CopyBarrier *barrier, unsigned phase)
{
    asm volatile("{\n"
                 ".reg .pred there;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 there, [%0], %1;\n"
                 "@there bra.uni done;\n"
                 "bra.uni again;\n"
                 "done:\n"
                 "}" ::"r"(shared_address(barrier)),
                 "r"(phase)
                 : "memory");
}

#endif

#endif
