/* Loads of 2 * WIDTH elements as doubles. The including file defines widen (vectors.h). */
#ifndef GPUREDUCE_LOADS_H
#define GPUREDUCE_LOADS_H

#include "cpu/vectors.h"

INLINE void load_f64(const unsigned char *in, doubles pair[2])
{
    /* One at a time: GCC 12 copies two vectors at once through the stack. */
    memcpy(&pair[0], in, sizeof *pair);
    memcpy(&pair[1], in + sizeof *pair, sizeof *pair);
}

INLINE void load_f32(const unsigned char *in, doubles pair[2])
{
    floats low, high;
    memcpy(&low, in, sizeof low);
    memcpy(&high, in + sizeof low, sizeof high);
    pair[0] = widen(low);
    pair[1] = widen(high);
}

INLINE void load_bf16(const unsigned char *in, doubles pair[2])
{
    words x;
    memcpy(&x, in, sizeof x);
    pair[0] = widen((floats)(x << 16));
    pair[1] = widen((floats)(x & 0xffff0000));
}

/* The same in order, for columns. */
#if VECTOR_BYTES == 16 && defined(__x86_64__)
INLINE void load_bf16_in_order(const unsigned char *in, doubles pair[2])
{
    __m128i x = _mm_unpacklo_epi16(_mm_setzero_si128(), _mm_loadl_epi64((const __m128i *)in));
    floats low, high;
    memcpy(&low, &x, sizeof low);
    memcpy(&high, (const char *)&x + sizeof low, sizeof high);
    pair[0] = widen(low);
    pair[1] = widen(high);
}
#else
typedef uint16_t halves_in_order VECTOR(VECTOR_BYTES / 2);
typedef uint32_t words_in_order VECTOR(VECTOR_BYTES);

INLINE void load_bf16_in_order(const unsigned char *in, doubles pair[2])
{
    halves_in_order x;
    floats low, high;
    memcpy(&x, in, sizeof x);
    words_in_order wide = __builtin_convertvector(x, words_in_order) << 16;
    memcpy(&low, &wide, sizeof low);
    memcpy(&high, (const char *)&wide + sizeof low, sizeof high);
    pair[0] = widen(low);
    pair[1] = widen(high);
}
#endif

#endif
