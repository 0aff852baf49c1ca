/* The inner loops, compiled once per instruction set. The including file chooses the width
 * (extract_vectors.h) and defines widen, max_lanes, load_f16, interleave (for spread_text.h),
 * FLAG_BINS, and EXTRACT_TABLE, the name of the table that this file defines. If FLAG_BINS is above
 * 1, it also defines add_quietly.
 *
 * The assignment of elements to bins depends on the width. The result does not, as nothing is
 * rounded. */
#include "cpu/instruction_set.h"
#include "cpu/loads.h"

#if FLAG_BINS == 1
/* Every addition of this instruction set may raise flags. With one bin, none has to be quiet. */
INLINE doubles add_quietly(doubles a, doubles b)
{
    return a + b;
}
#endif

/* Prefetch distance in bytes. Hardware prefetchers stop at the end of a page. For one thread on
 * Sapphire Rapids and uncached data, 0.5 to 3 KiB was best; a page or more was slower, and no
 * prefetching was slower still. On Zen 4, one thread was fastest without: float64 by 12 percent. */
enum { AHEAD = 3 << 10, CACHE_LINE = 64 };

/* Prefetches `bytes` bytes, `ahead` bytes ahead. This may be past the end of the array: prefetches
 * do not fault, but C allows no such pointer, hence the integer arithmetic. */
INLINE void fetch_ahead(const unsigned char *in, size_t ahead, size_t bytes)
{
#pragma GCC unroll 8
    for (size_t i = 0; i < bytes; i += CACHE_LINE)
        __builtin_prefetch((const void *)((uintptr_t)in + ahead + i));
}

/* Returns the greatest 16-bit lane. */
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
        fetch_ahead(in, AHEAD, STEP);
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

/* The proof that the bins have taken everything (extract.h). */
typedef enum { ALWAYS, BY_FLAG, BY_REST } proof;

/* Data for the proof by rest. */
typedef struct {
    bits64 left;  /* OR of the last bin's rests; only sign bits if the bins took everything */
    lanes16 most; /* the greatest high words, without the sign */
} seen;

typedef doubles bin_vectors[GR_EXTRACT_WIDE_BINS][LONE_STREAMS];
typedef bits64 totals[GR_EXTRACT_WIDE_BINS][2]; /* integers, modulo 2^64 */

INLINE void add_row(const unsigned char *in, size_t size, load_pair *load, int bins, int streams,
                    proof by, bin_vectors bin, seen see[2])
{
#pragma GCC unroll 8
    for (int j = 0; j < streams; j += 2) {
        doubles pair[2];
        load(in + (size_t)(j * WIDTH) * size, pair);
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++) {
            doubles x = pair[i];
            if (by == BY_REST)
                see[i].most = max_lanes(see[i].most, (lanes16)((bits64)x & HIGH_WORD));
#pragma GCC unroll 6
            for (int b = 0; b < bins; b++) {
                bool last = b == bins - 1;
                doubles next =
                    by == BY_FLAG && !last ? add_quietly(bin[b][j + i], x) : bin[b][j + i] + x;
                if (!last || by == BY_REST)
                    x -= next - bin[b][j + i];
                bin[b][j + i] = next;
            }
            if (by == BY_REST)
                see[i].left |= (bits64)x;
        }
    }
}

INLINE void clear(totals total, int bins)
{
#pragma GCC unroll 6
    for (int b = 0; b < bins; b++)
        total[b][0] = total[b][1] = (bits64){0};
}

