/* Rounds results by integers alone, for processors (finish_integers.c) and for kernels
 * (parts/exact_terms.h). The including file defines FINISH_FUNCTION: how a function begins. */
#include "exact/finish.h"
#include "exact/round.h"

#include <math.h>

/* The sum of digit[i] 2^(32 (i + low)), with a sign. The first and the last digit are not 0. */
enum { GR_INTEGER_DIGITS = 176 }; /* products of two sums of float64 numbers take 137 */
typedef struct {
    bool negative;
    int low, size;
    uint32_t digit[GR_INTEGER_DIGITS];
} integer;

/* The sums of one group, and room for the arithmetic. `first_flags` and `second_flags` have a bit
 * for each kind of special value: GR_EXACT_NAN and others. */
typedef struct {
    integer first[2], second; /* of S's parts, and of Q */
    uint32_t first_flags, second_flags;
    double n, mean;
    integer above, below, number, scratch;
} gr_finish_room;

FINISH_FUNCTION void strip(integer *of)
{
    int zeros = 0;
    while (of->size > 0 && of->digit[of->size - 1] == 0)
        of->size--;
    while (zeros < of->size && of->digit[zeros] == 0)
        zeros++;
    of->size -= zeros;
    of->low += zeros;
    for (int i = 0; i < of->size && zeros; i++)
        of->digit[i] = of->digit[i + zeros];
}

FINISH_FUNCTION void copy_integer(integer *to, const integer *from)
{
    to->negative = from->negative;
    to->low = from->low;
    to->size = from->size;
    for (int i = 0; i < from->size; i++)
        to->digit[i] = from->digit[i];
}

FINISH_FUNCTION void shift_integer(integer *of, int bits)
{
    uint64_t carry = 0;
    int words = bits >= 0 ? bits / 32 : -((31 - bits) / 32), left = bits - 32 * words;
    of->low += words;
    for (int i = 0; i < of->size; i++) {
        carry |= (uint64_t)of->digit[i] << left;
        of->digit[i] = (uint32_t)carry;
        carry >>= 32;
    }
    if (carry)
        of->digit[of->size++] = (uint32_t)carry;
    strip(of);
}

/* The sum of digit[i] 2^(32 i + unit), whatever sign the digits have. */
FINISH_FUNCTION void integer_of_digits(integer *to, const int64_t *digit, int count, int unit)
{
    int64_t carry = 0;
    to->low = 0;
    to->size = count + 2;
    for (int i = 0; i < to->size; i++) {
        int64_t high = i < count ? digit[i] >> 32 : 0; /* the sum of two digits may overflow */
        carry += i < count ? digit[i] & 0xffffffff : 0;
        to->digit[i] = (uint32_t)carry;
        carry = (carry >> 32) + high;
    }
    to->negative = carry < 0;
    uint32_t flip = to->negative ? 0xffffffff : 0;
    uint64_t more = to->negative;
    for (int i = 0; i < to->size; i++) {
        more += to->digit[i] ^ flip;
        to->digit[i] = (uint32_t)more;
        more >>= 32;
    }
    strip(to);
    shift_integer(to, unit);
}

FINISH_FUNCTION uint32_t digit_at(const integer *of, int place)
{
    int i = place - of->low;
    return i >= 0 && i < of->size ? of->digit[i] : 0;
}

FINISH_FUNCTION int end_of(const integer *of)
{
    return of->low + of->size;
}

/* Compares sizes. */
FINISH_FUNCTION int compare_integers(const integer *a, const integer *b)
{
    int end = end_of(a) > end_of(b) ? end_of(a) : end_of(b),
        low = a->low < b->low ? a->low : b->low;
    if (a->size == 0 || b->size == 0)
        return (a->size > 0) - (b->size > 0);
    for (int i = end - 1; i >= low; i--)
        if (digit_at(a, i) != digit_at(b, i))
            return digit_at(a, i) > digit_at(b, i) ? 1 : -1;
    return 0;
}

/* to += more */
FINISH_FUNCTION void add_integer(gr_finish_room *room, integer *to, const integer *more)
{
    if (to->size == 0 || more->size == 0) {
        if (more->size)
            copy_integer(to, more);
        return;
    }
    bool are_alike = to->negative == more->negative;
    const integer *large = compare_integers(to, more) >= 0 ? to : more,
                  *small = large == to ? more : to;
    integer *sum = &room->scratch;
    sum->negative = large->negative;
    sum->low = to->low < more->low ? to->low : more->low;
    sum->size = end_of(large) - sum->low + 1;
    int64_t carry = 0;
    for (int i = 0; i < sum->size; i++) {
        int64_t other = digit_at(small, sum->low + i);
        carry += (int64_t)digit_at(large, sum->low + i) + (are_alike ? other : -other);
        sum->digit[i] = (uint32_t)carry;
        carry >>= 32;
    }
    strip(sum);
    copy_integer(to, sum);
}

