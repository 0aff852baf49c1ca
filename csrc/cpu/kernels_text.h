/* The inner loops, compiled once per instruction set. The including file chooses the width
 * (vectors.h) and defines widen, narrow, load_f16, and KERNELS, the name of the table that this
 * file defines. Vectors are added lane by lane, and the lanes are the same for any width. So every
 * instruction set gives the same bits. */
#include "cpu/instruction_set.h"
#include "cpu/kernels.h"
#include "cpu/loads.h"

enum {
    VECTORS = GR_CPU_LANES / WIDTH, /* vectors that hold the lanes */
    /* Independent sums: enough to hide the latency of an addition, too few to spill registers. */
    SUMS = VECTOR_BYTES == 64 ? 4 : 8
};

typedef uint64_t lanes64 VECTOR(VECTOR_BYTES);
typedef uint32_t lanes32 VECTOR(VECTOR_BYTES);
typedef uint16_t lanes16 VECTOR(VECTOR_BYTES);

/* Whether to fetch ahead. For arrays beyond the caches this gains time on Zen 5, and loses some on
 * Zen 4. */
INLINE bool fetching_gains(void)
{
    return gr_instructions() != GR_AVX512_HALVES;
}

/* Prefetches memory one page ahead. Hardware prefetchers stop at the end of a page. The address may
 * be past the end of the array: prefetches do not fault, but C allows no such pointer, hence the
 * integer arithmetic. */
INLINE void fetch_ahead(const unsigned char *in, size_t bytes)
{
    enum { PAGE = 4096, CACHE_LINE = 64 };
#pragma GCC unroll 8
    for (size_t i = 0; i < bytes; i += CACHE_LINE)
        __builtin_prefetch((const void *)((uintptr_t)in + PAGE + i));
}

/* Adds rows of 32 elements to the lanes. If the registers do not hold all lanes, half of the lanes
 * take all rows before the other half does; the second pass reads the rows from the first-level
 * cache. */
INLINE void add_rows(const unsigned char *in, size_t rows, size_t size, load_pair *load,
                     bool fetches, doubles lanes[VECTORS])
{
    for (int first = 0; first < VECTORS; first += SUMS) {
        doubles sums[SUMS];
        memcpy(sums, lanes + first, sizeof sums);
        const unsigned char *row = in + (size_t)(first * WIDTH) * size;
        for (size_t i = 0; i < rows; i++, row += GR_CPU_LANES * size) {
            if (first == 0 && fetches)
                fetch_ahead(row, GR_CPU_LANES * size);
#pragma GCC unroll 8
            for (int j = 0; j < SUMS; j += 2) {
                doubles pair[2];
                load(row + (size_t)(j * WIDTH) * size, pair);
                sums[j] += pair[0];
                sums[j + 1] += pair[1];
            }
        }
        memcpy(lanes + first, sums, sizeof sums);
    }
}

/* Folds one vector: adds lane i+WIDTH/2 to lane i, then i+WIDTH/4, ... Returns two lanes. */
INLINE gr_pair fold_vector(doubles x)
{
    gr_pair pairs[WIDTH / 2];
    memcpy(pairs, &x, sizeof pairs);
    for (int half = WIDTH / 4; half >= 1; half /= 2)
        for (int i = 0; i < half; i++)
            pairs[i] += pairs[i + half];
    return pairs[0];
}

/* Folds the lanes: i + i+16, then i+8, i+4, i+2. Returns one lane of even elements and one of odd
 * elements. */
INLINE gr_pair fold_lanes(doubles lanes[VECTORS], lane_order order)
{
    int left = order == PAIRED ? 2 : 1;
    for (int half = VECTORS / 2; half >= left; half /= 2)
        for (int i = 0; i < half; i++)
            lanes[i] += lanes[i + half];
    if (order == IN_ORDER)
        return fold_vector(lanes[0]);
    gr_pair even = fold_vector(lanes[0]), odd = fold_vector(lanes[1]);
    return (gr_pair){even[0] + even[1], odd[0] + odd[1]};
}

