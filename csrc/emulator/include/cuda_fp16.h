/* IEEE half precision, for loads: an exact conversion to float. */
#ifndef GPUREDUCE_EMULATOR_CUDA_FP16_H
#define GPUREDUCE_EMULATOR_CUDA_FP16_H

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

struct __attribute__((aligned(2))) __half {
    unsigned short __x;
    __half() = default;
    __half(const __half_raw &raw) : __x(raw.x) {}
    GR_ACCESS operator float() const /* reads *this: an access by the kernel */
    {
        GR_TRACE_ACCESS(load, this);
        return gr_half_to_float(__x);
    }
};
typedef __half half;

struct __attribute__((aligned(4))) __half2 {
    __half x, y;
};
typedef __half2 half2;

/* Rounds to nearest, ties to even. */
GR_INTRINSIC __half __float2half(float value)
{
    uint32_t bits, rounded;
    memcpy(&bits, &value, sizeof bits);
    uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000)
        return __half(__half_raw{0x7fff});
    if (magnitude >= 0x477ff000) { /* rounds to 2^16 or more */
        rounded = 0x7c00;
    } else if (magnitude < 0x38800000) { /* subnormal: 0.5 is followed by multiples of 2^-24 */
        float tiny = 0.5f + (value < 0 ? -value : value);
        memcpy(&rounded, &tiny, sizeof rounded);
        rounded -= 0x3f000000;
    } else {
        rounded = (magnitude - ((127 - 15) << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
    }
    return __half(__half_raw{(unsigned short)(sign | rounded)});
}

/* By reference: gcc's hooks do not see a structure that is copied into an argument. */
GR_ACCESS float __half2float(const __half &h)
{
    GR_TRACE_ACCESS(load, &h);
    return gr_half_to_float(h.__x);
}
GR_ACCESS float2 __half22float2(const __half2 &h)
{
    GR_TRACE_ACCESS(load, &h);
    return float2{gr_half_to_float(h.x.__x), gr_half_to_float(h.y.__x)};
}
GR_INTRINSIC unsigned short __half_as_ushort(__half h)
{
    return h.__x;
}
GR_INTRINSIC __half __ushort_as_half(unsigned short bits)
{
    return __half(__half_raw{bits});
}

#endif
