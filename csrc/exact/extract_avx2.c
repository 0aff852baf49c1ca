#include "exact/extract.h"

#ifdef __x86_64__
#include "cpu/avx2.h"

#define EXTRACT_TABLE gr_extract_avx2
#define FLAG_BINS 1
#include "exact/extract_vectors.h"

INLINE lanes16 max_lanes(lanes16 a, lanes16 b)
{
    return (lanes16)_mm256_max_epi16((__m256i)a, (__m256i)b);
}

INLINE void interleave(__m256d low, __m256d high, __m256d pairs[2])
{
    pairs[0] = _mm256_unpacklo_pd(low, high);
    pairs[1] = _mm256_unpackhi_pd(low, high);
}

#include "exact/extract_text.h"

#include "cpu/target_end.h"
#endif