INLINE gr_pair sum_block(const unsigned char *in, size_t n, size_t size, load_pair *load,
                         lane_order order, bool fetches)
{
    doubles lanes[VECTORS];
    for (int i = 0; i < VECTORS; i++)
        lanes[i] = (doubles){0};
    size_t rows = n / GR_CPU_LANES, rest = n % GR_CPU_LANES;
    add_rows(in, rows, size, load, fetches, lanes);
    if (rest) {
        /* Pads the row with zeros. No lane is -0, so adding +0 changes none. */
        doubles row[VECTORS];
        for (int i = 0; i < VECTORS; i++)
            row[i] = (doubles){0};
        copy_rest(row, in + rows * GR_CPU_LANES * size, rest * size, GR_CPU_LANES * size);
        add_rows((const unsigned char *)row, 1, size, load, false, lanes);
    }
    return fold_lanes(lanes, order);
}

INLINE gr_pair sum_floats(const unsigned char *in, size_t n, size_t size, load_pair *load,
                          lane_order order)
{
    gr_tree tree;
    bool fetches = fetching_gains();
    gr_tree_start(&tree);
    while (n > 0) {
        size_t leaf = n < GR_CPU_BLOCK ? n : GR_CPU_BLOCK;
        gr_tree_push(&tree, sum_block(in, leaf, size, load, order, fetches));
        in += leaf * size;
        n -= leaf;
    }
    return gr_tree_total(&tree);
}

/* Takes two integers of `bits` bits per lane of twice the width, and adds them within their lane.
 */
INLINE lanes64 add_neighbours(lanes64 x, int bits)
{
    switch (bits) {
    case 8: return (lanes64)(((lanes16)x & 0xff) + ((lanes16)x >> 8));
    case 16: return (lanes64)(((lanes32)x & 0xffff) + ((lanes32)x >> 16));
    case 32: return (x & 0xffffffff) + (x >> 32);
    default: return x;
    }
}

INLINE lanes64 add_lanes(lanes64 a, lanes64 b, int bits)
{
    switch (bits) {
    case 16: return (lanes64)((lanes16)a + (lanes16)b);
    case 32: return (lanes64)((lanes32)a + (lanes32)b);
    default: return a + b;
    }
}

enum {
    STREAMS = 4,
    STRIDE = STREAMS * VECTOR_BYTES,
    /* The number of strides before 16-bit lanes of byte sums might overflow: 128 * 2 * 255 < 2^16.
     */
    MOST_ROWS = 128
};

INLINE lanes64 add_strides(const unsigned char *in, size_t strides, int bits, uint64_t flip,
                           bool fetches)
{
    lanes64 sums[STREAMS], total = {0}, mask = flip - (lanes64){0};
    memset(sums, 0, sizeof sums);
    int lane = bits < 64 ? 2 * bits : 64;
    for (size_t i = 0; i < strides; i++, in += STRIDE) {
        if (fetches)
            fetch_ahead(in, STRIDE);
#pragma GCC unroll 8
        for (int j = 0; j < STREAMS; j++) {
            lanes64 x;
            memcpy(&x, in + j * VECTOR_BYTES, sizeof x);
            sums[j] = add_lanes(sums[j], add_neighbours(x ^ mask, bits), lane);
        }
    }
    for (int j = 0; j < STREAMS; j++) {
        lanes64 x = sums[j];
        for (int width = lane; width < 64; width *= 2)
            x = add_neighbours(x, width);
        total += x;
    }
    return total;
}

