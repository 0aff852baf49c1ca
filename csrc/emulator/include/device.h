/* What CUDA C has no word for, as the emulator does it. Its twin is csrc/cuda/device.h. */
#ifndef GPUREDUCE_EMULATOR_DEVICE_H
#define GPUREDUCE_EMULATOR_DEVICE_H

#include "cuda_runtime.h"

#define DEVICE_FUNCTION static __attribute__((noinline))

/* The block's dynamic shared memory. */
template <typename T> GR_INTRINSIC T *shared_array()
{
    return reinterpret_cast<T *>(gr_shared);
}

/* As on the card: an atomic that is a fence to both sides. */
GR_ACCESS unsigned draw_ticket(unsigned *ticket, unsigned last, GR_SITE)
{
    __threadfence(file, line);
    unsigned drawn = atomicInc(ticket, last);
    GR_TRACE(acquire);
    return drawn;
}

/* There is no cache that others do not see. */
template <typename T> GR_ACCESS T load_fresh(const T *address)
{
    return *address;
}

/* Launches follow one another here. */
GR_INTRINSIC void invite_next_kernel() {}
GR_INTRINSIC void wait_for_earlier_kernels() {}
template <typename T> GR_INTRINSIC void settle(T &) {}
#define MOSTLY_ONCE

/* A bulk copy is over when it is started: one of the orders that the hardware allows. `copies`
 * counts the completed ones; their parity is the phase. */
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

/* Phase p is over once copy p + 1, p + 3, ... is there, and not yet the one after it. */
GR_INTRINSIC void copy_wait(CopyBarrier *barrier, unsigned phase, GR_SITE)
{
    while (__atomic_load_n(&barrier->copies, __ATOMIC_RELAXED) % 2 == phase)
        gr_await_copy(file, line);
    GR_TRACE(copied, barrier, file, line);
}

#endif
