/* The inner loops of sums of rows and columns; a part of kernels_text.h. */
#include <stdbool.h>

/* The type, its bytes, the order of a pair of vectors, and the load of a pair in order. */
#define FLOATS(X)                                                                                  \
    X(f16, 2, IN_ORDER, load_f16)                                                                  \
    X(bf16, 2, PAIRED, load_bf16_in_order)                                                         \
    X(f32, 4, IN_ORDER, load_f32)                                                                  \
    X(f64, 8, IN_ORDER, load_f64)

/* The type, its bits, and the sign bits that are flipped before additions. */
#define INTEGERS(X)                                                                                \
    X(i8, 8, 0x8080808080808080)                                                                   \
    X(u8, 8, 0)                                                                                    \
    X(i16, 16, 0x8000800080008000)                                                                 \
    X(u16, 16, 0)                                                                                  \
    X(i32, 32, 0x8000000080000000)                                                                 \
    X(u32, 32, 0)                                                                                  \
    X(u64, 64, 0)

/* --- rows of floats -------------------------------------------------------------------------- */

enum {
    SHORT = GR_CPU_LANES, /* longest rows that are added up side by side */
    SIDE_BY_SIDE = 32     /* rows */
};

/* Loads in order: interleaves the even and odd elements that a PAIRED load separates. */
INLINE void load_in_order(const unsigned char *in, load_pair *load, lane_order order, double *to)
{
    doubles pair[2];
    load(in, pair);
    if (order == IN_ORDER) {
        memcpy(to, pair, sizeof pair);
        return;
    }
    for (int i = 0; i < WIDTH; i++) {
        to[2 * i] = pair[0][i];
        to[2 * i + 1] = pair[1][i];
    }
}

/* Converts n elements. */
INLINE void widen_row(const unsigned char *in, size_t n, size_t size, load_pair *load,
                      lane_order order, double *to)
{
    size_t i = 0;
    for (; i + 2 * WIDTH <= n; i += 2 * WIDTH)
        load_in_order(in + i * size, load, order, to + i);
    if (i < n) {
        unsigned char rest[2 * WIDTH * 8] = {0};
        double last[2 * WIDTH];
        copy_rest(rest, in + i * size, (n - i) * size, 2 * WIDTH * size);
        load_in_order(rest, load, order, last);
        for (size_t j = 0; i + j < n; j++)
            to[i + j] = last[j];
    }
}

/* The same additions as in sum_block, for many rows of n <= SHORT elements at once: element i of
 * each row is lane i. */
INLINE void sum_side_by_side(const double *in, size_t n, size_t rows, gr_pair *sums)
{
    double lanes[SHORT][SIDE_BY_SIDE];
    for (size_t i = 0; i < n; i++)
        for (size_t r = 0; r < rows; r++)
            lanes[i][r] = 0 + in[r * n + i]; /* turns -0 into +0 */
    for (size_t half = SHORT / 2; half >= 2; half /= 2)
        for (size_t i = 0; i < half && i + half < n; i++)
            for (size_t r = 0; r < rows; r++)
                lanes[i][r] += lanes[i + half][r];
    for (size_t r = 0; r < rows; r++)
        sums[r] = (gr_pair){lanes[0][r], n > 1 ? lanes[1][r] : 0};
}

INLINE void sum_short_rows(const unsigned char *in, ptrdiff_t step, size_t n, size_t rows,
                           size_t size, load_pair *load, lane_order order, gr_pair *sums)
{
    double wide[SHORT * SIDE_BY_SIDE];
    for (size_t some; rows > 0; rows -= some, sums += some, in += (ptrdiff_t)some * step) {
        some = rows < SIDE_BY_SIDE ? rows : SIDE_BY_SIDE;
        if (step == (ptrdiff_t)(n * size))
            widen_row(in, some * n, size, load, order, wide);
        else
            for (size_t r = 0; r < some; r++)
                widen_row(in + (ptrdiff_t)r * step, n, size, load, order, wide + r * n);
        sum_side_by_side(wide, n, some, sums);
    }
}

INLINE void sum_float_rows(const unsigned char *in, ptrdiff_t step, size_t n, size_t rows,
                           size_t size, load_pair *load, lane_order order, gr_pair *sums)
{
    bool fetches = fetching_gains();
    for (size_t r = 0; r < rows; r++, in += step)
        sums[r] = n <= GR_CPU_BLOCK ? sum_block(in, n, size, load, order, fetches)
                                    : sum_floats(in, n, size, load, order);
}

