#include "cpu/baseline.h"

#define NARROW_BINS 1
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

#ifdef __aarch64__
INLINE void load_f16(const unsigned char *in, doubles pair[2])
{
    uint16x4_t bits;
    memcpy(&bits, in, sizeof bits);
    float32x4_t x = vcvt_f32_f16(vreinterpret_f16_u16(bits));
    pair[0] = (doubles)vcvt_f64_f32(vget_low_f32(x));
    pair[1] = (doubles)vcvt_high_f64_f32(x);
}
#else
/* Converts four halves. The high 32 bits of a double can hold a half: fraction and exponent are
 * shifted to their places, and the exponent's bias is then 1023 - 15 too small. Multiplying by
 * 2^1008 would correct that, but subnormals are slow and the program may have the processor flush
 * them to zero. So the bias is added as an integer; subnormals are computed as (1 + fraction) - 1,
 * scaled; inf and nan, with exponent 31, get the bias twice. */
typedef uint32_t words4 VECTOR(16);

INLINE void spread_high(words4 x, doubles pair[2])
{
#ifdef __x86_64__
    pair[0] = (doubles)_mm_unpacklo_epi32(_mm_setzero_si128(), (__m128i)x);
    pair[1] = (doubles)_mm_unpackhi_epi32(_mm_setzero_si128(), (__m128i)x);
#else
    bits64 low = {x[0], x[1]}, high = {x[2], x[3]};
    pair[0] = (doubles)(low << 32);
    pair[1] = (doubles)(high << 32);
#endif
}

INLINE void load_f16(const unsigned char *in, doubles pair[2])
{
#ifdef __x86_64__
    __m128i halves = _mm_loadl_epi64((const __m128i *)in);
    words4 x = (words4)_mm_unpacklo_epi16(halves, _mm_setzero_si128());
#else
    uint16_t half[4];
    memcpy(half, in, sizeof half);
    words4 x = {half[0], half[1], half[2], half[3]};
#endif
    const uint32_t bias = 1008u << 20, infinity = 31u << 20, normal = 1u << 20;
    words4 size = (x & 0x7fff) << 10, sign = (x & 0x8000) << 16;
    words4 subnormal = (words4)(size < normal);
    words4 high = size + bias + (bias & (words4)(size >= infinity)) + (normal & subnormal);
    words4 one = (bias + normal) & subnormal;
    doubles more[2], less[2];
    spread_high(high | sign, more);
    spread_high(one | (sign & subnormal), less);
    pair[0] = more[0] - less[0];
    pair[1] = more[1] - less[1];
}
#endif

INLINE void interleave(doubles low, doubles high, doubles pairs[2])
{
    pairs[0] = (doubles){low[0], high[0]};
    pairs[1] = (doubles){low[1], high[1]};
}

#include "exact/extract_text.h"

EXTRACT_TABLE(gr_extract_baseline, SCATTERED);
