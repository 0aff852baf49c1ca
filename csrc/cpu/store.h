/* Stores of sums in the type of the result, at any address. */
#pragma once

#include "shared/dtypes.h"

#include <stdbool.h>
#include <string.h>

/* Whether all are finite; whether all are zero, of either sign. */
bool gr_all_finite(const double *x, size_t n);
bool gr_all_zero(const double *x, size_t n);

/* Rounds each to float32. */
void gr_round_to_f32(double *x, size_t n);

/* Stores numbers `step` bytes apart, each as gr_store_float() does. */
void gr_store_floats(unsigned char *to, ptrdiff_t step, const double *x, size_t n, gr_load target);

/* Rounds to a 16-bit float with so many bits, to nearest, ties to even. A nan becomes the quiet
 * positive one. */
static inline uint16_t gr_round_half(double x, int fraction, int exponent)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint32_t infinity = ((1u << exponent) - 1) << fraction;
    uint32_t sign = (uint32_t)(bits >> 63) << 15;
    int field = (int)(bits >> 52 & 0x7ff), least = 1024 - (1 << (exponent - 1)) + 1;
    uint64_t mantissa = bits & 0xfffffffffffff;
    if (field == 0x7ff)
        return (uint16_t)(mantissa ? infinity | 1u << (fraction - 1) : sign | infinity);
    int shift = 52 - fraction + (field < least ? least - field : 0);
    if (shift > 54 || field == 0)
        return (uint16_t)sign;
    mantissa |= (uint64_t)1 << 52;
    uint64_t kept = mantissa >> shift, rest = mantissa & (((uint64_t)1 << shift) - 1);
    uint64_t half = (uint64_t)1 << (shift - 1);
    kept += rest > half || (rest == half && kept & 1);
    uint64_t size = kept; /* a carry increments the exponent, which is right */
    if (field >= least)
        size += (uint64_t)(field - least) << fraction;
    return (uint16_t)(sign | (size > infinity ? infinity : (uint32_t)size));
}

/* `target` is f16, bf16, f32 or f64. */
static inline void gr_store_float(unsigned char *to, double x, gr_load target)
{
    float single;
    uint16_t half;
    if (x != x)
        x = __builtin_nan("");
    switch (target) {
    case GR_LOAD_f64: memcpy(to, &x, sizeof x); return;
    case GR_LOAD_f32:
        single = (float)x;
        memcpy(to, &single, sizeof single);
        return;
    case GR_LOAD_f16: half = gr_round_half(x, 10, 5); break;
    default: half = gr_round_half(x, 7, 8); break;
    }
    memcpy(to, &half, sizeof half);
}

/* Stores the low bytes: the processors that this builds for are little-endian. */
static inline void gr_store_integer(unsigned char *to, uint64_t x, gr_load target)
{
    switch (gr_load_size(target)) {
    case 1: memcpy(to, &x, 1); return;
    case 2: memcpy(to, &x, 2); return;
    case 4: memcpy(to, &x, 4); return;
    default: memcpy(to, &x, 8); return;
    }
}