/* Short rows are a function of their own, whose large stack frame other sums do without. */
#define FLOAT_ROWS(type, size, order, load)                                                        \
    static __attribute__((noinline)) void short_##type(const void *data, ptrdiff_t step, size_t n, \
                                                       size_t rows, gr_pair *sums)                 \
    {                                                                                              \
        sum_short_rows(data, step, n, rows, size, load_##type, order, sums);                       \
    }                                                                                              \
    static void rows_##type(const void *data, ptrdiff_t step, size_t n, size_t rows,               \
                            gr_pair *sums)                                                         \
    {                                                                                              \
        if (n <= SHORT && rows > 1)                                                                \
            short_##type(data, step, n, rows, sums);                                               \
        else                                                                                       \
            sum_float_rows(data, step, n, rows, size, load_##type, order, sums);                   \
    }

FLOATS(FLOAT_ROWS)

/* --- rows of integers ------------------------------------------------------------------------ */

/* Integers at any address. */
#define LOOSE(type) type __attribute__((aligned(1), may_alias))
typedef LOOSE(int8_t) loose_i8;
typedef LOOSE(uint8_t) loose_u8;
typedef LOOSE(int16_t) loose_i16;
typedef LOOSE(uint16_t) loose_u16;
typedef LOOSE(int32_t) loose_i32;
typedef LOOSE(uint32_t) loose_u32;
typedef LOOSE(uint64_t) loose_u64;

enum { SHORT_INTEGERS = 16 };

/* Flipping the sign bits of signed integers makes them unsigned integers, each too large by the
 * value of that bit. */
#define INTEGER_ROWS(type, bits, flip)                                                             \
    static void rows_##type(const void *data, ptrdiff_t step, size_t n, size_t rows,               \
                            uint64_t *sums)                                                        \
    {                                                                                              \
        const unsigned char *in = data;                                                            \
        uint64_t excess = (flip) ? (uint64_t)1 << (bits - 1) : 0;                                  \
        if (n <= SHORT_INTEGERS) {                                                                 \
            for (size_t r = 0; r < rows; r++, in += step) {                                        \
                const loose_##type *row = (const loose_##type *)in;                                \
                uint64_t sum = 0;                                                                  \
                for (size_t i = 0; i < n; i++)                                                     \
                    sum += (uint64_t)(int64_t)row[i];                                              \
                sums[r] = sum;                                                                     \
            }                                                                                      \
            return;                                                                                \
        }                                                                                          \
        bool fetches = fetching_gains();                                                           \
        for (size_t r = 0; r < rows; r++, in += step)                                              \
            sums[r] = sum_integers(in, n * (bits / 8), bits, flip, fetches) - excess * n;          \
    }

INTEGERS(INTEGER_ROWS)

/* --- columns --------------------------------------------------------------------------------- */

enum {
    GROUP = 2 * WIDTH, /* columns that are added at a time */
    TOGETHER = 8       /* rows that are added to each other first */
};

/* Adds up `count` rows (a power of two), every `apart`-th of the list, pairwise, and adds the
 * result to the sums. Distant rows are streams that hardware prefetchers follow: two to four times
 * as fast as adjacent rows (EPYC Zen 4). */
INLINE void add_float_group(const unsigned char *const *rows, size_t count, size_t apart, size_t at,
                            load_pair *load, doubles sum[2])
{
    doubles x[TOGETHER][2];
#pragma GCC unroll 8
    for (size_t j = 0; j < count; j++)
        load(rows[j * apart] + at, x[j]);
#pragma GCC unroll 8
    for (size_t half = count / 2; half >= 1; half /= 2)
#pragma GCC unroll 8
        for (size_t j = 0; j < half; j++) {
            x[j][0] += x[j + half][0];
            x[j][1] += x[j + half][1];
        }
    sum[0] += x[0][0];
    sum[1] += x[0][1];
}

/* Adds up rows in one pass over the sums: if `eight`, eight of `rows`, every `apart`-th one. Then
 * adds `rest` < 8 rows of `more`. Starts from +0 if `fresh`. */
