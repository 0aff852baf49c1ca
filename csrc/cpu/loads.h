/* Loads of 2 * WIDTH elements as doubles. The including file defines widen (vectors.h). */
#pragma once

#include "cpu/vectors.h"

/* memcpy for fewer bytes than `most`, a power of two up to 256, in at most eight moves. GCC
 * compiles a plain memcpy to "rep movs", whose startup takes longer than most short sums. */
INLINE void copy_rest(void *to, const unsigned char *from, size_t bytes, size_t most)
{
    unsigned char *out = to;
#pragma GCC unroll 8
    for (size_t piece = most / 2; piece > 0; piece /= 2)
        if (bytes & piece) {
            memcpy(out, from, piece);
            out += piece;
            from += piece;
        }
}

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

/* Loads one element as a double. */
INLINE double one_bf16(const unsigned char *address)
{
    uint16_t half;
    memcpy(&half, address, sizeof half);
    uint32_t bits = (uint32_t)half << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

INLINE double one_f16(const unsigned char *in)
{
    uint16_t half;
    memcpy(&half, in, sizeof half);
    uint64_t exponent = half >> 10 & 31, fraction = half & 1023,
             sign = (uint64_t)(half >> 15) << 63;
    double subnormal = (double)fraction * 0x1p-24;
    uint64_t small, bits = (exponent == 31 ? 2047 : exponent + 1008) << 52 | fraction << 42;
    memcpy(&small, &subnormal, sizeof small);
    bits = sign | (exponent ? bits : small);
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

INLINE double one_f32(const unsigned char *address)
{
    float x;
    memcpy(&x, address, sizeof x);
    return x;
}

INLINE double one_f64(const unsigned char *address)
{
    double x;
    memcpy(&x, address, sizeof x);
    return x;
}