/* to = a b */
FINISH_FUNCTION void multiply_integers(gr_finish_room *room, integer *to, const integer *a,
                                       const integer *b)
{
    integer *product = &room->scratch;
    product->negative = a->negative != b->negative;
    product->low = a->low + b->low;
    product->size = a->size + b->size;
    for (int i = 0; i < product->size; i++)
        product->digit[i] = 0;
    for (int i = 0; i < a->size; i++) {
        uint64_t carry = 0;
        for (int k = 0; k < b->size; k++) {
            carry += (uint64_t)a->digit[i] * b->digit[k] + product->digit[i + k];
            product->digit[i + k] = (uint32_t)carry;
            carry >>= 32;
        }
        product->digit[i + b->size] = (uint32_t)carry;
    }
    strip(product);
    copy_integer(to, product);
}

/* The number of bits from 2^0 up to the highest; negative for numbers below 1/2. */
FINISH_FUNCTION int bits_of_integer(const integer *of)
{
    return 32 * (end_of(of) - 1) + gr_bit_length(of->digit[of->size - 1]);
}

/* m 2^exponent */
FINISH_FUNCTION void power_of(integer *to, uint64_t m, int exponent)
{
    to->negative = false;
    to->low = 0;
    to->size = 2;
    to->digit[0] = (uint32_t)m;
    to->digit[1] = (uint32_t)(m >> 32);
    strip(to);
    shift_integer(to, exponent);
}

/* to = x, which is finite */
FINISH_FUNCTION void integer_of(integer *to, double x)
{
    uint64_t bits, one = (uint64_t)1 << 52;
    memcpy(&bits, &x, sizeof bits);
    int field = (int)(bits >> 52 & 0x7ff);
    power_of(to, (bits & (one - 1)) | (field ? one : 0), (field ? field - 1 : 0) - 1074);
    to->negative = bits >> 63;
}

/* x 2^*exponent is the integer's size, with a relative error below 2^-51. */
FINISH_FUNCTION double leading_digits(const integer *of, int *exponent)
{
    double x = 0;
    int i = of->size;
    while (i > 0 && i > of->size - 3)
        x = 0x1p32 * x + of->digit[--i];
    *exponent = 32 * (of->low + i);
    return x;
}

/* A number of at most m, the result of round_ratio(), which is less than 2^15 below m. */
FINISH_FUNCTION uint64_t least_ratio(const integer *above, const integer *below, bool root,
                                     int exponent)
{
    int up, down;
    double x = leading_digits(above, &up) / leading_digits(below, &down);
    int power = up - down;
    if (root) {
        x = sqrt(power % 2 ? 2 * x : x);
        power = (power - (power % 2 != 0)) / 2;
    }
    x = ldexp(x, power - exponent);
    return (uint64_t)(x - 0x1p-49 * x); /* x differs by less than 2^-50 x */
}

/* Rounds above / below, or its root: finds the largest m of 62 or 63 bits such that m 2^exponent,
 * or its square, times `below` is at most `above`. The last bit of m is set if it is less. */
FINISH_FUNCTION uint64_t round_ratio(gr_finish_room *room, bool root, gr_format format)
{
    const integer *above = &room->above, *below = &room->below;
    integer *product = &room->number;
    if (above->size == 0)
        return 0;
    int bits = bits_of_integer(above) - bits_of_integer(below); /* of the ratio, or one more */
    int exponent = (root ? (bits >= 0 ? bits / 2 : -((1 - bits) / 2)) : bits) - 62;
    uint64_t m = least_ratio(above, below, root, exponent), more = 0;
    for (int bit = 14; bit >= -1; bit--) { /* in the end, m itself */
        uint64_t tried = m + (bit >= 0 ? (uint64_t)1 << bit : 0);
        power_of(product, tried, exponent);
        if (root)
            multiply_integers(room, product, product, product);
        multiply_integers(room, product, product, below);
        int order = compare_integers(product, above);
        m = order <= 0 ? tried : m;
        more = order != 0;
    }
    return gr_round_bits(m | more, exponent, above->negative != below->negative, format);
}

