/* CUDA's arithmetic intrinsics: bit counts, bit casts, min and max, and individually rounded
 * operations. Included by cuda_runtime.h. */
#pragma once

#include "lane.h"

#define GR_OF_X(type, name, argument, value)                                                       \
    GR_INTRINSIC type name(argument x)                                                             \
    {                                                                                              \
        return value;                                                                              \
    }
GR_OF_X(int, __popc, unsigned, __builtin_popcount(x))
GR_OF_X(int, __popcll, unsigned long long, __builtin_popcountll(x))
GR_OF_X(int, __ffs, int, __builtin_ffs(x))
GR_OF_X(int, __ffsll, long long, __builtin_ffsll(x))
/* The nearest integer, ties to even. */
GR_OF_X(long long, __double2ll_rn, double, __builtin_llrint(x))
/* The low 24 bits of both, multiplied. */
GR_INTRINSIC unsigned __umul24(unsigned x, unsigned y)
{
    return (x & 0xffffff) * (y & 0xffffff);
}
GR_INTRINSIC int __mul24(int x, int y)
{
    return (int)((unsigned)(x << 8 >> 8) * (unsigned)(y << 8 >> 8));
}
GR_OF_X(int, __clz, int, x ? __builtin_clz((unsigned)x) : 32)
GR_OF_X(int, __clzll, long long, x ? __builtin_clzll((unsigned long long)x) : 64)
/* Shifts high:low left by the low five bits of `shift` and returns the upper word. */
GR_INTRINSIC unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift)
{
    return (unsigned)(((unsigned long long)high << 32 | low) << (shift & 31) >> 32);
}
GR_INTRINSIC unsigned __brev(unsigned x)
{
    unsigned reversed = 0;
    for (int bit = 0; bit < 32; ++bit)
        reversed |= (x >> bit & 1) << (31 - bit);
    return reversed;
}

/* __dp4a: c plus the dot product of the four bytes of a and b. __dp2a_lo, __dp2a_hi: c plus the dot
 * product of a's two halves and the lower or upper two bytes of b. They wrap around, as the
 * instructions do. */
#define GR_DOT(type, byte, half)                                                                   \
    GR_INTRINSIC type __dp4a(type a, type b, type c)                                               \
    {                                                                                              \
        unsigned total = (unsigned)c;                                                              \
        for (int bit = 0; bit < 32; bit += 8)                                                      \
            total += (unsigned)((byte)(a >> bit) * (byte)(b >> bit));                              \
        return (type)total;                                                                        \
    }                                                                                              \
    GR_INTRINSIC type __dp2a_lo(type a, type b, type c)                                            \
    {                                                                                              \
        return (type)((unsigned)c + (unsigned)((half)a * (byte)b) +                                \
                      (unsigned)((half)(a >> 16) * (byte)(b >> 8)));                               \
    }                                                                                              \
    GR_INTRINSIC type __dp2a_hi(type a, type b, type c)                                            \
    {                                                                                              \
        return __dp2a_lo(a, (type)(b >> 16), c);                                                   \
    }
GR_DOT(int, int8_t, int16_t)
GR_DOT(unsigned, uint8_t, uint16_t)
#undef GR_DOT

#define GR_BIT_CAST(name, to_type, from_type)                                                      \
    GR_INTRINSIC to_type name(from_type from)                                                      \
    {                                                                                              \
        static_assert(sizeof(to_type) == sizeof(from_type), "a bit cast keeps the size");          \
        to_type to;                                                                                \
        memcpy(&to, &from, sizeof to);                                                             \
        return to;                                                                                 \
    }
GR_BIT_CAST(__float_as_int, int, float)
GR_BIT_CAST(__float_as_uint, unsigned, float)
GR_BIT_CAST(__int_as_float, float, int)
GR_BIT_CAST(__uint_as_float, float, unsigned)
GR_BIT_CAST(__double_as_longlong, long long, double)
GR_BIT_CAST(__longlong_as_double, double, long long)
#undef GR_BIT_CAST

GR_OF_X(int, __double2hiint, double, (int)(__double_as_longlong(x) >> 32))
GR_OF_X(int, __double2loint, double, (int)__double_as_longlong(x))
#undef GR_OF_X
GR_INTRINSIC double __hiloint2double(int high, int low)
{
    return __longlong_as_double((long long)((uint64_t)(unsigned)high << 32 | (unsigned)low));
}

/* As in CUDA, these take arguments by value, of any arithmetic types, also mixed. If one argument
 * is NaN, the result is the other. */
template <typename A, typename B> GR_INTRINSIC auto min(A a, B b) -> decltype(a + b)
{
    typedef decltype(a + b) T;
    return (T)b < (T)a || a != a ? (T)b : (T)a;
}
template <typename A, typename B> GR_INTRINSIC auto max(A a, B b) -> decltype(a + b)
{
    typedef decltype(a + b) T;
    return (T)a < (T)b || a != a ? (T)b : (T)a;
}
/* The host's functions return NaN if one argument is a signaling NaN. These do not. They are
 * macros, because C++ allows no second function of the same name and types. */
#define fminf(a, b) ::min((float)(a), (float)(b))
#define fmaxf(a, b) ::max((float)(a), (float)(b))

/* Each operation is rounded to nearest and never contracted into a fused multiply-add. The volatile
 * result prevents the host's compiler from contracting. */
#define GR_ROUNDED(name, type, operation)                                                          \
    GR_INTRINSIC type name(type a, type b)                                                         \
    {                                                                                              \
        volatile type result = a operation b;                                                      \
        return result;                                                                             \
    }
GR_ROUNDED(__fadd_rn, float, +)
GR_ROUNDED(__fsub_rn, float, -)
GR_ROUNDED(__fmul_rn, float, *)
GR_ROUNDED(__dadd_rn, double, +)
GR_ROUNDED(__dsub_rn, double, -)
GR_ROUNDED(__dmul_rn, double, *)
#undef GR_ROUNDED

/* The nearest float that is not larger in size. */
GR_INTRINSIC float __double2float_rz(double x)
{
    float nearest = (float)x;
    return fabs((double)nearest) > fabs(x) ? nextafterf(nearest, 0) : nearest;
}

GR_INTRINSIC float __fmaf_rn(float a, float b, float c)
{
    return fmaf(a, b, c);
}
GR_INTRINSIC double __fma_rn(double a, double b, double c)
{
    return fma(a, b, c);
}
