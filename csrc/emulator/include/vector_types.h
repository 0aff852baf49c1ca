/* CUDA's short vector types, with CUDA's alignment: a 16-byte vector is one 16-byte load. C and
 * C++. */
#pragma once

/* gcc's memory access hooks do not see a vector that is copied from memory into an argument, as in
 * add(in[i]). So for kernels of users the copy constructor reports the load itself. */
#if defined(GR_USER_KERNEL) && defined(__SANITIZE_THREAD__) && !defined(__clang__)
#include <stddef.h>
extern "C" __attribute__((visibility("default"))) void
gr_trace_load(const void *address, size_t size, const void *place);
#define GR_TRACED_COPY(name)                                                                       \
    name &operator=(const name &) = default;                                                       \
    __attribute__((no_sanitize_thread, noinline)) name(const name &other)                          \
    {                                                                                              \
        gr_trace_load(&other, sizeof other, __builtin_return_address(0));                          \
        __builtin_memcpy(this, &other, sizeof other);                                              \
    }
#define GR_COPIES(name, members, ...)                                                              \
    name() = default;                                                                              \
    __attribute__((no_sanitize_thread)) constexpr name(__VA_ARGS__) : members {}                   \
    GR_TRACED_COPY(name)
#else
#define GR_TRACED_COPY(name)
#define GR_COPIES(name, members, ...)
#endif
#define GR_MEMBERS(...) __VA_ARGS__

#define GR_VECTOR_TYPES(scalar, name, align2, align4)                                              \
    struct __attribute__((aligned(sizeof(scalar)))) name##1                                        \
    {                                                                                              \
        scalar x;                                                                                  \
        GR_COPIES(name##1, GR_MEMBERS(x(x)), scalar x)                                             \
    };                                                                                             \
    struct __attribute__((aligned(align2))) name##2                                                \
    {                                                                                              \
        scalar x, y;                                                                               \
        GR_COPIES(name##2, GR_MEMBERS(x(x), y(y)), scalar x, scalar y = 0)                         \
    };                                                                                             \
    struct __attribute__((aligned(sizeof(scalar)))) name##3                                        \
    {                                                                                              \
        scalar x, y, z;                                                                            \
        GR_COPIES(name##3, GR_MEMBERS(x(x), y(y), z(z)), scalar x, scalar y = 0, scalar z = 0)     \
    };                                                                                             \
    struct __attribute__((aligned(align4))) name##4                                                \
    {                                                                                              \
        scalar x, y, z, w;                                                                         \
        GR_COPIES(name##4, GR_MEMBERS(x(x), y(y), z(z), w(w)), scalar x, scalar y = 0,             \
                  scalar z = 0, scalar w = 0)                                                      \
    };                                                                                             \
    typedef struct name##1 name##1;                                                                \
    typedef struct name##2 name##2;                                                                \
    typedef struct name##3 name##3;                                                                \
    typedef struct name##4 name##4;

GR_VECTOR_TYPES(signed char, char, 2, 4)
GR_VECTOR_TYPES(unsigned char, uchar, 2, 4)
GR_VECTOR_TYPES(short, short, 4, 8)
GR_VECTOR_TYPES(unsigned short, ushort, 4, 8)
GR_VECTOR_TYPES(int, int, 8, 16)
GR_VECTOR_TYPES(unsigned int, uint, 8, 16)
GR_VECTOR_TYPES(long, long, 16, 16)
GR_VECTOR_TYPES(unsigned long, ulong, 16, 16)
GR_VECTOR_TYPES(long long, longlong, 16, 16)
GR_VECTOR_TYPES(unsigned long long, ulonglong, 16, 16)
GR_VECTOR_TYPES(float, float, 8, 16)
GR_VECTOR_TYPES(double, double, 16, 16)

#undef GR_VECTOR_TYPES
#undef GR_COPIES
#undef GR_MEMBERS

struct dim3 {
    unsigned int x, y, z;
#ifdef __cplusplus
    constexpr dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1) : x(x), y(y), z(z) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
    constexpr operator uint3() const
    {
        return uint3{x, y, z};
    }
#endif
};
typedef struct dim3 dim3;
