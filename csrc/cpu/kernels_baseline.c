#include "cpu/baseline.h"

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

#define KERNELS gr_cpu_baseline
#include "cpu/kernels_text.h"
