/* The inner loops of proven.h, compiled once per instruction set. The including file chooses the
 * width (vectors.h) and defines widen, and KERNELS, the name of the table that this file defines.
 *
 * The arithmetic is that of proven.h in each lane. */
#include "cpu/loads.h"
#include "exact/proven_kernels.h"

#if defined(__FAST_MATH__) || defined(__ASSOCIATIVE_MATH__)
#error "(a + b) - a is not b here: compile without -ffast-math and -fassociative-math"
#endif

typedef int64_t lanes64 VECTOR(VECTOR_BYTES);

enum {
    GROUP = 2 * WIDTH, /* columns */
    TOGETHER = 8,      /* rows that are added between two stores of the columns' sums */
    STREAMS = 4        /* vectors that take a row's elements in turn */
};

/* The sums of a vector of columns. */
typedef struct {
    doubles sum, rest, tail, bound;
} proven_lanes;

/* x - y, by the multiplication unit if there is FMA: AMD's addition units are the bottleneck. */
INLINE doubles minus(doubles x, doubles y)
{
    return VECTOR_BYTES > 16 ? rest_of_product(x, (doubles){0} + 1, y) : x - y;
}

INLINE doubles two_sum(doubles *sum, doubles x)
{
    doubles before = *sum, after = before + x, part = minus(after, before);
    *sum = after;
    return minus(before, after - part) + minus(x, part);
}

INLINE doubles magnitude(doubles x)
{
    return (doubles)((lanes64)x & INT64_MAX);
}

INLINE void add_rest(proven_lanes *to, doubles x)
{
    doubles error = two_sum(&to->rest, x);
    to->tail += error;
    to->bound += magnitude(error);
}

INLINE void add_lanes(proven_lanes *to, doubles x)
{
    add_rest(to, two_sum(&to->sum, x));
}

/* As gr_proven_add: `rest` rounds. Sums that had a rest begin by adding its size to `bound`. */
INLINE void add_narrow(proven_lanes *to, doubles x)
{
    doubles error = two_sum(&to->sum, x);
    to->rest += error;
    to->bound += magnitude(error);
}

INLINE void add_element(proven_lanes *to, doubles x, size_t size)
{
    if (size < sizeof(double))
        add_narrow(to, x);
    else
        add_lanes(to, x);
}

/* As gr_proven3_merge. */
INLINE void merge_lanes(proven_lanes *to, const proven_lanes *more)
{
    add_lanes(to, more->sum);
    add_rest(to, more->rest);
    to->tail += more->tail;
    to->bound += more->bound;
}

/* --- columns --------------------------------------------------------------------------------- */

INLINE void load_lanes(proven_lanes *to, const double *planes, size_t stride)
{
    memcpy(&to->sum, planes, sizeof to->sum);
    memcpy(&to->rest, planes + stride, sizeof to->rest);
    memcpy(&to->tail, planes + 2 * stride, sizeof to->tail);
    memcpy(&to->bound, planes + 3 * stride, sizeof to->bound);
}

INLINE void store_lanes(const proven_lanes *from, double *planes, size_t stride)
{
    memcpy(planes, &from->sum, sizeof from->sum);
    memcpy(planes + stride, &from->rest, sizeof from->rest);
    memcpy(planes + 2 * stride, &from->tail, sizeof from->tail);
    memcpy(planes + 3 * stride, &from->bound, sizeof from->bound);
}

/* Adds every `apart`-th of `count` rows (cpu/axis_text.h). `count` is a constant. */
INLINE void add_rows(const unsigned char *const *rows, size_t count, size_t apart, size_t width,
                     size_t size, load_pair *load, double *planes, size_t stride)
{
    for (size_t first = 0; first < width; first += GROUP, planes += GROUP) {
        size_t at = (first + GROUP <= width ? first : width - GROUP) * size;
        proven_lanes low, high;
        load_lanes(&low, planes, stride);
        load_lanes(&high, planes + WIDTH, stride);
        if (size < sizeof(double)) {
            low.bound += magnitude(low.rest);
            high.bound += magnitude(high.rest);
        }
#pragma GCC unroll 8
        for (size_t j = 0; j < count; j++) {
            doubles x[2];
            load(rows[j * apart] + at, x);
            add_element(&low, x[0], size);
            add_element(&high, x[1], size);
        }
        store_lanes(&low, planes, stride);
        store_lanes(&high, planes + WIDTH, stride);
    }
}

INLINE void add_columns(const unsigned char *const *rows, size_t count, size_t width, size_t size,
                        load_pair *load, double *planes, size_t stride)
{
    size_t apart = count / TOGETHER;
    for (size_t r = 0; r < apart; r++)
        add_rows(rows + r, TOGETHER, apart, width, size, load, planes, stride);
    rows += apart * TOGETHER;
    if (count & 4)
        add_rows(rows, 4, 1, width, size, load, planes, stride);
    rows += count & 4;
    for (size_t r = 0; r < count % 4; r++)
        add_rows(rows + r, 1, 1, width, size, load, planes, stride);
}

