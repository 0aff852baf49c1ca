/* IEEE half precision. */
#pragma once

#include <stdint.h>
#include <string.h>
#ifdef __F16C__
#include <immintrin.h>
#endif

#include "lane.h"

struct __attribute__((aligned(2))) __half_raw {
    unsigned short x;
};

GR_INTRINSIC float gr_half_to_float(unsigned short bits)
{
#ifdef __F16C__
    return _cvtsh_ss(bits);
#else
    uint32_t magnitude = bits & 0x7fff, sign = (uint32_t)(bits & 0x8000) << 16, wide;
    if (magnitude < 0x0400) { /* subnormal: a multiple of 2^-24 */
        float tiny = (float)magnitude * 0x1p-24f;
        memcpy(&wide, &tiny, sizeof wide);
    } else {
        wide = (magnitude << 13) + ((127 - 15) << 23);
        if (magnitude >= 0x7c00) /* infinity or NaN: the maximum exponent stays the maximum */
            wide += (127 - 15) << 23;
    }
    wide |= sign;
    float result;
    memcpy(&result, &wide, sizeof result);
    return result;
#endif
}

/* Rounds to nearest, ties to even. */
GR_INTRINSIC unsigned short gr_float_to_half(float value)
{
    uint32_t bits, rounded;
    memcpy(&bits, &value, sizeof bits);
    uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000)
        return 0x7fff;
    if (magnitude >= 0x477ff000) { /* rounds to 2^16 or more */
        rounded = 0x7c00;
    } else if (magnitude < 0x38800000) { /* subnormal: floats in [0.5, 1) are multiples of 2^-24 */
        float tiny = 0.5f + (value < 0 ? -value : value);
        memcpy(&rounded, &tiny, sizeof rounded);
        rounded -= 0x3f000000;
    } else {
        rounded = (magnitude - ((127 - 15) << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
    }
    return (unsigned short)(sign | rounded);
}

struct __attribute__((aligned(2))) __half {
    unsigned short __x;
    __half() = default;
    __half(const __half_raw &raw) : __x(raw.x) {}
    GR_UNTRACED __half(float value) : __x(gr_float_to_half(value)) {}
    GR_TRACED_COPY(__half)
    GR_ACCESS operator float() const /* reads *this: an access by the kernel */
    {
        GR_TRACE_ACCESS(load, this);
        return gr_half_to_float(__x);
    }
};
typedef __half half;

struct __attribute__((aligned(4))) __half2 {
    __half x, y;
    __half2() = default;
    GR_UNTRACED __half2(const __half &low, const __half &high)
    {
        x.__x = low.__x;
        y.__x = high.__x;
    }
    GR_TRACED_COPY(__half2)
};
typedef __half2 half2;

/* By reference: gcc's hooks do not see a structure that is copied into an argument. */
#define GR_READ(type, name, of, value)                                                             \
    GR_ACCESS type name(const of &h)                                                               \
    {                                                                                              \
        GR_TRACE_ACCESS(load, &h);                                                                 \
        return value;                                                                              \
    }
GR_READ(float, __half2float, __half, gr_half_to_float(h.__x))
GR_READ(float2, __half22float2, __half2,
        (float2{gr_half_to_float(h.x.__x), gr_half_to_float(h.y.__x)}))
GR_INTRINSIC __half __float2half(float value)
{
    return __half(value);
}
GR_INTRINSIC __half2 __floats2half2_rn(float low, float high)
{
    return __half2(__half(low), __half(high));
}
GR_ACCESS __half2 __halves2half2(const __half &low, const __half &high)
{
    GR_TRACE_ACCESS(load, &low);
    GR_TRACE_ACCESS(load, &high);
    return __half2(low, high);
}
GR_READ(float, __low2float, __half2, gr_half_to_float(h.x.__x))
GR_READ(float, __high2float, __half2, gr_half_to_float(h.y.__x))

/* Each result is rounded once: a float has bits to spare for sums and products of two halves. */
#define GR_HALF(name, symbol)                                                                      \
    GR_ACCESS __half name(const __half &a, const __half &b)                                        \
    {                                                                                              \
        GR_TRACE_ACCESS(load, &a);                                                                 \
        GR_TRACE_ACCESS(load, &b);                                                                 \
        return __half(gr_half_to_float(a.__x) symbol gr_half_to_float(b.__x));                     \
    }                                                                                              \
    GR_ACCESS __half operator symbol(const __half &a, const __half &b)                             \
    {                                                                                              \
        GR_TRACE_ACCESS(load, &a);                                                                 \
        GR_TRACE_ACCESS(load, &b);                                                                 \
        return __half(gr_half_to_float(a.__x) symbol gr_half_to_float(b.__x));                     \
    }                                                                                              \
    GR_ACCESS __half &operator symbol##=(__half &a, const __half &b)                               \
    {                                                                                              \
        GR_TRACE_ACCESS(load, &b);                                                                 \
        return a = __half(float(a) symbol gr_half_to_float(b.__x));                                \
    }
#define GR_HALF2(name, symbol)                                                                     \
    GR_ACCESS __half2 name(const __half2 &a, const __half2 &b)                                     \
    {                                                                                              \
        GR_TRACE_ACCESS(load, &a);                                                                 \
        GR_TRACE_ACCESS(load, &b);                                                                 \
        return __half2(__half(gr_half_to_float(a.x.__x) symbol gr_half_to_float(b.x.__x)),         \
                       __half(gr_half_to_float(a.y.__x) symbol gr_half_to_float(b.y.__x)));        \
    }
GR_HALF(__hadd, +)
GR_HALF(__hsub, -)
GR_HALF(__hmul, *)
GR_HALF2(__hadd2, +)
GR_HALF2(__hsub2, -)
GR_HALF2(__hmul2, *)
#undef GR_HALF
#undef GR_HALF2

GR_INTRINSIC unsigned short __half_as_ushort(__half h)
{
    return h.__x;
}
GR_INTRINSIC __half __ushort_as_half(unsigned short bits)
{
    return __half(__half_raw{bits});
}
