/* x86-64 since 2013 (Haswell, Zen). From here to target_end.h, functions are compiled for it.
 * Pragmas set the target, because plain compiler calls have no flags for a single file. */
#pragma once

#include <immintrin.h>

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,f16c,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,f16c,fma")
#endif

#define VECTOR_BYTES 32
#include "cpu/vectors.h"

INLINE doubles widen(floats x)
{
    return (doubles)_mm256_cvtps_pd((__m128)x);
}

INLINE floats narrow(doubles x)
{
    return (floats)_mm256_cvtpd_ps((__m256d)x);
}

INLINE floats from_half(const unsigned char *in)
{
    return (floats)_mm_cvtph_ps(_mm_loadl_epi64((const __m128i *)in));
}

INLINE void load_f16(const unsigned char *in, doubles pair[2])
{
    pair[0] = widen(from_half(in));
    pair[1] = widen(from_half(in + 2 * WIDTH));
}

/* x * y - product, which is a float64. */
INLINE doubles rest_of_product(doubles x, doubles y, doubles product)
{
    return (doubles)_mm256_fmsub_pd((__m256d)x, (__m256d)y, (__m256d)product);
}

INLINE doubles square_roots(doubles x)
{
    return (doubles)_mm256_sqrt_pd((__m256d)x);
}
