/* Rounds the digits of an exact sum to a float: the only rounding of such a sum. */
#pragma once

#include "exact/exact.h"
#include "exact/format.h"
#include "shared/host_device.h"

/* The number of bits up to the highest 1; 0 for 0. */
GR_HOST_DEVICE int gr_bit_length(uint64_t m)
{
#ifdef __CUDA_ARCH__
    return 64 - __clzll((long long)m);
#else
    return m ? 64 - __builtin_clzll(m) : 0;
#endif
}

/* The absolute value in binary. It is rounded instead of the value itself: rounding a negative
 * number in two's complement goes wrong where the bits below the guard bit are all zero or the
 * mantissa is all ones. */
typedef struct {
    uint32_t digit[GR_EXACT_DIGITS + 2]; /* the last two are zero */
    int bits;                            /* the highest bit set is bits - 1; 0 for zero */
    bool negative;
} gr_exact_size;

/* Computes the absolute value. The accumulator must be normalized and have no flags. */
GR_HOST_DEVICE void gr_size_of(gr_exact_size *size, const gr_exact *acc)
{
    int64_t top = acc->digit[GR_EXACT_DIGITS - 1];
    size->negative = top < 0;
    uint32_t flip = size->negative ? 0xffffffff : 0;
    uint64_t carry = size->negative ? 1 : 0; /* -x = ~x + 1 */
    size->bits = 0;
    for (int k = 0; k < GR_EXACT_DIGITS; k++) {
        carry += (uint32_t)acc->digit[k] ^ flip;
        size->digit[k] = (uint32_t)carry;
        carry >>= 32;
        if (size->digit[k])
            size->bits = 32 * k;
    }
    size->bits += gr_bit_length(size->digit[size->bits / 32]);
    size->digit[GR_EXACT_DIGITS] = size->digit[GR_EXACT_DIGITS + 1] = 0;
}

/* Returns the bits from `first` up. There must be at most 64 of them. */
GR_HOST_DEVICE uint64_t gr_size_bits(const gr_exact_size *size, int first)
{
    int k = first / 32, shift = first % 32;
    uint64_t low = size->digit[k] | (uint64_t)size->digit[k + 1] << 32;
    return low >> shift | (uint64_t)size->digit[k + 2] << 32 << (32 - shift);
}

GR_HOST_DEVICE bool gr_size_any_below(const gr_exact_size *size, int end)
{
    for (int k = 0; k < end / 32; k++)
        if (size->digit[k])
            return true;
    return size->digit[end / 32] & ((1u << end % 32) - 1);
}

/* Lemma. Let the format have p mantissa bits and the least subnormal 2^unit. Let 2^top be the
 * value's highest bit. In the binade of the value, the numbers of the format, were its exponent
 * unbounded above, are the multiples of 2^last with last = max(top - (p - 1), unit). The rounded
 * mantissa m <= 2^p counts these. With field = last - unit, the bits of m 2^last are field
 * 2^(p-1) + m:
 * - for a subnormal, field = 0 and m < 2^(p-1);
 * - for a normal number the exponent field is field + 1, and the 1 is the mantissa's hidden bit;
 * - m = 2^p or, from a subnormal, 2^(p-1), carries into the exponent field as it should.
 * IEEE 754 rounds a value to inf if with unbounded exponent it would round to 2^(emax+1) or more;
 * these are the values where the bits reach those of inf.
 *
 * Here the value is m 2^exponent, with m < 2^63. If m stands for a number with more bits, it has 62
 * bits or more, and its lowest bit is 1 if any of the bits below it is 1: it rounds alike, since
 * the mantissa is at least two bits shorter. */
GR_HOST_DEVICE uint64_t gr_round_bits(uint64_t m, int exponent, bool negative, gr_format format)
{
    uint64_t sign = (uint64_t)1 << (format.fraction + format.exponent);
    uint64_t infinity = sign - ((uint64_t)1 << format.fraction);
    int last = exponent + gr_bit_length(m) - 1 - format.fraction;
    if (m == 0)
        return 0;
    if (last < format.unit)
        last = format.unit;
    int drop = last - exponent;
    uint64_t mantissa = drop >= 64 ? 0 : drop < 0 ? m << -drop : m >> drop;
    if (drop > 0 && drop < 64) {
        uint64_t half = (uint64_t)1 << (drop - 1), rest = m & (2 * half - 1);
        mantissa += rest > half || (rest == half && mantissa & 1);
    }
    uint64_t bits = ((uint64_t)(last - format.unit) << format.fraction) + mantissa;
    if (bits > infinity)
        bits = infinity;
    return negative ? bits | sign : bits;
}

GR_HOST_DEVICE uint64_t gr_round_finite(const gr_exact *acc, gr_format format)
{
    uint64_t sign = (uint64_t)1 << (format.fraction + format.exponent);
    uint64_t infinity = sign - ((uint64_t)1 << format.fraction);
    int64_t top = acc->digit[GR_EXACT_DIGITS - 1];
    if (top != (int32_t)top) /* possible with deposits, not with 2^63 elements */
        return top < 0 ? infinity | sign : infinity;
    gr_exact_size size;
    gr_size_of(&size, acc);
    int first = size.bits > 63 ? size.bits - 63 : 0;
    uint64_t m = gr_size_bits(&size, first) | gr_size_any_below(&size, first);
    return gr_round_bits(m, first + GR_EXACT_UNIT, size.negative, format);
}

/* The bits of inf or nan for a sum with these flags. */
GR_HOST_DEVICE uint64_t gr_round_flags(uint32_t flags, gr_format format)
{
    uint64_t sign = (uint64_t)1 << (format.fraction + format.exponent);
    uint64_t infinity = sign - ((uint64_t)1 << format.fraction);
    if (flags & GR_EXACT_NAN || (flags & GR_EXACT_PLUS_INF && flags & GR_EXACT_MINUS_INF))
        return infinity | (uint64_t)1 << (format.fraction - 1);
    return flags & GR_EXACT_MINUS_INF ? infinity | sign : infinity;
}

/* Rounds a normalized accumulator. Returns the bits of the float. */
GR_HOST_DEVICE uint64_t gr_round_normalized(const gr_exact *normal, gr_load target)
{
    gr_format format = gr_format_of(target);
    return normal->flags ? gr_round_flags(normal->flags, format) : gr_round_finite(normal, format);
}
