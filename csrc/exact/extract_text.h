/* The inner loops, compiled once per instruction set. The file that includes this one chooses the
 * width (extract_vectors.h), defines widen, max_lanes, load_f16 and interleave (spread_text.h), and
 * EXTRACT, the table's name; NARROW_BINS; and WHOLE if bfloat16 and float32 need no scattering.
 *
 * What is added where depends on the width, and the result does not: nothing is rounded. */
INLINE void load_f64(const unsigned char *in, doubles pair[2])
{
    /* One at a time: GCC 12 copies two vectors at once by way of the stack. */
    memcpy(&pair[0], in, sizeof *pair);
    memcpy(&pair[1], in + sizeof *pair, sizeof *pair);
}

INLINE void load_f32(const unsigned char *in, doubles pair[2])
{
    floats low, high;
    memcpy(&low, in, sizeof low);
    memcpy(&high, in + sizeof low, sizeof high);
    pair[0] = widen(low);
    pair[1] = widen(high);
}

INLINE void load_bf16(const unsigned char *in, doubles pair[2])
{
    words x;
    memcpy(&x, in, sizeof x);
    pair[0] = widen((floats)(x << 16));
    pair[1] = widen((floats)(x & 0xffff0000));
}

enum { PAGE = 4096, CACHE_LINE = 64 };

/* Asks for the memory a page or more further on: processors look ahead by themselves, but stop
 * where a page ends. Past the end of an array it is harmless, as no prefetch faults; but it is no
 * address C lets a pointer have. */
INLINE void fetch_ahead(const unsigned char *in, size_t ahead, size_t bytes)
{
#pragma GCC unroll 8
    for (size_t i = 0; i < bytes; i += CACHE_LINE)
        __builtin_prefetch((const void *)((uintptr_t)in + ahead + i));
}

/* The greatest of the 16-bit lanes. */
INLINE unsigned greatest(lanes16 x)
{
    int most = 0;
    for (int i = 0; i < VECTOR_BYTES / 2; i++)
        if (x[i] > most)
            most = x[i];
    return (unsigned)most;
}

static unsigned peak(const void *data, size_t bytes, uint64_t mask)
{
    const unsigned char *in = data;
    enum { STEP = 4 * VECTOR_BYTES };
    lanes16 under, most[4];
    bits64 everywhere = mask - (bits64){0};
    memcpy(&under, &everywhere, sizeof under);
    memset(most, 0, sizeof most);
    for (; bytes >= STEP; in += STEP, bytes -= STEP) {
        fetch_ahead(in, PAGE, STEP);
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            lanes16 x;
            memcpy(&x, in + j * VECTOR_BYTES, sizeof x);
            most[j] = max_lanes(most[j], x & under);
        }
    }
    if (bytes) {
        lanes16 rest[4];
        memset(rest, 0, sizeof rest);
        memcpy(rest, in, bytes);
        for (int j = 0; j < 4; j++)
            most[j] = max_lanes(most[j], rest[j] & under);
    }
    return greatest(max_lanes(max_lanes(most[0], most[1]), max_lanes(most[2], most[3])));
}

/* What is known of the elements beside their sum. */
typedef struct {
    bits64 left;  /* after the last bin: zero, maybe of either sign, if the bins took all */
    lanes16 most; /* the greatest high words, without the sign */
} seen;

typedef doubles bin_vectors[GR_EXTRACT_WIDE_BINS][STREAMS];

/* Adds one row. */
INLINE void add_row(const unsigned char *in, size_t size, load_pair *load, int bins, bool checked,
                    bin_vectors bin, seen see[2])
{
#pragma GCC unroll 4
    for (int j = 0; j < STREAMS; j += 2) {
        doubles pair[2];
        load(in + (size_t)(j * WIDTH) * size, pair);
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++) {
            doubles x = pair[i];
            if (checked)
                see[i].most = max_lanes(see[i].most, (lanes16)((bits64)x & HIGH_WORD));
#pragma GCC unroll 6
            for (int b = 0; b < bins; b++) {
                doubles next = bin[b][j + i] + x;
                if (checked || b < bins - 1)
                    x -= next - bin[b][j + i];
                bin[b][j + i] = next;
            }
            if (checked)
                see[i].left |= (bits64)x;
        }
    }
}

/* What one bin's vectors took: integers of at most 2^51 in size. */
INLINE void take(const doubles bin[STREAMS], double start, lane_order order, lanes64 total[2])
{
    int64_t origin;
    memcpy(&origin, &start, sizeof origin);
    for (int j = 0; j < STREAMS; j++)
        total[order == PAIRED ? j % 2 : 0] += (lanes64)bin[j] - origin;
}

/* By parity of the elements' indexes. */
INLINE void fold(const lanes64 total[2], lane_order order, int64_t sum[2])
{
    sum[0] = sum[1] = 0;
    for (int i = 0; i < WIDTH; i++) {
        sum[order == PAIRED ? 0 : i % 2] += total[0][i];
        if (order == PAIRED)
            sum[1] += total[1][i];
    }
}

