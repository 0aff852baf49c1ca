/* bfloat16, for loads: the upper half of a float. */
#pragma once

#include <stdint.h>
#include <string.h>

#include "lane.h"

struct __attribute__((aligned(2))) __nv_bfloat16_raw {
    unsigned short x;
};

GR_INTRINSIC float gr_bfloat16_to_float(unsigned short bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float result;
    memcpy(&result, &wide, sizeof result);
    return result;
}

struct __attribute__((aligned(2))) __nv_bfloat16 {
    unsigned short __x;
    __nv_bfloat16() = default;
    __nv_bfloat16(const __nv_bfloat16_raw &raw) : __x(raw.x) {}
    GR_ACCESS operator float() const /* reads *this: an access by the kernel */
    {
        GR_TRACE_ACCESS(load, this);
        return gr_bfloat16_to_float(__x);
    }
};
typedef __nv_bfloat16 nv_bfloat16;

struct __attribute__((aligned(4))) __nv_bfloat162 {
    __nv_bfloat16 x, y;
};
typedef __nv_bfloat162 nv_bfloat162;

/* By reference: gcc's hooks do not see a structure that is copied into an argument. */
GR_ACCESS float __bfloat162float(const __nv_bfloat16 &b)
{
    GR_TRACE_ACCESS(load, &b);
    return gr_bfloat16_to_float(b.__x);
}
GR_ACCESS float2 __bfloat1622float2(const __nv_bfloat162 &b)
{
    GR_TRACE_ACCESS(load, &b);
    return float2{gr_bfloat16_to_float(b.x.__x), gr_bfloat16_to_float(b.y.__x)};
}
GR_INTRINSIC unsigned short __bfloat16_as_ushort(__nv_bfloat16 b)
{
    return b.__x;
}
GR_INTRINSIC __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits)
{
    return __nv_bfloat16(__nv_bfloat16_raw{bits});
}

/* Rounds to nearest, ties to even. */
GR_INTRINSIC __nv_bfloat16 __float2bfloat16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return __nv_bfloat16(__nv_bfloat16_raw{0x7fff});
    bits += 0x7fff + (bits >> 16 & 1);
    return __nv_bfloat16(__nv_bfloat16_raw{(unsigned short)(bits >> 16)});
}
