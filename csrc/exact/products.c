#include "exact/products.h"

#include "cpu/floating_point_mode.h"
#include "exact/proven.h"

#include <float.h>

void gr_products_init(gr_products *sum)
{
    for (int i = 0; i < GR_PRODUCTS_PARTS; i++)
        gr_exact_init(&sum->part[i]);
}

static bool is_negative(uint64_t bits, gr_format format)
{
    return bits >> (format.fraction + format.exponent) & 1;
}

static int64_t mantissa_of(uint64_t bits, gr_format format, int *exponent)
{
    uint64_t one = (uint64_t)1 << format.fraction;
    int field = (int)(bits >> format.fraction) & ((1 << format.exponent) - 1);
    *exponent = format.unit + (field > 0 ? field - 1 : 0);
    return (int64_t)((bits & (one - 1)) | (field > 0 ? one : 0));
}

static uint32_t special_product(uint64_t x, uint64_t y, bool negative, gr_format format)
{
    uint32_t flags = gr_element_flag(x, format) | gr_element_flag(y, format);
    int exponent;
    if (!flags)
        return 0;
    bool has_zero = !mantissa_of(x, format, &exponent) || !mantissa_of(y, format, &exponent);
    if (flags & GR_EXACT_NAN || has_zero)
        return GR_EXACT_NAN;
    return negative ? GR_EXACT_MINUS_INF : GR_EXACT_PLUS_INF;
}

static void add(gr_products *sum, int64_t mantissa, int exponent)
{
    enum { MOST = 960 }; /* a mantissa of 53 bits times 2^960 is in float64's range */
    int i = exponent < GR_EXACT_UNIT ? 0 : exponent > MOST ? 2 : 1;
    (void)gr_exact_add_scaled(&sum->part[i], mantissa, exponent - GR_PRODUCTS_SHIFT * (i - 1));
}

void gr_products_add(gr_products *sum, uint64_t x, uint64_t y, int sign, gr_format format)
{
    bool negative = (is_negative(x, format) != is_negative(y, format)) != (sign < 0);
    uint32_t special = special_product(x, y, negative, format);
    if (special) {
        sum->part[1].flags |= special;
        return;
    }
    int x_exponent, y_exponent;
    int64_t a = mantissa_of(x, format, &x_exponent), b = mantissa_of(y, format, &y_exponent);
    unsigned __int128 product = (unsigned __int128)a * (unsigned __int128)b;
    int64_t low = (int64_t)(product & (((uint64_t)1 << 53) - 1)), high = (int64_t)(product >> 53);
    int exponent = x_exponent + y_exponent;
    if (low)
        add(sum, negative ? -low : low, exponent);
    if (high)
        add(sum, negative ? -high : high, exponent + 53);
}

/* Splits each product into two float64 numbers. Returns false if that is impossible for some. */
static bool split(const double *x, const double *y, size_t n, double *products, double *rests)
{
    bool fit = true;
    gr_arithmetic before = gr_begin_plain();
    for (size_t i = 0; i < n; i++) {
        double product = x[i] * y[i], size = gr_magnitude(product);
        products[i] = product;
        rests[i] = gr_rest_of_product(x[i], y[i], product);
        fit &=
            (size >= 0x1p-960 && size <= DBL_MAX && rests[i] == rests[i]) || x[i] == 0 || y[i] == 0;
    }
    gr_end_plain(before);
    return fit;
}

void gr_products_add_arrays(gr_products *sum, const double *x, const double *y, size_t n)
{
    enum { SOME = 2048 };
    double products[SOME], rests[SOME];
    const gr_format format = gr_format_of(GR_LOAD_f64);
    for (size_t some; n > 0; n -= some, x += some, y += some) {
        some = n < SOME ? n : SOME;
        if (split(x, y, some, products, rests)) {
            gr_exact_add_array(&sum->part[1], products, some, GR_LOAD_f64, 1, 1);
            gr_exact_add_array(&sum->part[1], rests, some, GR_LOAD_f64, 1, 1);
            continue;
        }
        for (size_t i = 0; i < some; i++)
            gr_products_add(sum, gr_element_bits(x + i, sizeof *x),
                            gr_element_bits(y + i, sizeof *y), 1, format);
    }
}
