#include "exact/finish_integers.h"

#include "cpu/store.h"
#include "exact/round.h"

#include <math.h>
#include <stddef.h>

/* The sum of digit[i] 2^(32 (i + low)), with a sign. The first and the last digit are not 0. */
enum { MOST = 176 }; /* products of two sums of float64 numbers take 137 */
typedef struct {
    bool negative;
    int low, size;
    uint32_t digit[MOST];
} integer;

static void strip(integer *of)
{
    int zeros = 0;
    while (of->size > 0 && of->digit[of->size - 1] == 0)
        of->size--;
    while (zeros < of->size && of->digit[zeros] == 0)
        zeros++;
    memmove(of->digit, of->digit + zeros, (size_t)(of->size - zeros) * sizeof *of->digit);
    of->size -= zeros;
    of->low += zeros;
}

static void copy(integer *to, const integer *from)
{
    memmove(to, from, offsetof(integer, digit) + (size_t)from->size * sizeof *from->digit);
}

static void shift(integer *of, int bits)
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

/* Normalizes the accumulator. */
static void integer_of_exact(integer *to, gr_exact *sum)
{
    gr_exact_size size;
    gr_exact_normalize(sum);
    gr_size_of(&size, sum);
    *to = (integer){.negative = size.negative, .size = GR_EXACT_DIGITS};
    memcpy(to->digit, size.digit, GR_EXACT_DIGITS * sizeof *to->digit);
    strip(to);
    shift(to, GR_EXACT_UNIT);
}

static void integer_of(integer *to, const double *x, int count)
{
    gr_exact sum;
    gr_exact_init(&sum);
    for (int i = 0; i < count; i++)
        gr_exact_add_f64(&sum, x[i]);
    integer_of_exact(to, &sum);
}

static uint32_t digit_at(const integer *of, int place)
{
    int i = place - of->low;
    return i >= 0 && i < of->size ? of->digit[i] : 0;
}

static int end_of(const integer *of)
{
    return of->low + of->size;
}

/* Compares sizes. */
static int compare(const integer *a, const integer *b)
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

static void add(integer *to, const integer *a, const integer *b)
{
    if (a->size == 0 || b->size == 0) {
        copy(to, a->size ? a : b);
        return;
    }
    bool are_alike = a->negative == b->negative;
    const integer *large = compare(a, b) >= 0 ? a : b, *small = large == a ? b : a;
    int low = a->low < b->low ? a->low : b->low;
    integer sum;
    sum.negative = large->negative;
    sum.low = low;
    sum.size = end_of(large) - low + 1;
    int64_t carry = 0;
    for (int i = 0; i < sum.size; i++) {
        int64_t other = digit_at(small, low + i);
        carry += (int64_t)digit_at(large, low + i) + (are_alike ? other : -other);
        sum.digit[i] = (uint32_t)carry;
        carry >>= 32;
    }
    strip(&sum);
    copy(to, &sum);
}

static void multiply(integer *to, const integer *a, const integer *b)
{
    integer product;
    product.negative = a->negative != b->negative;
    product.low = a->low + b->low;
    product.size = a->size + b->size;
    memset(product.digit, 0, (size_t)product.size * sizeof *product.digit);
    for (int i = 0; i < a->size; i++) {
        uint64_t carry = 0;
        for (int k = 0; k < b->size; k++) {
            carry += (uint64_t)a->digit[i] * b->digit[k] + product.digit[i + k];
            product.digit[i + k] = (uint32_t)carry;
            carry >>= 32;
        }
        product.digit[i + b->size] = (uint32_t)carry;
    }
    strip(&product);
    copy(to, &product);
}

/* The number of bits from 2^0 up, which may be negative. */
static int bits_of(const integer *of)
{
    return 32 * (end_of(of) - 1) + gr_bit_length(of->digit[of->size - 1]);
}

/* m 2^exponent, or its square */
static void power_of(integer *to, uint64_t m, int exponent, bool squared)
{
    to->negative = false;
    to->low = 0;
    to->size = 2;
    to->digit[0] = (uint32_t)m;
    to->digit[1] = (uint32_t)(m >> 32);
    strip(to);
    shift(to, exponent);
    if (squared)
        multiply(to, to, to);
}

/* Rounds above / below, or its root: finds the largest m of 62 or 63 bits with m 2^exponent, or its
 * square, times `below` at most `above`. Its last bit says whether that is less. */
