/* The four float formats. Adds an element of any of them as an integer times a power of two. */
#pragma once

#include "exact/exact.h"
#include "shared/host_device.h"

#include <string.h>

typedef struct {
    int size;     /* bytes */
    int fraction; /* stored bits of the mantissa */
    int exponent; /* bits */
    int unit;     /* the least subnormal is 2^unit */
} gr_format;

GR_HOST_DEVICE gr_format gr_format_of(gr_load load)
{
    switch (load) {
    case GR_LOAD_f16: return (gr_format){2, 10, 5, -24};
    case GR_LOAD_bf16: return (gr_format){2, 7, 8, -133};
    case GR_LOAD_f32: return (gr_format){4, 23, 8, -149};
    default: return (gr_format){8, 52, 11, -1074};
    }
}

GR_HOST_DEVICE bool gr_is_float(gr_load load)
{
    return load == GR_LOAD_f16 || load == GR_LOAD_bf16 || load == GR_LOAD_f32 ||
           load == GR_LOAD_f64;
}

/* The numbers of the types in files and messages: 1 float16, 2 bfloat16, 3 float32, 4 float64. */
GR_HOST_DEVICE int gr_type_number(gr_load load)
{
    return load == GR_LOAD_f16 ? 1 : load == GR_LOAD_bf16 ? 2 : load == GR_LOAD_f32 ? 3 : 4;
}

static inline bool gr_load_of_type(int number, gr_load *load)
{
    static const gr_load loads[] = {GR_LOAD_f16, GR_LOAD_bf16, GR_LOAD_f32, GR_LOAD_f64};
    if (number < 1 || number > 4)
        return false;
    *load = loads[number - 1];
    return true;
}

static inline uint64_t gr_element_bits(const void *data, size_t size)
{
    uint16_t half;
    uint32_t single;
    uint64_t bits;
    switch (size) {
    case 2: memcpy(&half, data, sizeof half); return half;
    case 4: memcpy(&single, data, sizeof single); return single;
    default: memcpy(&bits, data, sizeof bits); return bits;
    }
}

/* Returns the flag for an inf or nan element, or 0 for a finite one. */
static inline uint32_t gr_element_flag(uint64_t bits, gr_format format)
{
    uint64_t sign = (uint64_t)1 << (format.fraction + format.exponent);
    uint64_t size = bits & (sign - 1), infinity = sign - ((uint64_t)1 << format.fraction);
    if (size < infinity)
        return 0;
    if (size > infinity)
        return GR_EXACT_NAN;
    return bits & sign ? GR_EXACT_MINUS_INF : GR_EXACT_PLUS_INF;
}

/* Adds one element. Like all deposits, it does not change the count. */
static inline void gr_add_element(gr_exact *acc, uint64_t bits, gr_format format)
{
    uint32_t flag = gr_element_flag(bits, format);
    if (flag) {
        acc->flags |= flag;
        return;
    }
    uint64_t one = (uint64_t)1 << format.fraction;
    int exponent = (int)(bits >> format.fraction) & ((1 << format.exponent) - 1);
    int64_t mantissa = (int64_t)(bits & (one - 1));
    if (exponent > 0) {
        mantissa += (int64_t)one;
        exponent--;
    }
    bool negative = bits >> (format.fraction + format.exponent) & 1;
    gr_exact_add_scaled(acc, negative ? -mantissa : mantissa, exponent + format.unit);
}