/* --- results of sums ------------------------------------------------------------------------- */

/* The infinity or nan that flagged sums make; otherwise the sign of their total (variances: 0). */
FINISH_FUNCTION double special_total(const gr_finish_how *how, uint32_t flags, const integer *total,
                                     bool *special)
{
    const uint32_t both = GR_EXACT_PLUS_INF | GR_EXACT_MINUS_INF;
    if (flags) {
        *special = true;
        return flags & GR_EXACT_NAN || (flags & both) == both ? (double)NAN
               : flags & GR_EXACT_PLUS_INF                    ? (double)INFINITY
                                                              : -(double)INFINITY;
    }
    return how->kind == GR_FINISH_VARIANCE || total->size == 0 ? 0 : total->negative ? -1 : 1;
}

/* Sets the value (before the root) if there are infinities or nans. Returns whether there are. */
FINISH_FUNCTION bool finish_special(const gr_finish_how *how, const gr_finish_room *of,
                                    double *value)
{
    double mean = of->mean;
    bool special = !isfinite(mean);
    double first = special_total(how, of->first_flags, &of->first[0], &special);
    double second = 0;
    if (how->second_count)
        second = special_total(how, of->second_flags, &of->second, &special);
    if (how->kind == GR_FINISH_RATIO) {
        *value = first / (how->second_count ? second : of->n);
    } else if (how->kind == GR_FINISH_VARIANCE || isnan(second) || isnan(mean) || of->n == 0) {
        *value = (double)NAN;
    } else {
        bool meets = isinf(mean) && (isnan(first) || first == mean);
        *value = meets ? (double)NAN : (double)INFINITY;
    }
    return special;
}

/* n - ddof, or 0 if that is negative. */
FINISH_FUNCTION void free_number(gr_finish_room *of, integer *to, double ddof)
{
    to->size = 0;
    if (of->n > ddof) {
        integer_of(to, of->n);
        integer_of(&of->number, -ddof);
        add_integer(of, to, &of->number);
    }
}

/* Sets `above` and `below`: the result, before a root, is above / below. */
FINISH_FUNCTION void fraction_of(const gr_finish_how *how, gr_finish_room *of)
{
    integer *above = &of->above, *below = &of->below, *number = &of->number;
    integer_of(below, of->n);
    if (how->kind == GR_FINISH_RATIO) {
        copy_integer(above, &of->first[0]);
        if (how->second_count)
            copy_integer(below, &of->second);
    } else if (how->kind == GR_FINISH_VARIANCE) {
        multiply_integers(of, above, below, &of->second);
        for (int i = 0; i < how->parts; i++) {
            multiply_integers(of, number, &of->first[i], &of->first[i]);
            number->negative = true;
            add_integer(of, above, number);
        }
        free_number(of, below, how->ddof);
        integer_of(number, of->n);
        multiply_integers(of, below, below, number);
    } else {
        integer_of(above, of->mean);
        multiply_integers(of, above, above, below);
        for (int i = 0; i < 2; i++) { /* n mean - 2 S */
            copy_integer(number, &of->first[0]);
            number->negative = !number->negative;
            add_integer(of, above, number);
        }
        integer_of(number, of->mean);
        multiply_integers(of, above, above, number);
        add_integer(of, above, &of->second);
        free_number(of, below, how->ddof);
    }
}

FINISH_FUNCTION uint64_t bits_of_special(double value, gr_format format)
{
    uint64_t zero = (uint64_t)signbit(value) << (format.fraction + format.exponent);
    if (value == 0)
        return signbit(value) ? zero : 0;
    return gr_round_flags(isnan(value) ? GR_EXACT_NAN
                          : value > 0  ? GR_EXACT_PLUS_INF
                                       : GR_EXACT_MINUS_INF,
                          format);
}

/* The bits of the result, rounded once. */
FINISH_FUNCTION uint64_t finish_in_integers(const gr_finish_how *how, gr_finish_room *of)
{
    gr_format format = gr_format_of(how->target);
    double value;
    if (finish_special(how, of, &value))
        return bits_of_special(how->root ? sqrt(value) : value, format);
    fraction_of(how, of);
    bool negative =
        of->above.size > 0 && of->above.negative != (of->below.size > 0 && of->below.negative);
    if (how->root && negative)
        return bits_of_special((double)NAN, format);
    if (of->below.size > 0)
        return round_ratio(of, how->root, format);
    value = of->above.size == 0 ? (double)NAN : (double)INFINITY;
    return bits_of_special(negative ? -value : value, format);
}
