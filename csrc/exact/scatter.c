#include "scatter.h"

#include <string.h>

typedef double bins[GR_SCATTER_BINS];
typedef int64_t chunks[GR_EXACT_DIGITS];

static void scatter_single(bins *table, const unsigned char *in, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        float x;
        memcpy(&bits, in + 4 * i, sizeof bits);
        memcpy(&x, in + 4 * i, sizeof x);
        table[i % GR_SCATTER_TABLES][bits >> 27 & 15] += (double)x;
    }
}

static void scatter_brain(bins *table, const unsigned char *in, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint16_t half;
        float x;
        memcpy(&half, in + 2 * i, sizeof half);
        uint32_t bits = (uint32_t)half << 16;
        memcpy(&x, &bits, sizeof x);
        table[i % GR_SCATTER_TABLES][bits >> 27 & 15] += (double)x;
    }
}

static void scatter_double(chunks *table, const unsigned char *in, size_t n)
{
    const uint64_t hidden = (uint64_t)1 << 52;
    for (size_t i = 0; i < n; i++) {
        uint64_t bits;
        memcpy(&bits, in + 8 * i, sizeof bits);
        unsigned field = (unsigned)(bits >> 52) & 0x7ff, normal = field != 0;
        uint64_t size = (bits & (hidden - 1)) | (uint64_t)normal << 52;
        uint64_t negative = 0 - (bits >> 63);
        int64_t mantissa = (int64_t)((size ^ negative) - negative);
        unsigned position = field - normal, shift = position % 32;
        int64_t *chunk = table[i % GR_SCATTER_TABLES] + position / 32;
        chunk[0] += (uint32_t)((uint64_t)mantissa << shift);
        chunk[1] += mantissa >> (32 - shift);
    }
}

/* All at once rather than one after the other: what a chunk keeps need not wait for what it gets.
 */
static void take_carries(chunks table)
{
    int64_t over = 0;
    for (int k = 0; k < GR_EXACT_DIGITS; k++) {
        int64_t high = table[k] >> 32;
        table[k] = (table[k] & 0xffffffff) + over;
        over = high;
    }
}

/* Nothing is lost off the end: no element reaches beyond chunk 64, and with 2^32 times what
 * a chunk holds it would take 2^32 carries to reach the last. */
static void empty_chunks(gr_scatter *scatter, gr_exact *const sums[2])
{
    for (int t = 0; t < GR_SCATTER_TABLES; t++)
        gr_exact_add_digits(sums[t % 2], scatter->table.chunk[t], GR_EXACT_DIGITS, 0);
}

static void empty_bins(gr_scatter *scatter, gr_exact *const sums[2])
{
    for (int t = 0; t < GR_SCATTER_TABLES; t++)
        for (int b = 0; b < GR_SCATTER_BINS; b++)
            gr_exact_add_f64(sums[t % 2], scatter->table.bin[t][b]);
}

void gr_scatter_empty(gr_scatter *scatter, gr_load load, gr_exact *const sums[2])
{
    if (!scatter->used)
        return;
    if (load == GR_LOAD_f64)
        empty_chunks(scatter, sums);
    else
        empty_bins(scatter, sums);
    scatter->used = false;
}

static void make_room(gr_scatter *scatter, size_t n, gr_load load, gr_exact *const sums[2])
{
    size_t most = load == GR_LOAD_f64 ? GR_SCATTER_MOST_IN_CHUNK : GR_SCATTER_MOST_IN_BIN;
    if (scatter->used && scatter->added + n > most) {
        if (load == GR_LOAD_f64)
            for (int t = 0; t < GR_SCATTER_TABLES; t++)
                take_carries(scatter->table.chunk[t]);
        else
            gr_scatter_empty(scatter, load, sums);
        scatter->added = 0;
    }
    if (!scatter->used) {
        memset(&scatter->table, 0, sizeof scatter->table);
        scatter->used = true;
        scatter->added = 0;
    }
    scatter->added += n;
}

void gr_scatter_add(gr_scatter *scatter, const void *data, size_t n, gr_load load,
                    gr_exact *const sums[2])
{
    const unsigned char *in = data;
    const size_t most = (size_t)GR_SCATTER_TABLES * GR_SCATTER_MOST_IN_CHUNK;
    while (n > 0) {
        size_t piece = n < most ? n : most;
        make_room(scatter, (piece - 1) / GR_SCATTER_TABLES + 1, load, sums);
        switch (load) {
        case GR_LOAD_bf16: scatter_brain(scatter->table.bin, in, piece); break;
        case GR_LOAD_f32: scatter_single(scatter->table.bin, in, piece); break;
        default: scatter_double(scatter->table.chunk, in, piece); break;
        }
        in += piece * gr_load_size(load);
        n -= piece;
    }
}
