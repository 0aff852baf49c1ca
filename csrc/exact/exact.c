/* The accumulator: integer arithmetic in base 2^32 with deferred carries.
 *
 * Lemma (digits do not overflow). |digit[k]| <= fill 2^32 for all k but the last. A deposit adds at
 * most f 2^32 to a digit and f to `fill`; merging adds the digits and the fills. Before fill would
 * exceed MOST_FILL = 2^30 the carries are propagated, after which a digit is below 2^32 and fill is
 * 1. So |digit[k]| <= 2^62. The last digit holds |value| / 2^2144, less than 2^18 for up to 2^63
 * elements. It is added modulo 2^64, so that even forged input causes no undefined behaviour.
 *
 * The numbers are 64 bits wide in two's complement and >> of a negative one is arithmetic, as with
 * every supported compiler: d == (d >> 32) * 2^32 + (d & 0xffffffff) for either sign. */
#include "exact/words.h"

static const uint32_t MOST_FILL = 1u << 30;

enum { LAST = GR_EXACT_DIGITS - 1 };

static int64_t add_modulo(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a + (uint64_t)b);
}

static void carry(gr_exact *acc)
{
    int64_t over = 0;
    for (int k = 0; k < LAST; k++) {
        int64_t digit = acc->digit[k] + over;
        over = digit >> 32;
        acc->digit[k] = digit & 0xffffffff;
    }
    acc->digit[LAST] = add_modulo(acc->digit[LAST], over);
    acc->fill = 1;
}

/* Makes room for adding at most fill 2^32 to each digit. */
static void make_room(gr_exact *acc, uint32_t fill)
{
    if (acc->fill > MOST_FILL - fill)
        carry(acc);
    acc->fill += fill;
}

void gr_exact_init(gr_exact *acc)
{
    memset(acc, 0, sizeof *acc);
}

bool gr_exact_add_scaled(gr_exact *acc, int64_t mantissa, int exponent)
{
    /* The mantissa, at most 2^63, shifted by up to 31 bits spans three digits. */
    unsigned position = (unsigned)exponent - (unsigned)GR_EXACT_UNIT;
    unsigned first = position / 32, shift = position % 32;
    if (exponent < GR_EXACT_UNIT || first + 2 > LAST)
        return false;
    make_room(acc, 1);
    uint64_t size = mantissa < 0 ? 0 - (uint64_t)mantissa : (uint64_t)mantissa;
    int64_t sign = mantissa < 0 ? -1 : 1;
    uint64_t low = size << shift, high = size >> 32 >> (32 - shift);
    int64_t *digit = acc->digit + first;
    digit[0] += sign * (int64_t)(low & 0xffffffff);
    digit[1] += sign * (int64_t)(low >> 32);
    digit[2] = add_modulo(digit[2], sign * (int64_t)high);
    return true;
}

void gr_exact_add_f64(gr_exact *acc, double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    gr_add_element(acc, bits, gr_format_of(GR_LOAD_f64));
}

bool gr_exact_add_digits(gr_exact *acc, const int64_t *digits, size_t n, size_t first)
{
    if (first > GR_EXACT_DIGITS || n > GR_EXACT_DIGITS - first)
        return false;
    /* A digit gets the low half of one number and the high half of the one below: together less
     * than 1.5 * 2^32. */
    make_room(acc, 2);
    for (size_t i = 0; i < n; i++) {
        size_t k = first + i;
        if (k == LAST) {
            acc->digit[k] = add_modulo(acc->digit[k], digits[i]);
            break;
        }
        acc->digit[k] += digits[i] & 0xffffffff;
        acc->digit[k + 1] = add_modulo(acc->digit[k + 1], digits[i] >> 32);
    }
    return true;
}

void gr_exact_merge(gr_exact *acc, const gr_exact *other)
{
    gr_exact normal;
    if (other->fill > MOST_FILL / 2 || acc == other) {
        normal = *other;
        carry(&normal);
        other = &normal;
    }
    make_room(acc, other->fill);
    for (int k = 0; k < GR_EXACT_DIGITS; k++)
        acc->digit[k] = add_modulo(acc->digit[k], other->digit[k]);
    acc->count += other->count;
    acc->flags |= other->flags;
}

void gr_exact_negate(gr_exact *acc)
{
    carry(acc);
    for (int k = 0; k < GR_EXACT_DIGITS; k++)
        acc->digit[k] = (int64_t)(0 - (uint64_t)acc->digit[k]);
}

void gr_exact_normalize(gr_exact *acc)
{
    carry(acc);
    if (!acc->flags)
        return;
    /* With a flag set, the finite numbers no longer affect the value. */
    acc->flags = gr_normalized_flags(acc->flags);
    memset(acc->digit, 0, sizeof acc->digit);
}

bool gr_exact_is_zero(const gr_exact *acc)
{
    gr_exact normal = *acc;
    gr_exact_normalize(&normal);
    for (int k = 0; k <= LAST; k++)
        if (normal.digit[k] != 0)
            return false;
    return !normal.flags;
}
