/* Rounding an accumulator to a float: the only rounding of an exact sum. */
#include "exact/exact.h"
#include "exact/format.h"

/* The absolute value in binary. It is rounded instead of the value itself: rounding a negative
 * number in two's complement goes wrong where the bits below the guard bit are all zero or the
 * mantissa is all ones. */
typedef struct {
    uint32_t digit[GR_EXACT_DIGITS + 2]; /* the last two are zero */
    int bits;                            /* the highest bit set is bits - 1; 0 for zero */
    bool negative;
} magnitude;

static int bit_length(uint32_t x)
{
    return x ? 32 - __builtin_clz(x) : 0;
}

/* Computes the absolute value. The accumulator must be normalized and have no flags. */
static void take_magnitude(magnitude *size, const gr_exact *acc)
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
            size->bits = 32 * k + bit_length(size->digit[k]);
    }
    size->digit[GR_EXACT_DIGITS] = size->digit[GR_EXACT_DIGITS + 1] = 0;
}

/* Returns the bits from `first` up. There must be at most 64 of them. */
static uint64_t bits_from(const magnitude *size, int first)
{
    int k = first / 32, shift = first % 32;
    uint64_t low = size->digit[k] | (uint64_t)size->digit[k + 1] << 32;
    return low >> shift | (uint64_t)size->digit[k + 2] << 32 << (32 - shift);
}

static bool any_below(const magnitude *size, int end)
{
    for (int k = 0; k < end / 32; k++)
        if (size->digit[k])
            return true;
    return size->digit[end / 32] & ((1u << end % 32) - 1);
}

/* Rounds to nearest, ties to even, at bit `first`. Returns the mantissa, in units of that bit. */
static uint64_t round_at(const magnitude *size, int first)
{
    uint64_t mantissa = first < size->bits ? bits_from(size, first) : 0;
    if (first > 0) {
        bool guard = size->digit[(first - 1) / 32] >> (first - 1) % 32 & 1;
        mantissa += guard && (mantissa & 1 || any_below(size, first - 1));
    }
    return mantissa;
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
 * these are the values where the bits reach those of inf. */
static uint64_t round_finite(const gr_exact *acc, gr_format format)
{
    uint64_t sign = (uint64_t)1 << (format.fraction + format.exponent);
    uint64_t infinity = sign - ((uint64_t)1 << format.fraction);
    int64_t top = acc->digit[GR_EXACT_DIGITS - 1];
    if (top != (int32_t)top) /* possible with deposits, not with 2^63 elements */
        return top < 0 ? infinity | sign : infinity;
    magnitude size;
    take_magnitude(&size, acc);
    if (size.bits == 0)
        return 0;
    int unit = format.unit - GR_EXACT_UNIT;
    int last = size.bits - 1 - format.fraction;
    if (last < unit)
        last = unit;
    uint64_t bits = ((uint64_t)(last - unit) << format.fraction) + round_at(&size, last);
    if (bits > infinity)
        bits = infinity;
    return size.negative ? bits | sign : bits;
}

uint64_t gr_exact_round(const gr_exact *acc, gr_load target)
{
    gr_format format = gr_format_of(target);
    gr_exact normal = *acc;
    gr_exact_normalize(&normal);
    if (!normal.flags)
        return round_finite(&normal, format);
    uint64_t sign = (uint64_t)1 << (format.fraction + format.exponent);
    uint64_t infinity = sign - ((uint64_t)1 << format.fraction);
    if (normal.flags & GR_EXACT_NAN)
        return infinity | (uint64_t)1 << (format.fraction - 1);
    return normal.flags & GR_EXACT_MINUS_INF ? infinity | sign : infinity;
}

double gr_exact_f64(const gr_exact *acc)
{
    uint64_t bits = gr_exact_round(acc, GR_LOAD_f64);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

float gr_exact_f32(const gr_exact *acc)
{
    uint32_t bits = (uint32_t)gr_exact_round(acc, GR_LOAD_f32);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