/* Starts the bins and adds rows. The last row is padded with zeros. */
INLINE void add_rows(const unsigned char *in, size_t n, size_t size, load_pair *load, int bins,
                     int streams, proof by, const double *start, bin_vectors bin, seen see[2],
                     bool fetches)
{
    const size_t row = ROW(streams);
#pragma GCC unroll 6
    for (int b = 0; b < bins; b++)
#pragma GCC unroll 8
        for (int j = 0; j < streams; j++)
            bin[b][j] = start[b] - (doubles){0};
    for (; n >= row; n -= row, in += row * size) {
        if (fetches)
            fetch_ahead(in, AHEAD, row * size);
        add_row(in, size, load, bins, streams, by, bin, see);
    }
    if (n) {
        unsigned char rest[ROW(LONE_STREAMS) * 8] = {0};
        memcpy(rest, in, n * size);
        add_row(rest, size, load, bins, streams, by, bin, see);
    }
}

/* Adds to `total` the units in the bins: integers of at most 2^51 in size, as long as the bins are
 * in their binade. */
INLINE void take(const bin_vectors bin, int bins, int streams, const double *start,
                 lane_order order, totals total)
{
#pragma GCC unroll 6
    for (int b = 0; b < bins; b++) {
        uint64_t origin;
        memcpy(&origin, &start[b], sizeof origin);
#pragma GCC unroll 8
        for (int j = 0; j < streams; j++)
            total[b][order == PAIRED ? j % 2 : 0] += (bits64)bin[b][j] - origin;
    }
}

/* Returns the bits in which any bin differs from its start. */
INLINE bits64 changed(const bin_vectors bin, int bins, int streams, const double *start)
{
    bits64 bits = {0};
#pragma GCC unroll 6
    for (int b = 0; b < bins; b++)
#pragma GCC unroll 8
        for (int j = 0; j < streams; j++)
            bits |= (bits64)bin[b][j] ^ (bits64)(start[b] - (doubles){0});
    return bits;
}

/* Adds up the lanes, separately for elements at even and at odd indexes. */
INLINE void fold(const totals total, int bins, lane_order order, gr_extracted *out)
{
#pragma GCC unroll 6
    for (int b = 0; b < bins; b++) {
        uint64_t sum[2] = {0, 0};
        for (int i = 0; i < WIDTH; i++) {
            sum[order == PAIRED ? 0 : i % 2] += total[b][0][i];
            if (order == PAIRED)
                sum[1] += total[b][1][i];
        }
        memcpy(out->sum[b], sum, sizeof sum);
    }
}

INLINE uint64_t any_bits(bits64 lanes)
{
    uint64_t any = 0;
    for (int i = 0; i < WIDTH; i++)
        any |= lanes[i];
    return any;
}

/* Returns the number of elements before the next cache line starts, or 0 if that is not an even
 * number. Vectors that span two cache lines take longer to load, from memory 1.5 times as long. */
INLINE size_t to_boundary(const void *data, size_t size)
{
    size_t bytes = -(uintptr_t)data % CACHE_LINE;
    return bytes % (2 * size) == 0 ? bytes / size : 0;
}

/* Whether the bins have taken everything, and are still in their binade. */
INLINE bool proven(proof by, const bin_vectors bin, int bins, int streams, const double *start,
                   const seen see[2], unsigned most)
{
    if (by == BY_REST)
        return any_bits(see[0].left | see[1].left) << 1 == 0 && /* ignores the sign of zeros */
               greatest(max_lanes(see[0].most, see[1].most)) >> 4 <= most;
    /* With bins for all numbers, only inf and nan do not fit, and each of them reaches the first
     * bin. */
    bits64 bits = changed(bin, by == ALWAYS ? 1 : bins, streams, start);
    if (by == BY_FLAG) {
        GR_OPAQUE(bits); /* makes `bits` depend on all additions, and them on `start` */
        if (gr_inexact())
            return false;
    }
    return any_bits(bits) >> 52 == 0;
}

/* Adds up elements, one piece at a time, until one does not fit the bins. Returns the number added.
 */
