/* For every processor of the architecture: SSE2, NEON. */
#define VECTOR_BYTES 16
#define KERNELS gr_cpu_baseline
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
    lanes32 wide =
        (lanes32)_mm_unpacklo_epi16(_mm_cvtsi64_si128((long long)bits), _mm_setzero_si128());
#else
    lanes32 wide = __builtin_convertvector(x, lanes32);
#endif
    const uint32_t bias = 112u << 23, infinity = 31u << 23, normal = 1u << 23;
    lanes32 size = (wide & 0x7fff) << 13, sign = (wide & 0x8000) << 16;
    lanes32 rebiased = size + bias + (bias & (lanes32)(size >= infinity));
    lanes32 one = (bias + normal) | (lanes32){0};
    lanes32 tiny = (lanes32)((floats4)(size + one) - (floats4)one); /* (1 + fraction) - 1, scaled */
    lanes32 subnormal = (lanes32)(size < normal);
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

#include "cpu/kernels_text.h"
