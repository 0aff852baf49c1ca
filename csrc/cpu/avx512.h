/* x86-64 with AVX-512 (Skylake-X, Zen 4). From here to target_end.h, functions are compiled for it.
 * Pragmas set the target, because plain compiler calls have no flags for a single file. */
#pragma once

#include <immintrin.h>

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,f16c"))),   \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,f16c")
#endif

#define VECTOR_BYTES 64
#include "cpu/vectors.h"

INLINE doubles widen(floats x)
{
    return (doubles)_mm512_cvtps_pd((__m256)x);
}

INLINE floats narrow(doubles x)
{
    return (floats)_mm512_cvtpd_ps((__m512d)x);
}

INLINE floats from_half(const unsigned char *in)
{
    return (floats)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)in));
}

INLINE void load_f16(const unsigned char *in, doubles pair[2])
{
    pair[0] = widen(from_half(in));
    pair[1] = widen(from_half(in + 2 * WIDTH));
}

/* x * y - product, which is a float64. */
INLINE doubles rest_of_product(doubles x, doubles y, doubles product)
{
    return (doubles)_mm512_fmsub_pd((__m512d)x, (__m512d)y, (__m512d)product);
}

INLINE doubles square_roots(doubles x)
{
    return (doubles)_mm512_sqrt_pd((__m512d)x);
}
