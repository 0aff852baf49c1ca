#include "exact/extract.h"

#ifdef __x86_64__
#include "cpu/avx512.h"

#define EXTRACT_TABLE gr_extract_avx512
#define FLAG_BINS 3
#include "exact/extract_vectors.h"

/* Adds without raising the inexact flag. */
INLINE doubles add_quietly(doubles a, doubles b)
{
    return (doubles)_mm512_add_round_pd((__m512d)a, (__m512d)b,
                                        _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

INLINE lanes16 max_lanes(lanes16 a, lanes16 b)
{
    return (lanes16)_mm512_max_epi16((__m512i)a, (__m512i)b);
}

INLINE void interleave(__m256d low, __m256d high, __m256d pairs[2])
{
    pairs[0] = _mm256_unpacklo_pd(low, high);
    pairs[1] = _mm256_unpackhi_pd(low, high);
}

#include "exact/extract_text.h"

#include "cpu/target_end.h"
#endif
