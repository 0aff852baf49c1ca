/* For every processor of the architecture: SSE2, NEON. */
#pragma once

#define VECTOR_BYTES 16
#include "cpu/vectors.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

/* Intrinsics, because GCC 12 compiles __builtin_convertvector to one conversion at a time. */
INLINE doubles widen(floats x)
{
#if defined(__x86_64__)
    double bits;
    memcpy(&bits, &x, sizeof bits);
    return (doubles)_mm_cvtps_pd(_mm_castpd_ps(_mm_set_sd(bits)));
#elif defined(__aarch64__)
    return (doubles)vcvt_f64_f32((float32x2_t)x);
#else
    return __builtin_convertvector(x, doubles);
#endif
}

INLINE floats narrow(doubles x)
{
    return __builtin_convertvector(x, floats);
}

typedef uint32_t words4 VECTOR(16);
typedef uint16_t halves4 VECTOR(8);
typedef float floats4 VECTOR(16);

#ifdef __aarch64__
INLINE floats4 from_half(halves4 x)
{
    return (floats4)vcvt_f32_f16((float16x4_t)x);
}
#else
/* Converts exactly, with integers, as there is no instruction for it. Multiplying by 2^112 would be
 * shorter, but wrong for subnormals if the program has the processor flush them to zero. */
INLINE floats4 from_half(halves4 x)
{
#ifdef __x86_64__
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    words4 wide =
        (words4)_mm_unpacklo_epi16(_mm_cvtsi64_si128((long long)bits), _mm_setzero_si128());
#else
    words4 wide = __builtin_convertvector(x, words4);
#endif
    const uint32_t bias = 112u << 23, infinity = 31u << 23, normal = 1u << 23;
    words4 size = (wide & 0x7fff) << 13, sign = (wide & 0x8000) << 16;
    words4 rebiased = size + bias + (bias & (words4)(size >= infinity));
    words4 one = (bias + normal) | (words4){0};
    words4 tiny = (words4)((floats4)(size + one) - (floats4)one); /* (1 + fraction) - 1, scaled */
    words4 subnormal = (words4)(size < normal);
    return (floats4)((tiny & subnormal) | (rebiased & ~subnormal) | sign);
}
#endif

INLINE void load_f16(const unsigned char *in, doubles pair[2])
{
    halves4 x;
    floats low, high;
    memcpy(&x, in, sizeof x);
    floats4 y = from_half(x);
    memcpy(&low, &y, sizeof low);
    memcpy(&high, (const char *)&y + sizeof low, sizeof high);
    pair[0] = widen(low);
    pair[1] = widen(high);
}

/* x * y - product, by splitting the factors into 26 bits each (Dekker). */
INLINE doubles rest_of_product(doubles x, doubles y, doubles product)
{
    const double split = 0x1p27 + 1;
    doubles x_part = split * x, y_part = split * y;
    doubles x_high = x_part - (x_part - x), x_low = x - x_high;
    doubles y_high = y_part - (y_part - y), y_low = y - y_high;
    return ((x_high * y_high - product) + x_high * y_low + x_low * y_high) + x_low * y_low;
}

INLINE doubles square_roots(doubles x)
{
#if defined(__x86_64__)
    return (doubles)_mm_sqrt_pd((__m128d)x);
#elif defined(__aarch64__)
    return (doubles)vsqrtq_f64((float64x2_t)x);
#else
    return (doubles){__builtin_sqrt(x[0]), __builtin_sqrt(x[1])};
#endif
}