INLINE void add_float_rows(const unsigned char *const *rows, bool eight, size_t apart,
                           const unsigned char *const *more, size_t rest, size_t width, size_t size,
                           load_pair *load, bool fresh, bool fetches, double *sums)
{
    enum { AHEAD = 4096 }; /* prefetch distance in bytes */
    for (size_t first = 0; first < width; first += GROUP, sums += GROUP) {
        size_t at = (first + GROUP <= width ? first : width - GROUP) * size;
        doubles sum[2] = {{0}, {0}};
        if (!fresh) {
            memcpy(&sum[0], sums, sizeof sum[0]);
            memcpy(&sum[1], sums + WIDTH, sizeof sum[1]);
        }
        for (size_t j = 0; j < TOGETHER && eight && fetches; j++)
            for (size_t i = 0; i < GROUP * size; i += 64) /* may be past the array */
                __builtin_prefetch((const void *)((uintptr_t)rows[j * apart] + at + AHEAD + i), 0,
                                   SECOND_LEVEL);
        if (eight)
            add_float_group(rows, TOGETHER, apart, at, load, sum);
        if (rest & 4)
            add_float_group(more, 4, 1, at, load, sum);
        for (size_t r = rest & 4; r < rest; r++)
            add_float_group(more + r, 1, 1, at, load, sum);
        memcpy(sums, &sum[0], sizeof sum[0]);
        memcpy(sums + WIDTH, &sum[1], sizeof sum[1]);
    }
}

INLINE void add_float_columns(const unsigned char *const *rows, size_t count, size_t width,
                              size_t size, load_pair *load, bool fetches, double *sums)
{
    size_t apart = count / TOGETHER, passes = apart + (apart == 0);
    for (size_t r = 0; r < passes; r++)
        add_float_rows(rows + r, apart > 0, apart, rows + apart * TOGETHER,
                       r + 1 == passes ? count % TOGETHER : 0, width, size, load, r == 0, fetches,
                       sums);
}

#define FLOAT_COLUMNS(type, size, order, load)                                                     \
    static void columns_##type(const unsigned char *const *rows, size_t count, size_t width,       \
                               bool fetches, double *sums)                                         \
    {                                                                                              \
        add_float_columns(rows, count, width, size, load, fetches, sums);                          \
    }

FLOATS(FLOAT_COLUMNS)

/* Integers are first added in lanes of twice their width, integers at even and at odd places
 * separately, as in sum_integers. Sums of 128 fit. Lanes of 64 bits, and sums modulo 2^32, are not
 * widened. Columns are in order, without groups. */
typedef struct {
    lanes64 even, odd;
} lane_sums;

INLINE void add_vector(lane_sums *to, lanes64 x, int bits, bool widens)
{
    if (!widens) {
        to->even = add_lanes(to->even, x, bits);
    } else if (bits == 8) {
        to->even = add_lanes(to->even, (lanes64)((lanes16)x & 0xff), 16);
        to->odd = add_lanes(to->odd, (lanes64)((lanes16)x >> 8), 16);
    } else if (bits == 16) {
        to->even = add_lanes(to->even, (lanes64)((lanes32)x & 0xffff), 32);
        to->odd = add_lanes(to->odd, (lanes64)((lanes32)x >> 16), 32);
    } else {
        to->even += x & 0xffffffff;
        to->odd += x >> 32;
    }
}

/* Adds lanes from number `first` on to the sums of their columns. */
#define STORE_LANES(type)                                                                          \
    {                                                                                              \
        type even[VECTOR_BYTES / sizeof(type)], odd[VECTOR_BYTES / sizeof(type)];                  \
        type lanes[2 * VECTOR_BYTES / sizeof(type)];                                               \
        memcpy(even, &from->even, sizeof even);                                                    \
        memcpy(odd, &from->odd, sizeof odd);                                                       \
        for (size_t i = 0; i < VECTOR_BYTES / sizeof(type) && widens; i++) {                       \
            lanes[2 * i] = even[i];                                                                \
            lanes[2 * i + 1] = odd[i];                                                             \
        }                                                                                          \
        if (!widens)                                                                               \
            memcpy(lanes, even, sizeof even);                                                      \
        for (size_t i = first; i < columns; i++)                                                   \
            sums[i - first] += lanes[i] - excess;                                                  \
        return;                                                                                    \
    }

INLINE void store_lane_sums(const lane_sums *from, size_t first, size_t columns, int bits,
                            bool widens, uint64_t excess, uint64_t *sums)
{
    switch (widens ? 2 * bits : bits) {
    case 16: STORE_LANES(uint16_t)
    case 32: STORE_LANES(uint32_t)
    default: STORE_LANES(uint64_t)
    }
}

INLINE void add_integer_rows(const unsigned char *const *rows, size_t count, size_t apart,
                             size_t at, lane_sums *to, int bits, bool widens, lanes64 mask)
{
    lanes64 x;
#pragma GCC unroll 8
    for (size_t j = 0; j < count; j++) {
        memcpy(&x, rows[j * apart] + at, sizeof x);
        add_vector(to, x ^ mask, bits, widens);
    }
}

