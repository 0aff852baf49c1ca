#include "cpu/baseline.h"

#define EXTRACT_TABLE gr_extract_baseline
#define FLAG_BINS 1
#include "exact/extract_vectors.h"

INLINE lanes16 max_lanes(lanes16 a, lanes16 b)
{
#if defined(__x86_64__)
    return (lanes16)_mm_max_epi16((__m128i)a, (__m128i)b);
#elif defined(__aarch64__)
    return (lanes16)vmaxq_s16((int16x8_t)a, (int16x8_t)b);
#else
    lanes16 greater = (lanes16)(a > b);
    return (a & greater) | (b & ~greater);
#endif
}

INLINE void interleave(doubles low, doubles high, doubles pairs[2])
{
    pairs[0] = (doubles){low[0], high[0]};
    pairs[1] = (doubles){low[1], high[1]};
}

#include "exact/extract_text.h"