INLINE uint64_t sum_integers(const unsigned char *in, size_t bytes, int bits, uint64_t flip,
                             bool fetches)
{
    lanes64 total = {0};
    while (bytes >= STRIDE) {
        size_t strides = bytes / STRIDE < MOST_ROWS ? bytes / STRIDE : MOST_ROWS;
        total += add_strides(in, strides, bits, flip, fetches);
        in += strides * STRIDE;
        bytes -= strides * STRIDE;
    }
    if (bytes) {
        lanes64 zeros[STREAMS]; /* xored with `flip`, these are zero */
        for (int j = 0; j < STREAMS; j++)
            zeros[j] = flip - (lanes64){0};
        copy_rest(zeros, in, bytes, STRIDE);
        total += add_strides((const unsigned char *)zeros, 1, bits, flip, false);
    }
    uint64_t sum = 0;
    for (int i = 0; i < WIDTH; i++)
        sum += total[i];
    return sum;
}

/* The compiler vectorizes these two loops. */
static bool all_finite(const double *x, size_t n)
{
    uint64_t most = 0; /* its high bit is set if one is inf or nan */
    for (size_t i = 0; i < n; i++) {
        uint64_t bits;
        memcpy(&bits, x + i, sizeof bits);
        most |= (bits & INT64_MAX) + ((uint64_t)1 << 52);
    }
    return most >> 63 == 0;
}

static void store_f64(const double *x, size_t n, unsigned char *to)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t bits;
        memcpy(&bits, x + i, sizeof bits);
        bits = x[i] == x[i] ? bits : (uint64_t)0x7ff8 << 48;
        memcpy(to + i * sizeof bits, &bits, sizeof bits);
    }
}

/* Rounds to float32. A nan becomes the quiet positive one. */
INLINE words narrow_to_f32(const double *x)
{
    doubles wide;
    memcpy(&wide, x, sizeof wide);
    floats single = narrow(wide);
    words number = (words)(single == single);
    return ((words)single & number) | (0x7fc00000 & ~number);
}

typedef int64_t signs64 VECTOR(VECTOR_BYTES);
typedef int32_t signs32 VECTOR(VECTOR_BYTES / 2);
typedef uint16_t halves VECTOR(VECTOR_BYTES / 4);

INLINE doubles size_of(doubles x)
{
    return (doubles)((signs64)x & INT64_MAX);
}

/* Rounds to bfloat16 once. On the way, it rounds to float32 "to odd": toward zero, with the last
 * bit set if that is inexact. So the second rounding has the result of a single one. */
INLINE halves narrow_to_bf16(const double *x)
{
    doubles wide;
    memcpy(&wide, x, sizeof wide);
    floats single = narrow(wide);
    doubles back = widen(single);
    words away = (words) __builtin_convertvector((signs64)(size_of(back) > size_of(wide)), signs32);
    words inexact = (words) __builtin_convertvector((signs64)(back != wide), signs32);
    words odd = ((words)single - (away & 1)) | (inexact & 1);
    words rounded = (odd + 0x7fff + (odd >> 16 & 1)) >> 16, number = (words)(single == single);
    return __builtin_convertvector((rounded & number) | (0x7fc0 & ~number), halves);
}

#define STORE(type, size, vector, narrow)                                                          \
    static void store_##type(const double *x, size_t n, unsigned char *to)                         \
    {                                                                                              \
        size_t i = 0;                                                                              \
        for (; i + WIDTH <= n; i += WIDTH) {                                                       \
            vector bits = narrow(x + i);                                                           \
            memcpy(to + i * size, &bits, sizeof bits);                                             \
        }                                                                                          \
        double rest[WIDTH] = {0};                                                                  \
        memcpy(rest, x + i, (n - i) * sizeof *x);                                                  \
        vector bits = narrow(rest);                                                                \
        memcpy(to + i * size, &bits, (n - i) * size);                                              \
    }

STORE(f32, 4, words, narrow_to_f32)
STORE(bf16, 2, halves, narrow_to_bf16)

#include "cpu/axis_text.h"

const gr_cpu_kernels KERNELS = {
    .all_finite = all_finite,
    .store_f64 = store_f64,
    .store_f32 = store_f32,
    .store_bf16 = store_bf16,
    AXIS_KERNELS,
};