#define COLUMNS(type, size, load)                                                                  \
    static void columns_##type(const unsigned char *const *rows, size_t count, size_t width,       \
                               double *planes, size_t stride)                                      \
    {                                                                                              \
        add_columns(rows, count, width, size, load, planes, stride);                               \
    }

COLUMNS(bf16, 2, load_bf16_in_order)
COLUMNS(f32, 4, load_f32)
COLUMNS(f64, 8, load_f64)

static void merge_planes(double *planes, const double *more, size_t stride)
{
    for (size_t i = 0; i < stride; i += WIDTH) {
        proven_lanes to, from;
        load_lanes(&to, planes + i, stride);
        load_lanes(&from, more + i, stride);
        merge_lanes(&to, &from);
        store_lanes(&to, planes + i, stride);
    }
}

/* Does what gr_proven3_finish and gr_proven_round do, for sums of normal size in the format; for
 * float64, of at least 2^-900. For float64, `nearest` is `high`. */
static bool round_sums(const double *planes, size_t stride, size_t count, double factor,
                       int fraction, int unit, double *rounded, double *margin)
{
    const int64_t exponent = (int64_t)0x7ff << 52, bits = ((int64_t)1 << 52) - 1;
    const bool is_f64 = fraction == 52;
    const double least = is_f64 ? 0x1p-900 : gr_power_of_two(unit + fraction);
    const double most = is_f64 ? 0x1p1023 : 0x1p127; /* a larger one times `up` may be inf */
    const double up = is_f64 ? 0 : 1.5 * gr_power_of_two(52 - fraction); /* of a sum whose .. */
    const double half_gap = gr_power_of_two(-fraction - 1);
    lanes64 proven = (lanes64){0} - 1;
    for (size_t i = 0; i < count; i += WIDTH) {
        proven_lanes sum;
        load_lanes(&sum, planes + i, stride);
        doubles high = sum.sum, low = two_sum(&high, sum.rest);
        doubles tail = two_sum(&low, sum.tail), last = low;
        low = two_sum(&high, last);
        doubles power = (doubles)((lanes64)high & exponent);
        doubles nearest = (high + power * up) - power * up; /* .. last bit is one of the format's */
        doubles away = magnitude((high - nearest) + low) + magnitude(tail) + factor * sum.bound;
        lanes64 is_power = (lanes64)(((lanes64)nearest & bits) == 0);
        doubles half = power * half_gap;
        half -= (doubles)((lanes64)(half * 0.5) & is_power);
        lanes64 normal = (lanes64)(power >= least) & (lanes64)(power <= most);
        doubles left = half - away * (1 + 0x1p-50);
        left = (doubles)((lanes64)left & normal);
        /* High + low is the sum itself, which may be a tie; or the sum is a nan. */
        lanes64 known = (lanes64)(magnitude(tail) + sum.bound == 0);
        known &= is_f64 ? (lanes64)(power < __builtin_inf()) : normal & (lanes64)(low == 0);
        known |= (lanes64)(sum.sum != sum.sum) & (lanes64)(sum.bound == 0);
        left = (doubles)(((lanes64)left & ~known) | (known & ((int64_t)1023 << 52)));
        memcpy(rounded + i, &nearest, sizeof nearest);
        memcpy(margin + i, &left, sizeof left);
        proven &= (lanes64)(left > 0);
    }
    int64_t all = -1;
    for (int i = 0; i < WIDTH; i++)
        all &= proven[i];
    return all != 0;
}

INLINE void widen_all(load_pair *load, size_t size, const unsigned char *in, size_t n, double *to)
{
    enum { SOME = 2 * WIDTH };
    for (; n >= SOME; n -= SOME, in += SOME * size, to += SOME) {
        doubles x[2];
        load(in, x);
        memcpy(to, &x[0], sizeof *x);
        memcpy(to + WIDTH, &x[1], sizeof *x);
    }
    if (n > 0) {
        unsigned char rest[SOME * 8] = {0};
        double wide[SOME];
        doubles x[2];
        copy_rest(rest, in, n * size, SOME * size);
        load(rest, x);
        memcpy(wide, x, sizeof wide);
        memcpy(to, wide, n * sizeof *to);
    }
}

static void widen_elements(gr_load load, const unsigned char *in, size_t n, double *to)
{
    switch (load) {
    case GR_LOAD_f16: widen_all(load_f16, 2, in, n, to); break;
    case GR_LOAD_bf16: widen_all(load_bf16_in_order, 2, in, n, to); break;
    case GR_LOAD_f32: widen_all(load_f32, 4, in, n, to); break;
    default: memcpy(to, in, n * sizeof *to); break;
    }
}

/* --- rows ------------------------------------------------------------------------------------ */

INLINE void add_streams(const unsigned char *in, size_t size, load_pair *load,
                        proven_lanes lanes[STREAMS])
{
#pragma GCC unroll 4
    for (int j = 0; j < STREAMS; j += 2) {
        doubles x[2];
        load(in + (size_t)(j * WIDTH) * size, x);
        add_element(&lanes[j], x[0], size);
        add_element(&lanes[j + 1], x[1], size);
    }
}

