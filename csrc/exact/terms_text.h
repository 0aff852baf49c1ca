/* Sums of terms; a part of proven_text.h. A term is |x| or x y, where y may be x. A product of
 * float64 numbers is split into the rounded product and its error, which is added to the error of
 * the addition. */

/* `small`: the sign bit says that a product of float64 may be so small that its error is no
 * float64. */
typedef struct {
    proven_lanes sum;
    lanes64 small;
} term_lanes;

/* Notes products that may be too small. */
INLINE void note_small(lanes64 *small, doubles x, doubles y, doubles product)
{
    const int64_t exponent = (int64_t)0x7ff << 52, least = (int64_t)(1023 - 960) << 52;
    lanes64 no_zero = (lanes64)(x != 0) & (lanes64)(y != 0);
    *small |= (((lanes64)product & exponent) - least) & no_zero;
}

INLINE void add_term(term_lanes *to, gr_term term, size_t size, doubles x, doubles y)
{
    if (term == GR_TERM_MAGNITUDE) {
        add_element(&to->sum, magnitude(x), size);
        return;
    }
    doubles product = x * y, rest = two_sum(&to->sum.sum, product);
    if (size == sizeof(double)) {
        rest += rest_of_product(x, y, product);
        note_small(&to->small, x, y, product);
    }
    to->sum.rest += rest;
    to->sum.bound += magnitude(rest);
}

/* Makes `bound`, times its factor (proven.h), cover the lost errors of too small products. */
INLINE void end_terms(term_lanes *of)
{
    const doubles lost = (doubles){0} + 0x1p-1000;
    of->sum.bound += (doubles)((lanes64)lost & (lanes64)(of->small < 0));
}

typedef double unaligned __attribute__((vector_size(VECTOR_BYTES), aligned(1), may_alias));

/* Loads each vector once: compilers repeat the loads of memory operands, and lines of arrays whose
 * addresses are alike evict each other from AMD's first-level cache. */
INLINE void load_f64_once(const unsigned char *in, doubles pair[2])
{
    pair[0] = ((const volatile unaligned *)in)[0];
    pair[1] = ((const volatile unaligned *)in)[1];
}

INLINE void add_term_streams(gr_term term, load_pair *load, size_t size, const unsigned char *in,
                             const unsigned char *other, term_lanes lanes[STREAMS])
{
#pragma GCC unroll 4
    for (int j = 0; j < STREAMS; j += 2) {
        doubles x[2], y[2];
        load(in + (size_t)(j * WIDTH) * size, x);
        load(other + (size_t)(j * WIDTH) * size, y);
        add_term(&lanes[j], term, size, x[0], y[0]);
        add_term(&lanes[j + 1], term, size, x[1], y[1]);
    }
}

INLINE void add_term_row(gr_term term, load_pair *load, size_t size, const unsigned char *in,
                         const unsigned char *other, size_t n, proven_lanes *total)
{
    enum { ROW = STREAMS * WIDTH };
    term_lanes lanes[STREAMS] = {0};
    for (; n >= ROW; n -= ROW, in += ROW * size, other += ROW * size)
        add_term_streams(term, load, size, in, other, lanes);
    if (n > 0) {
        unsigned char x[ROW * 8] = {0}, y[ROW * 8] = {0};
        copy_rest(x, in, n * size, ROW * size);
        copy_rest(y, other, n * size, ROW * size);
        add_term_streams(term, load, size, x, y, lanes);
    }
#pragma GCC unroll 4
    for (int j = 0; j < STREAMS; j++)
        end_terms(&lanes[j]);
    merge_lanes(&lanes[0].sum, &lanes[2].sum);
    merge_lanes(&lanes[1].sum, &lanes[3].sum);
    merge_lanes(&lanes[0].sum, &lanes[1].sum);
    *total = lanes[0].sum;
}

