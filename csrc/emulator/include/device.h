/* The emulator's implementation of device functions that CUDA C does not provide. The counterpart
 * for GPUs is csrc/cuda/device.h. */
#pragma once

#include "cuda_runtime.h"

#define DEVICE_FUNCTION static __attribute__((noinline))

/* The block's dynamic shared memory. */
template <typename T> GR_INTRINSIC T *shared_array()
{
    return reinterpret_cast<T *>(gr_shared);
}

GR_ACCESS void add_without_result(unsigned long long *global, unsigned long long value)
{
    GR_TRACE_ACCESS(atomic, global);
    gr_atomic_add(global, value);
}

GR_INTRINSIC unsigned largest_in_warp(unsigned value)
{
    return __reduce_max_sync(0xffffffffu, value);
}

GR_INTRINSIC unsigned smallest_in_warp(unsigned value)
{
    return ~largest_in_warp(~value);
}

GR_INTRINSIC unsigned largest_halves(unsigned a, unsigned b)
{
    unsigned low = a % 0x10000 > b % 0x10000 ? a : b, high = a / 0x10000 > b / 0x10000 ? a : b;
    return low % 0x10000 | high / 0x10000 * 0x10000;
}

GR_INTRINSIC unsigned smallest_less_one(unsigned halves, unsigned others)
{
    unsigned less = (halves - 1) % 0x10000 | (halves / 0x10000 - 1) * 0x10000;
    return ~largest_halves(~less, ~others);
}

template <typename T> GR_ACCESS void copy_ahead(T *shared, const T *global, bool is_there)
{
    *shared = is_there ? *global : T{};
}

GR_INTRINSIC void wait_for_copies() {}

/* A value for another block, and a mark that is set once the value is there. To other lanes the
 * pair appears to be stored and loaded as one: the store writes the mark last, and the load reads
 * it first. */
template <typename T> struct alignas(2 * sizeof(T)) Marked {
    T value;
    unsigned mark; /* all bits set, or 0 if there is no value */
};

template <typename T> GR_INTRINSIC void gr_store_marked(Marked<T> *place, T value, unsigned mark)
{
    __atomic_store(&place->value, &value, __ATOMIC_RELAXED);
    __atomic_store(&place->mark, &mark, __ATOMIC_RELEASE);
}

template <typename T> GR_INTRINSIC unsigned gr_load_marked(const Marked<T> *place, T &value)
{
    unsigned mark;
    __atomic_load(&place->mark, &mark, __ATOMIC_ACQUIRE);
    __atomic_load(&place->value, &value, __ATOMIC_RELAXED);
    if (mark == 0)
        gr_yield(); /* lets the lane that will store it run */
    return mark;
}

template <typename T> GR_ACCESS void put_marked(Marked<T> *place, T value)
{
    GR_TRACE_ACCESS(whole_store, place);
    gr_store_marked(place, value, ~0u);
}

/* Returns the mark. Loads the value too; it is only meaningful if the mark is set. */
template <typename T> GR_ACCESS unsigned get_marked(const Marked<T> *place, T &value)
{
    GR_TRACE_ACCESS(whole_load, place);
    return gr_load_marked(place, value);
}

template <typename T> GR_ACCESS void take_mark_off(Marked<T> *place)
{
    GR_TRACE_ACCESS(whole_store, place);
    gr_store_marked(place, T(0), 0);
}

/* Loads a number that other blocks change by atomic operations. */
GR_ACCESS unsigned load_current(const unsigned *address)
{
    GR_TRACE_ACCESS(whole_load, address);
    return __atomic_load_n(address, __ATOMIC_RELAXED);
}

/* No effect: launches do not overlap. */
GR_INTRINSIC void invite_next_kernel() {}
GR_INTRINSIC void wait_for_earlier_kernels() {}
GR_INTRINSIC void fetch_into_l2(const void *) {}
template <typename T> GR_INTRINSIC void settle(T &) {}

#define MOSTLY_ONCE
#define UNROLLED

/* A bulk copy completes as soon as it starts, which is one of the orders that the hardware allows.
 * `copies` counts completed copies; its parity is the phase. */
struct CopyBarrier {
    unsigned long long copies;
};

GR_INTRINSIC void copy_barrier_init(CopyBarrier *barrier, GR_SITE)
{
    GR_TRACE(copy_barrier, barrier, file, line);
    barrier->copies = 0;
}

GR_INTRINSIC void copy_start(void *shared, const void *global, unsigned bytes, CopyBarrier *barrier,
                             GR_SITE)
{
    GR_TRACE(copy, shared, global, bytes, barrier, file, line);
    gr_copy_bytes(shared, global, bytes);
    barrier->copies++;
    gr_copy_ordered();
}

/* Waits until phase p is complete. It is complete while the number of completed copies is p + 1, p
 * + 3, and so on. */
GR_INTRINSIC void copy_wait(CopyBarrier *barrier, unsigned phase, GR_SITE)
{
    while (__atomic_load_n(&barrier->copies, __ATOMIC_RELAXED) % 2 == phase)
        gr_await_copy(file, line);
    GR_TRACE(copied, barrier, file, line);
}
