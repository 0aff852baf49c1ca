/* x86-64 with AVX-512 (Skylake-X, Zen 4). Pragmas set the target, because setup.py's compiler
 * interface has no flags for a single file. */
#include "exact/extract.h"

#ifdef __x86_64__
#include <immintrin.h>

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,f16c"))),   \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,f16c")
#endif

#define VECTOR_BYTES 64
#define NARROW_BINS 3
#define FLAG_BINS 3
#define WHOLE
#include "exact/extract_vectors.h"

INLINE doubles widen(floats x)
{
    return (doubles)_mm512_cvtps_pd((__m256)x);
}

/* Adds without raising flags. */
INLINE doubles add_quietly(doubles a, doubles b)
{
    return (doubles)_mm512_add_round_pd((__m512d)a, (__m512d)b,
                                        _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

INLINE lanes16 max_lanes(lanes16 a, lanes16 b)
{
    return (lanes16)_mm512_max_epi16((__m512i)a, (__m512i)b);
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

INLINE void interleave(__m256d low, __m256d high, __m256d pairs[2])
{
    pairs[0] = _mm256_unpacklo_pd(low, high);
    pairs[1] = _mm256_unpackhi_pd(low, high);
}

#include "exact/extract_text.h"

EXTRACT_TABLE(gr_extract_avx512, IN_WHOLE);
EXTRACT_TABLE(gr_extract_avx512_halves, IN_WHOLE, SCATTERED);

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