/* Rows that each have a lane, as in add_short_rows(). */
INLINE void add_short_term_rows(gr_term term, load_one *load, size_t size, const gr_term_rows *of,
                                size_t rows, double *planes, size_t stride)
{
    bool has_factors = of->term == GR_TERM_PRODUCT;
    for (size_t r = 0; r < rows; r += WIDTH) {
        term_lanes sum;
        memset(&sum, 0, sizeof sum);
        for (size_t i = 0; i < of->n; i++) {
            doubles x = {0}, y;
#pragma GCC unroll 8
            for (size_t l = 0; l < WIDTH; l++)
                x[l] = load(of->in + (ptrdiff_t)(r + l < rows ? r + l : r) * of->step + i * size);
            y = x;
#pragma GCC unroll 8
            for (size_t l = 0; l < WIDTH && has_factors; l++)
                y[l] = load(of->other + (ptrdiff_t)(r + l < rows ? r + l : r) * of->other_step +
                            i * size);
            add_term(&sum, term, size, x, y);
        }
        end_terms(&sum);
        store_lanes(&sum.sum, planes + r, stride);
    }
}

INLINE void add_all_term_rows(gr_term term, load_pair *load, load_one *one, size_t size,
                              const gr_term_rows *of, size_t rows, double *planes)
{
    const size_t stride = (size_t)WIDTH * GR_PROVEN_ROWS;
    if (rows < GR_PROVEN_ROWS)
        memset(planes, 0, 4 * stride * sizeof *planes);
    if (of->n * size <= 32 * WIDTH) {
        add_short_term_rows(term, one, size, of, rows, planes, stride);
        return;
    }
    for (size_t r = 0; r < rows; r++) {
        proven_lanes total;
        add_term_row(term, load, size, of->in + (ptrdiff_t)r * of->step,
                     of->other + (ptrdiff_t)r * of->other_step, of->n, &total);
        spread_row(&total, planes + r, stride);
    }
    fold_all_rows(planes, stride, 1);
}

INLINE void add_term_columns(gr_term term, load_pair *load, size_t size, const gr_term_columns *of,
                             double *planes, size_t stride)
{
    for (size_t first = 0; first < of->width; first += GROUP, planes += GROUP) {
        size_t at = (first + GROUP <= of->width ? first : of->width - GROUP) * size;
        term_lanes sum[2];
        for (int i = 0; i < 2; i++) {
            load_lanes(&sum[i].sum, planes + i * WIDTH, stride);
            sum[i].sum.bound += magnitude(sum[i].sum.rest);
            sum[i].small = (lanes64){0};
        }
        for (size_t j = 0; j < of->count; j++) {
            doubles x[2], y[2];
            load(of->rows[j] + at, x);
            load(of->rows[j] + of->other + at, y);
            add_term(&sum[0], term, size, x[0], y[0]);
            add_term(&sum[1], term, size, x[1], y[1]);
        }
        for (int i = 0; i < 2; i++) {
            end_terms(&sum[i]);
            store_lanes(&sum[i].sum, planes + i * WIDTH, stride);
        }
    }
}

#define FOR_TERM(function, term, ...)                                                              \
    if ((term) == GR_TERM_MAGNITUDE)                                                               \
        function(GR_TERM_MAGNITUDE, __VA_ARGS__);                                                  \
    else                                                                                           \
        function(GR_TERM_PRODUCT, __VA_ARGS__);

static void term_rows(const gr_term_rows *of, size_t rows, double *planes)
{
    switch (of->load) {
    case GR_LOAD_f16:
        FOR_TERM(add_all_term_rows, of->term, load_f16, one_f16, 2, of, rows, planes) break;
    case GR_LOAD_bf16:
        FOR_TERM(add_all_term_rows, of->term, load_bf16_in_order, one_bf16, 2, of, rows, planes)
        break;
    case GR_LOAD_f32:
        FOR_TERM(add_all_term_rows, of->term, load_f32, one_f32, 4, of, rows, planes) break;
    default:
        FOR_TERM(add_all_term_rows, of->term, load_f64_once, one_f64, 8, of, rows, planes) break;
    }
}

static void term_columns(const gr_term_columns *of, double *planes, size_t stride)
{
    switch (of->load) {
    case GR_LOAD_f16: FOR_TERM(add_term_columns, of->term, load_f16, 2, of, planes, stride) break;
    case GR_LOAD_bf16:
        FOR_TERM(add_term_columns, of->term, load_bf16_in_order, 2, of, planes, stride) break;
    case GR_LOAD_f32: FOR_TERM(add_term_columns, of->term, load_f32, 4, of, planes, stride) break;
    default: FOR_TERM(add_term_columns, of->term, load_f64, 8, of, planes, stride) break;
    }
}
