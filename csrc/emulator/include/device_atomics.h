/* CUDA's atomic functions. They use the host's atomics, because blocks run on several OS threads.
 * Included by cuda_runtime.h. */
#pragma once

#include "lane.h"

/* An atomic that changes nothing may be polling a lock or a flag, which a suspended lane has to
 * change. Yields, so that the other lane can run. */
GR_INTRINSIC void gr_let_others(bool unchanged)
{
    if (unchanged)
        gr_yield();
}

/* A read-modify-write without a host instruction: a compare-and-swap loop around update(). Returns
 * the old value. Compares bits, so that a NaN equals itself. */
template <typename T, typename Update> GR_INTRINSIC T gr_atomic_update(T *address, Update update)
{
    T old, next;
    __atomic_load(address, &old, __ATOMIC_RELAXED);
    do
        next = update(old);
    while (
        !__atomic_compare_exchange(address, &old, &next, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return old;
}
template <typename T> GR_INTRINSIC T gr_atomic_add(T *address, T value)
{
    T old = __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
    gr_let_others(value == 0);
    return old;
}
GR_INTRINSIC float gr_atomic_add(float *address, float value)
{
    return gr_atomic_update(address, [value](float old) GR_UNTRACED { return old + value; });
}
GR_INTRINSIC double gr_atomic_add(double *address, double value)
{
    return gr_atomic_update(address, [value](double old) GR_UNTRACED { return old + value; });
}
template <typename T> GR_INTRINSIC T gr_atomic_min(T *address, T value)
{
    return gr_atomic_update(address,
                            [value](T old) GR_UNTRACED { return value < old ? value : old; });
}
template <typename T> GR_INTRINSIC T gr_atomic_max(T *address, T value)
{
    return gr_atomic_update(address,
                            [value](T old) GR_UNTRACED { return old < value ? value : old; });
}
template <typename T> GR_INTRINSIC T gr_atomic_and(T *address, T value)
{
    return __atomic_fetch_and(address, value, __ATOMIC_RELAXED);
}
template <typename T> GR_INTRINSIC T gr_atomic_or(T *address, T value)
{
    T old = __atomic_fetch_or(address, value, __ATOMIC_RELAXED);
    gr_let_others(value == 0);
    return old;
}
template <typename T> GR_INTRINSIC T gr_atomic_xor(T *address, T value)
{
    return __atomic_fetch_xor(address, value, __ATOMIC_RELAXED);
}
template <typename T> GR_INTRINSIC T gr_atomic_exchange(T *address, T value)
{
    T old;
    __atomic_exchange(address, &value, &old, __ATOMIC_RELAXED);
    gr_let_others(old == value);
    return old;
}
template <typename T> GR_INTRINSIC T gr_atomic_cas(T *address, T compare, T value)
{
    T old = compare;
    bool done =
        __atomic_compare_exchange(address, &old, &value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    gr_let_others(!done || compare == value);
    return old;
}

/* CUDA overloads these by type and converts the value to that type; a template would not convert.
 * uint64_t is unsigned long on the host and unsigned long long in CUDA, so both are overloaded. */
#define GR_ATOMIC(name, type, function)                                                            \
    GR_ACCESS type name(type *address, type value)                                                 \
    {                                                                                              \
        GR_TRACE_ACCESS(atomic, address);                                                          \
        return function(address, value);                                                           \
    }                                                                                              \
    GR_ACCESS type name##_system(type *address, type value)                                        \
    {                                                                                              \
        GR_TRACE_ACCESS(atomic, address);                                                          \
        return function(address, value);                                                           \
    }                                                                                              \
    GR_ACCESS type name##_block(type *address, type value)                                         \
    {                                                                                              \
        GR_TRACE_ACCESS(block_atomic, address);                                                    \
        return function(address, value);                                                           \
    }
#define GR_ATOMIC_WORDS(name, function)                                                            \
    GR_ATOMIC(name, int, function)                                                                 \
    GR_ATOMIC(name, unsigned int, function)                                                        \
    GR_ATOMIC(name, unsigned long, function)                                                       \
    GR_ATOMIC(name, unsigned long long, function)
#define GR_ATOMIC_INTEGERS(name, function)                                                         \
    GR_ATOMIC_WORDS(name, function)                                                                \
    GR_ATOMIC(name, long, function)                                                                \
    GR_ATOMIC(name, long long, function)

GR_ATOMIC_WORDS(atomicAdd, gr_atomic_add)
GR_ATOMIC(atomicAdd, float, gr_atomic_add)
GR_ATOMIC(atomicAdd, double, gr_atomic_add)
GR_ATOMIC_INTEGERS(atomicMin, gr_atomic_min)
GR_ATOMIC_INTEGERS(atomicMax, gr_atomic_max)
GR_ATOMIC_WORDS(atomicAnd, gr_atomic_and)
GR_ATOMIC_WORDS(atomicOr, gr_atomic_or)
GR_ATOMIC_WORDS(atomicXor, gr_atomic_xor)
GR_ATOMIC_WORDS(atomicExch, gr_atomic_exchange)
GR_ATOMIC(atomicExch, float, gr_atomic_exchange)

GR_ACCESS int atomicSub(int *address, int value)
{
    GR_TRACE_ACCESS(atomic, address);
    return gr_atomic_add(address, (int)(0u - (unsigned)value));
}
GR_ACCESS unsigned atomicSub(unsigned *address, unsigned value)
{
    GR_TRACE_ACCESS(atomic, address);
    return gr_atomic_add(address, 0u - value);
}

#define GR_ATOMIC_CAS(type)                                                                        \
    GR_ACCESS type atomicCAS(type *address, type compare, type value)                              \
    {                                                                                              \
        GR_TRACE_ACCESS(atomic, address);                                                          \
        return gr_atomic_cas(address, compare, value);                                             \
    }
GR_ATOMIC_CAS(int)
GR_ATOMIC_CAS(unsigned short)
GR_ATOMIC_CAS(unsigned int)
GR_ATOMIC_CAS(unsigned long)
GR_ATOMIC_CAS(unsigned long long)

GR_INTRINSIC unsigned gr_atomic_wrap_up(unsigned *address, unsigned limit)
{
    return gr_atomic_update(address, [limit](unsigned old)
                                         GR_UNTRACED { return old >= limit ? 0 : old + 1; });
}
GR_INTRINSIC unsigned gr_atomic_wrap_down(unsigned *address, unsigned limit)
{
    return gr_atomic_update(address, [limit](unsigned old) GR_UNTRACED {
        return old == 0 || old > limit ? limit : old - 1;
    });
}
GR_ATOMIC(atomicInc, unsigned int, gr_atomic_wrap_up)
GR_ATOMIC(atomicDec, unsigned int, gr_atomic_wrap_down)

#undef GR_ATOMIC
#undef GR_ATOMIC_WORDS
#undef GR_ATOMIC_INTEGERS
#undef GR_ATOMIC_CAS
