/* x86-64 since 2013 (Haswell, Zen). Pragmas set the target, because setup.py's compiler interface
 * has no flags for a single file. */
#include "exact/extract.h"

#ifdef __x86_64__
#include <immintrin.h>

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,f16c")
#endif

#define VECTOR_BYTES 32
#define NARROW_BINS 2
#define FLAG_BINS 1
#include "exact/extract_vectors.h"

INLINE doubles widen(floats x)
{
    return (doubles)_mm256_cvtps_pd((__m128)x);
}

INLINE lanes16 max_lanes(lanes16 a, lanes16 b)
{
    return (lanes16)_mm256_max_epi16((__m256i)a, (__m256i)b);
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

INLINE void interleave(__m256d low, __m256d high, __m256d pairs[2])
{
    pairs[0] = _mm256_unpacklo_pd(low, high);
    pairs[1] = _mm256_unpackhi_pd(low, high);
}

#include "exact/extract_text.h"

EXTRACT_TABLE(gr_extract_avx2, SCATTERED);

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