INLINE size_t extract(const void *data, size_t n, size_t piece, size_t size, load_pair *load,
                      lane_order order, int bins, int streams, proof by, const double *starts,
                      unsigned most, gr_extracted *out)
{
    double start[GR_EXTRACT_WIDE_BINS];
    totals total;
    bool fetches = gr_instructions() != GR_AVX512_HALVES; /* Zen 4 */
    clear(total, bins);
    memcpy(start, starts, (size_t)bins * sizeof *start);
    if (by == BY_FLAG) {
        gr_lower_inexact();
        GR_OPAQUE(start);
    }
    size_t done = 0, next = n > 2 * piece ? to_boundary(data, size) : 0;
    next = next ? next : piece;
    while (done < n) {
        size_t now = n - done < next ? n - done : next;
        bin_vectors bin;
        seen see[2];
        memset(see, 0, sizeof see);
        add_rows((const unsigned char *)data + done * size, now, size, load, bins, streams, by,
                 start, bin, see, fetches);
        if (!proven(by, bin, bins, streams, start, see, most))
            break;
        take(bin, bins, streams, start, order, total);
        done += now;
        next = piece;
    }
    fold(total, bins, order, out);
    return done;
}

/* One loop for each number of bins: with a single bin, more streams fit the registers. */
INLINE size_t extract_some(const void *data, size_t n, size_t size, load_pair *load,
                           lane_order order, int bins, const double *start, unsigned most,
                           bool flags, gr_extracted *out)
{
    int streams = bins == 1 ? LONE_STREAMS : STREAMS;
    size_t piece = ROW(streams) << GR_EXTRACT_LOG_ROWS;
    piece = piece < BLOCK ? piece : BLOCK;
    if (flags && bins <= FLAG_BINS)
        return extract(data, n, piece, size, load, order, bins, streams, BY_FLAG, start, 0, out);
    return extract(data, n, piece, size, load, order, bins, streams, BY_REST, start, most, out);
}

#define EXTRACT_FUNCTION(type, size, order)                                                        \
    static size_t extract_##type(const void *data, size_t n, int bins, const double *start,        \
                                 unsigned most, bool flags, gr_extracted *out)                     \
    {                                                                                              \
        load_pair *load = load_##type;                                                             \
        switch (bins) {                                                                            \
        case 1: return extract_some(data, n, size, load, order, 1, start, most, flags, out);       \
        case 2: return extract_some(data, n, size, load, order, 2, start, most, flags, out);       \
        default: return extract_some(data, n, size, load, order, 3, start, most, flags, out);      \
        }                                                                                          \
    }

EXTRACT_FUNCTION(bf16, 2, PAIRED)
EXTRACT_FUNCTION(f32, 4, IN_ORDER)
EXTRACT_FUNCTION(f64, 8, IN_ORDER)

/* Sums in bins for all numbers of the format. A bin that has met an inf or nan stays inf or nan. */
#define WHOLE_FUNCTION(type, size, order, kind)                                                    \
    static size_t whole_##type(const void *data, size_t n, const double *start, gr_extracted *out) \
    {                                                                                              \
        return extract(data, n, ROW(STREAMS) << GR_EXTRACT_##kind##_LOG_ROWS, size, load_##type,   \
                       order, GR_EXTRACT_##kind##_BINS, STREAMS, ALWAYS, start, 0, out);           \
    }

WHOLE_FUNCTION(f16, 2, IN_ORDER, HALF)
WHOLE_FUNCTION(bf16, 2, PAIRED, WIDE)
WHOLE_FUNCTION(f32, 4, IN_ORDER, WIDE)

#include "exact/spread_text.h"

const gr_extract_kernels EXTRACT_TABLE = {
    .block = BLOCK,
    .peak = peak,
    .extract =
        {[GR_LOAD_bf16] = extract_bf16, [GR_LOAD_f32] = extract_f32, [GR_LOAD_f64] = extract_f64},
    .whole = {[GR_LOAD_f16] = whole_f16, [GR_LOAD_bf16] = whole_bf16, [GR_LOAD_f32] = whole_f32},
    .scatter = add_pairs,
};