INLINE void add_row(const unsigned char *in, size_t n, size_t size, load_pair *load,
                    proven_lanes *total)
{
    enum { ROW = STREAMS * WIDTH, PAGE = 4096 };
    proven_lanes lanes[STREAMS] = {0};
    for (; n >= ROW; n -= ROW, in += ROW * size) {
        for (size_t i = 0; i < ROW * size; i += 64) /* the address may be past the array */
            __builtin_prefetch((const void *)((uintptr_t)in + PAGE + i));
        add_streams(in, size, load, lanes);
    }
    if (n > 0) {
        unsigned char rest[ROW * 8] = {0};
        copy_rest(rest, in, n * size, ROW * size);
        add_streams(rest, size, load, lanes);
    }
    merge_lanes(&lanes[0], &lanes[2]);
    merge_lanes(&lanes[1], &lanes[3]);
    merge_lanes(&lanes[0], &lanes[1]);
    *total = lanes[0];
}

/* Merges lanes of all rows: lane l, at planes + GR_PROVEN_ROWS * l, and lane l + half. */
INLINE void fold_rows(double *planes, size_t stride, int half)
{
    for (size_t i = 0; i < (size_t)half * GR_PROVEN_ROWS; i += WIDTH) {
        proven_lanes to, more;
        load_lanes(&to, planes + i, stride);
        load_lanes(&more, planes + (size_t)half * GR_PROVEN_ROWS + i, stride);
        merge_lanes(&to, &more);
        store_lanes(&to, planes + i, stride);
    }
}

INLINE void fold_all_rows(double *planes, size_t stride, int parts)
{
    for (int half = WIDTH / 2; half >= parts; half /= 2)
        fold_rows(planes, stride, half);
}

/* Stores the lanes of a row. */
INLINE void spread_row(const proven_lanes *total, double *at, size_t stride)
{
    for (size_t i = 0; i < WIDTH; i++, at += GR_PROVEN_ROWS) {
        at[0] = total->sum[i];
        at[stride] = total->rest[i];
        at[2 * stride] = total->tail[i];
        at[3 * stride] = total->bound[i];
    }
}

typedef double load_one(const unsigned char *address);

/* Short rows: each lane sums one row, so no lanes are merged. */
INLINE void add_short_rows(const unsigned char *in, ptrdiff_t step, size_t n, size_t rows,
                           size_t size, load_one *load, double *planes, size_t stride)
{
    for (size_t r = 0; r < rows; r += WIDTH) {
        proven_lanes sum;
        memset(&sum, 0, sizeof sum);
        for (size_t i = 0; i < n; i++) {
            doubles x;
#pragma GCC unroll 8
            for (size_t l = 0; l < WIDTH; l++)
                x[l] = load(in + (ptrdiff_t)(r + l < rows ? r + l : r) * step + i * size);
            add_element(&sum, x, size);
        }
        store_lanes(&sum, planes + r, stride);
    }
}

INLINE void add_all_rows(const unsigned char *in, ptrdiff_t step, size_t n, size_t rows,
                         size_t size, load_pair *load, load_one *one, int parts, double *planes)
{
    const size_t stride = (size_t)WIDTH * GR_PROVEN_ROWS;
    if (rows < GR_PROVEN_ROWS)
        memset(planes, 0, 4 * stride * sizeof *planes);
    if (parts == 1 && n <= 2 * WIDTH) {
        add_short_rows(in, step, n, rows, size, one, planes, stride);
        return;
    }
    for (size_t r = 0; r < rows; r++, in += step) {
        proven_lanes total;
        add_row(in, n, size, load, &total);
        spread_row(&total, planes + r, stride);
    }
    fold_all_rows(planes, stride, parts);
}

#define ROWS(type, size, load, one)                                                                \
    static void rows_##type(const unsigned char *in, ptrdiff_t step, size_t n, size_t rows,        \
                            int parts, double *planes)                                             \
    {                                                                                              \
        add_all_rows(in, step, n, rows, size, load, one, parts, planes);                           \
    }

ROWS(bf16, 2, load_bf16_in_order, one_bf16)
ROWS(f32, 4, load_f32, one_f32)
ROWS(f64, 8, load_f64, one_f64)

#include "exact/axis_bins_text.h"
#include "exact/cell_levels_text.h"
#include "exact/finish_text.h"
#include "exact/levels_text.h"
#include "exact/terms_text.h"

#include "exact/rolling_text.h"

const gr_proven_kernels KERNELS = {
    .vector = GROUP,
    .rows = {[GR_LOAD_bf16] = rows_bf16, [GR_LOAD_f32] = rows_f32, [GR_LOAD_f64] = rows_f64},
    .columns =
        {[GR_LOAD_bf16] = columns_bf16, [GR_LOAD_f32] = columns_f32, [GR_LOAD_f64] = columns_f64},
    .term_rows = term_rows,
    .term_columns = term_columns,
    .merge_planes = merge_planes,
    .bin_columns_f64 = bin_columns_f64,
    .bin_rows_f64 = bin_rows_f64,
    .round_sums = round_sums,
    .finish = finish,
    .roll = roll,
    .add_levels = add_levels,
    .add_cells = add_cells,
    .cell_sums = cell_sums,
    .widen = widen_elements,
};