/* The rows of the block, the last one filled with zeros. */
INLINE void add_rows(const unsigned char *in, size_t n, size_t size, load_pair *load, int bins,
                     bool checked, const double *start, bin_vectors bin, seen see[2])
{
    for (int b = 0; b < bins; b++)
        for (int j = 0; j < STREAMS; j++)
            bin[b][j] = start[b] - (doubles){0};
    memset(see, 0, 2 * sizeof *see);
    for (; n >= ROW; n -= ROW, in += ROW * size) {
        fetch_ahead(in, PAGE, ROW * size);
        add_row(in, size, load, bins, checked, bin, see);
    }
    if (n) {
        unsigned char row[ROW * 8] = {0};
        memcpy(row, in, n * size);
        add_row(row, size, load, bins, checked, bin, see);
    }
}

INLINE uint64_t any_bits(bits64 lanes)
{
    uint64_t any = 0;
    for (int i = 0; i < WIDTH; i++)
        any |= lanes[i];
    return any;
}

INLINE bool extract(const void *data, size_t n, size_t size, load_pair *load, lane_order order,
                    int bins, const double *start, unsigned most, gr_extracted *out)
{
    bin_vectors bin;
    seen see[2];
    add_rows(data, n, size, load, bins, true, start, bin, see);
    out->left = any_bits(see[0].left | see[1].left) << 1; /* but for the sign of zeros */
    out->peak = greatest(max_lanes(see[0].most, see[1].most)) >> 4;
    if (out->left || out->peak > most)
        return false;
    for (int b = 0; b < bins; b++) {
        lanes64 total[2] = {{0}, {0}};
        take(bin[b], start[b], order, total);
        fold(total, order, out->sum[b]);
    }
    return true;
}

/* One loop for each number of bins, the others' registers being free. */
#define EXTRACT_FUNCTION(type, size, order)                                                        \
    static bool extract_##type(const void *data, size_t n, int bins, const double *start,          \
                               unsigned most, gr_extracted *out)                                   \
    {                                                                                              \
        switch (bins) {                                                                            \
        case 1: return extract(data, n, size, load_##type, order, 1, start, most, out);            \
        case 2: return extract(data, n, size, load_##type, order, 2, start, most, out);            \
        default: return extract(data, n, size, load_##type, order, 3, start, most, out);           \
        }                                                                                          \
    }

EXTRACT_FUNCTION(bf16, 2, PAIRED)
EXTRACT_FUNCTION(f32, 4, IN_ORDER)
EXTRACT_FUNCTION(f64, 8, IN_ORDER)

/* A bin that has met an inf or nan stays one, and the first of all meets each; the others stay in
 * their binade. */
INLINE bool all_finite(const doubles bin[STREAMS], double start)
{
    bits64 changed = {0};
    for (int j = 0; j < STREAMS; j++)
        changed |= (bits64)bin[j] ^ (bits64)(start - (doubles){0});
    return any_bits(changed) >> 52 == 0;
}

INLINE size_t extract_whole(const void *data, size_t n, size_t size, load_pair *load,
                            lane_order order, int bins, int log_rows, const double *start,
                            gr_extracted *out)
{
    lanes64 total[GR_EXTRACT_WIDE_BINS][2];
    for (int b = 0; b < bins; b++)
        total[b][0] = total[b][1] = (lanes64){0};
    size_t done = 0, most = (size_t)ROW << log_rows;
    while (done < n) {
        size_t piece = n - done < most ? n - done : most;
        bin_vectors bin;
        seen unused[2];
        add_rows((const unsigned char *)data + done * size, piece, size, load, bins, false, start,
                 bin, unused);
        if (!all_finite(bin[0], start[0]))
            break;
        for (int b = 0; b < bins; b++)
            take(bin[b], start[b], order, total[b]);
        done += piece;
    }
    for (int b = 0; b < bins; b++)
        fold(total[b], order, out->sum[b]);
    return done;
}

#define WHOLE_FUNCTION(type, size, order, kind)                                                    \
    static size_t whole_##type(const void *data, size_t n, const double *start, gr_extracted *out) \
    {                                                                                              \
        return extract_whole(data, n, size, load_##type, order, GR_EXTRACT_##kind##_BINS,          \
                             GR_EXTRACT_##kind##_LOG_ROWS, start, out);                            \
    }

WHOLE_FUNCTION(f16, 2, IN_ORDER, HALF)

#include "spread_text.h"

#ifdef WHOLE
WHOLE_FUNCTION(bf16, 2, PAIRED, WIDE)
WHOLE_FUNCTION(f32, 4, IN_ORDER, WIDE)
#else
#include "bins_text.h"
#endif

const gr_extract_kernels EXTRACT = {
    .block = BLOCK,
    .narrow_bins = NARROW_BINS,
    .peak = peak,
    .bf16 = extract_bf16,
    .f32 = extract_f32,
    .f64 = extract_f64,
    .whole_f16 = whole_f16,
#ifdef WHOLE
    .whole_bf16 = whole_bf16,
    .whole_f32 = whole_f32,
    .scatter = {.f64 = add_pairs},
#else
    .scatter = {add_bins_bf16, add_bins_f32, add_pairs},
#endif
};
