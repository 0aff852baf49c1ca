/* Arithmetic with an error bound, for processors (finish_text.h) and kernels (parts/finish.h). The
 * including file defines `doubles`, and `lanes64`, integers of the same width: a comparison sets
 * all bits of a lane, or none.
 *
 * A number that differs from high + low by at most `error`, lane by lane. An operation adds a
 * bound of its rounding errors. If a number may overflow or be subnormal, `error` is infinite. */
typedef struct {
    doubles high, low, error;
} approximate;

#define LOST 0x1p-100 /* relative rounding error of a product, a quotient or a root */

INLINE doubles choose(lanes64 which, doubles yes, doubles no)
{
    return (doubles)(((lanes64)yes & which) | ((lanes64)no & ~which));
}

/* Whether high + low is exactly the number, and low is 0. */
INLINE lanes64 is_plain(const approximate *a)
{
    return (lanes64)(a->low == 0) & (lanes64)(a->error == 0);
}

INLINE doubles endless(void)
{
    return (doubles){0} + __builtin_inf();
}

INLINE approximate checked(doubles high, doubles low, doubles error)
{
    low = two_sum(&high, low);
    doubles size = magnitude(high);
    lanes64 is_zero = (lanes64)(high == 0) & (lanes64)(low == 0);
    lanes64 fits = (lanes64)(size < 0x1p900) & ((lanes64)(size > 0x1p-800) | is_zero);
    return (approximate){high, low, choose(fits, error, endless())};
}

INLINE approximate exactly(doubles x)
{
    return checked(x, (doubles){0}, (doubles){0});
}

INLINE approximate sum_of(approximate a, approximate b)
{
    doubles high = a.high, low = a.low;
    doubles low_rest = two_sum(&low, b.low), high_rest = two_sum(&high, b.high);
    doubles lost = magnitude(low_rest) + magnitude(two_sum(&low, high_rest));
    return checked(high, low, a.error + b.error + 2 * lost);
}

/* `is_exact`: high + low has no rounding error. */
INLINE approximate product_with(approximate a, approximate b, lanes64 is_exact)
{
    doubles high = a.high * b.high, low = rest_of_product(a.high, b.high, high);
    doubles error = magnitude(a.high) * b.error + (magnitude(b.high) + b.error) * a.error;
    low += a.high * b.low + a.low * b.high;
    doubles lost = (doubles)((lanes64)(LOST * magnitude(high)) & ~is_exact);
    lanes64 vanishes = (lanes64)(high == 0) & (lanes64)(a.high != 0) & (lanes64)(b.high != 0);
    return checked(high, low, choose(vanishes, endless(), 2 * error + lost));
}

INLINE approximate product_of(approximate a, approximate b)
{
    return product_with(a, b, is_plain(&a) & is_plain(&b)); /* `error` may underflow to 0 */
}

/* The same. Finds more products that are exact: those of a float64 and a number of few bits. */
INLINE approximate fine_product_of(approximate a, approximate b)
{
    doubles low = rest_of_product(a.high, b.high, a.high * b.high), cross = a.high * b.low;
    lanes64 is_exact = (lanes64)(a.low == 0) & (lanes64)(a.error == 0) & (lanes64)(b.error == 0) &
                       (lanes64)(rest_of_product(a.high, b.low, cross) == 0) &
                       (lanes64)(two_sum(&low, cross) == 0);
    /* The rest of a small product may underflow to 0. */
    is_exact = is_exact & ((lanes64)(b.low == 0) | (lanes64)(magnitude(cross) > 0x1p-900));
    return product_with(a, b, is_exact);
}

INLINE approximate negative_of(approximate a)
{
    return (approximate){-a.high, -a.low, a.error};
}

/* a - x (y + y_low). Requires that x y and a.high differ in their last few bits only, so that
 * a.high less the rounded product is a float64, and that y_low is 0 or far below y. */
INLINE approximate remainder_of(approximate a, doubles x, doubles y, doubles y_low)
{
    doubles product = x * y, high = a.high - product, rest = a.low;
    doubles lost = two_sum(&rest, -rest_of_product(x, y, product));
    rest -= x * y_low; /* rounds off less than LOST */
    doubles low = two_sum(&high, rest);
    return (approximate){high, low, a.error + magnitude(lost)};
}

/* a / b. The error is 0 if high + low is exact: quotients are often halfway between two floats. */
INLINE approximate quotient_of(approximate a, approximate b)
{
    const lanes64 exponent = (lanes64){0} + ((int64_t)0x7ff << 52);
    doubles quotient = a.high / b.high, size = magnitude(quotient);
    doubles above_inverse = (doubles)(((int64_t)2046 << 52) - ((lanes64)b.high & exponent));
    approximate rest = remainder_of(a, quotient, b.high, b.low);
    doubles low = rest.high / b.high, back = low * b.high;
    lanes64 is_whole = (lanes64)(back == rest.high) & is_plain(&rest) & is_plain(&b) &
                       (lanes64)(rest_of_product(low, b.high, back) == 0);
    doubles error = 2 * (rest.error + magnitude(rest.low) + size * b.error) * above_inverse;
    error = (doubles)((lanes64)(error + LOST * size) & ~is_whole);
    /* The quotient, or its error, may be below all numbers: then the sign is not known. */
    lanes64 vanishes =
        (lanes64)(quotient == 0) & ((lanes64)(a.high != 0) | (lanes64)(a.error != 0));
    lanes64 fits = (lanes64)(b.error < 0x1p-40 * magnitude(b.high)) & ~vanishes;
    return checked(quotient, low, choose(fits, error, endless()));
}

INLINE approximate root_of(approximate a)
{
    lanes64 is_zero = (lanes64)(a.high == 0) & is_plain(&a);
    doubles root = square_roots(a.high), inverse = 0.5 / root;
    approximate rest = remainder_of(a, root, root, (doubles){0});
    lanes64 is_whole = (lanes64)(rest.high == 0) & is_plain(&rest);
    doubles error = 4 * (rest.error + magnitude(rest.low)) * inverse + LOST * root;
    error = choose((lanes64)(a.error < 0x1p-40 * a.high), (doubles)((lanes64)error & ~is_whole),
                   endless());
    approximate found = checked(root, rest.high * inverse, error);
    return (approximate){choose(is_zero, a.high, found.high), choose(is_zero, a.low, found.low),
                         choose(is_zero, a.error, found.error)};
}

/* n - ddof, or 0 if that is negative. */
INLINE approximate free_of(doubles n, double ddof)
{
    approximate found = sum_of(exactly(n), exactly((doubles){0} - ddof));
    lanes64 are_free = (lanes64)(n > ddof);
    found.high = (doubles)((lanes64)found.high & are_free);
    found.low = (doubles)((lanes64)found.low & are_free);
    return found;
}

/* Replaces the variance of one finite element by 0. */
INLINE approximate zero_of_one(approximate above, doubles n)
{
    lanes64 is_zero = (lanes64)(n == 1) & (lanes64)(above.error < endless());
    return (approximate){choose(is_zero, (doubles){0}, above.high),
                         choose(is_zero, (doubles){0}, above.low),
                         choose(is_zero, (doubles){0}, above.error)};
}