static uint64_t round_ratio(const integer *above, const integer *below, bool root, gr_load target)
{
    if (above->size == 0)
        return 0;
    int bits = bits_of(above) - bits_of(below); /* of the ratio, or one more */
    int exponent = (root ? (bits >= 0 ? bits / 2 : -((1 - bits) / 2)) : bits) - 62;
    uint64_t m = 0;
    integer product;
    for (int bit = 63; bit >= 0; bit--) {
        power_of(&product, m | (uint64_t)1 << bit, exponent, root);
        multiply(&product, &product, below);
        if (compare(&product, above) <= 0)
            m |= (uint64_t)1 << bit;
    }
    power_of(&product, m, exponent, root);
    multiply(&product, &product, below);
    uint64_t more = compare(&product, above) != 0;
    if (m >> 63) { /* gr_round_bits() takes fewer */
        more |= m & 1;
        m >>= 1;
        exponent++;
    }
    return gr_round_bits(m | more, exponent, above->negative != below->negative,
                         gr_format_of(target));
}

/* --- what is made of the sums ------------------------------------------------------------------
 */

static void integer_of_products(integer *to, gr_products *sum)
{
    to->negative = false;
    to->size = to->low = 0;
    for (int i = 0; i < GR_PRODUCTS_PARTS; i++) {
        integer part;
        integer_of_exact(&part, &sum->part[i]);
        part.low += GR_PRODUCTS_SHIFT_DIGITS * (i - 1);
        add(to, to, &part);
    }
}

static void total_of(integer *to, gr_products *sums, int count)
{
    integer_of_products(to, &sums[0]);
    for (int i = 1; i < count; i++) {
        integer more;
        integer_of_products(&more, &sums[i]);
        add(to, to, &more);
    }
}

/* What infinities and nans make of some sums; otherwise the sign of their total. */
static double special_total(const gr_finish_how *how, gr_products *sums, int count, bool *special)
{
    double total = 0;
    for (int i = 0; i < count; i++)
        if (sums[i].part[1].flags)
            total += gr_exact_f64(&sums[i].part[1]);
    *special = *special || total != 0; /* a nan is not 0 */
    if (total != 0 || count == 0 || how->kind == GR_FINISH_VARIANCE)
        return total;
    integer of;
    total_of(&of, sums, count);
    return of.size == 0 ? 0 : of.negative ? -1 : 1;
}

/* The value, before the root, if there are infinities or nans. Returns whether there are. */
static bool finish_special(const gr_finish_how *how, gr_finish_sums *of, double *value)
{
    bool special = !isfinite(of->mean);
    double first = special_total(how, of->first, how->first_count, &special);
    double second = special_total(how, of->second, how->second_count, &special);
    if (how->kind == GR_FINISH_RATIO) {
        *value = first / (how->second_count ? second : of->n);
    } else if (how->kind == GR_FINISH_VARIANCE || isnan(second) || isnan(of->mean) || of->n == 0) {
        *value = NAN;
    } else {
        bool meets = isinf(of->mean) && (isnan(first) || first == of->mean);
        *value = meets ? (double)NAN : INFINITY;
    }
    return special;
}

/* The real number is above / below. */
static void fraction_of(const gr_finish_how *how, gr_finish_sums *of, integer *above,
                        integer *below)
{
    const double free_terms[] = {of->n, -how->ddof};
    integer sum, n, free;
    integer_of(&n, &of->n, 1);
    integer_of(&free, free_terms, of->n > how->ddof ? 2 : 0);
    if (how->second_count)
        total_of(below, of->second, how->second_count);
    if (how->kind == GR_FINISH_RATIO) {
        total_of(above, of->first, how->first_count);
        if (!how->second_count)
            copy(below, &n);
    } else if (how->kind == GR_FINISH_VARIANCE) {
        int pieces = how->first_count / how->parts;
        multiply(above, &n, below);
        for (int i = 0; i < how->parts; i++) {
            total_of(&sum, of->first + i * pieces, pieces);
            multiply(&sum, &sum, &sum);
            sum.negative = true;
            add(above, above, &sum);
        }
        multiply(below, &n, &free);
    } else {
        integer mean;
        const double twice[] = {-of->mean, -of->mean};
        total_of(above, of->first, how->first_count);
        integer_of(&mean, twice, 2);
        multiply(above, &mean, above);
        add(above, below, above);
        integer_of(&mean, &of->mean, 1);
        multiply(&mean, &mean, &mean);
        multiply(&mean, &mean, &n);
        add(above, above, &mean);
        copy(below, &free);
    }
}

void gr_finish_in_integers(const gr_finish_how *how, gr_finish_sums *of, unsigned char *out)
{
    integer above, below;
    double value;
    if (finish_special(how, of, &value)) {
        gr_store_float(out, how->root ? sqrt(value) : value, how->target);
        return;
    }
    fraction_of(how, of, &above, &below);
    bool negative = above.size > 0 && above.negative != (below.size > 0 && below.negative);
    if (how->root && negative)
        gr_store_float(out, (double)NAN, how->target);
    else if (below.size > 0)
        gr_store_integer(out, round_ratio(&above, &below, how->root, how->target), how->target);
    else
        gr_store_float(out, above.size == 0 ? (double)NAN : copysign(INFINITY, negative ? -1 : 1),
                       how->target);
}
