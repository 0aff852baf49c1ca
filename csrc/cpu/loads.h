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

#endif