/* Adds fewer columns than a vector has. */
INLINE void add_few_columns(const unsigned char *const *rows, size_t count, size_t width, int bits,
                            uint64_t flip, uint64_t excess, uint64_t *sums)
{
    for (size_t r = 0; r < count; r++)
        for (size_t i = 0; i < width; i++) {
            uint64_t x = 0;
            memcpy(&x, rows[r] + i * (size_t)(bits / 8), (size_t)(bits / 8));
            x ^= flip & (bits < 64 ? ((uint64_t)1 << bits % 64) - 1 : UINT64_MAX);
            sums[i] += x - excess;
        }
}

INLINE void add_integer_columns(const unsigned char *const *rows, size_t count, size_t width,
                                int bits, bool widens, uint64_t flip, uint64_t *sums)
{
    enum { TOGETHER_VECTORS = 64 }; /* more would need a large stack */
    const size_t columns = (size_t)(8 * VECTOR_BYTES / bits), apart = count / TOGETHER;
    uint64_t excess = flip ? (uint64_t)1 << (bits - 1) : 0;
    lanes64 mask = flip - (lanes64){0};
    if (width < columns) {
        add_few_columns(rows, count, width, bits, flip, excess, sums);
        return;
    }
    size_t vectors = (width - 1) / columns + 1, last = width - columns;
    if (count < 2 * TOGETHER) { /* in one pass */
        for (size_t v = 0; v < vectors; v++, sums += columns) {
            bool whole = (v + 1) * columns <= width;
            size_t at = whole ? v * VECTOR_BYTES : last * (size_t)(bits / 8);
            lane_sums sum = {{0}, {0}};
            if (apart > 0)
                add_integer_rows(rows, TOGETHER, 1, at, &sum, bits, widens, mask);
            for (size_t r = apart * TOGETHER; r < count; r++)
                add_integer_rows(rows + r, 1, 1, at, &sum, bits, widens, mask);
            store_lane_sums(&sum, whole ? 0 : vectors * columns - width, columns, bits, widens,
                            excess * count, sums);
        }
        return;
    }
    lane_sums parts[TOGETHER_VECTORS];
    for (size_t first = 0; first < vectors; first += TOGETHER_VECTORS) {
        size_t left = vectors - first, n = left < TOGETHER_VECTORS ? left : TOGETHER_VECTORS;
        memset(parts, 0, n * sizeof *parts);
        for (size_t r = 0; r < apart; r++)
            for (size_t v = 0; v < n; v++) {
                size_t at = v < left - 1 ? (first + v) * VECTOR_BYTES : last * (size_t)(bits / 8);
                add_integer_rows(rows + r, TOGETHER, apart, at, &parts[v], bits, widens, mask);
            }
        for (size_t r = apart * TOGETHER; r < count; r++)
            for (size_t v = 0; v < n; v++) {
                size_t at = v < left - 1 ? (first + v) * VECTOR_BYTES : last * (size_t)(bits / 8);
                add_integer_rows(rows + r, 1, 1, at, &parts[v], bits, widens, mask);
            }
        for (size_t v = 0; v < n; v++, sums += columns)
            store_lane_sums(&parts[v], v < left - 1 ? 0 : vectors * columns - width, columns, bits,
                            widens, excess * count, sums);
    }
}

static void columns_w32(const unsigned char *const *rows, size_t count, size_t width,
                        uint64_t *sums)
{
    add_integer_columns(rows, count, width, 32, false, 0, sums);
}

#define INTEGER_COLUMNS(type, bits, flip)                                                          \
    static void columns_##type(const unsigned char *const *rows, size_t count, size_t width,       \
                               uint64_t *sums)                                                     \
    {                                                                                              \
        add_integer_columns(rows, count, width, bits, bits < 64, flip, sums);                      \
    }

INTEGERS(INTEGER_COLUMNS)

#define ROWS_OF(type, ...) [GR_LOAD_##type] = rows_##type,
#define COLUMNS_OF(type, ...) [GR_LOAD_##type] = columns_##type,
#define AXIS_KERNELS                                                                               \
    .float_rows = {FLOATS(ROWS_OF)}, .float_columns = {FLOATS(COLUMNS_OF)},                        \
    .integer_rows = {INTEGERS(ROWS_OF)}, .integer_columns = {INTEGERS(COLUMNS_OF)},                \
    .columns_w32 = columns_w32, .vector = GROUP
