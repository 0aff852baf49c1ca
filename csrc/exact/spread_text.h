/* Scattering float64, for instruction sets that shift each lane by its own count. */
enum { SPREAD = 16 }; /* elements whose places are computed together */

/* Where elements go by their exponents, and what they add there (scatter.h). The vectors compute
 * that for some elements; adding it is one at a time. */
typedef struct {
    uint64_t place[SPREAD];
    int64_t low[SPREAD], high[SPREAD];
} spread;

INLINE void spread_out(const unsigned char *in, spread *out)
{
#pragma GCC unroll 8
    for (int j = 0; j < SPREAD; j += WIDTH) {
        bits64 x;
        memcpy(&x, in + 8 * j, sizeof x);
        bits64 field = x >> 52 & 0x7ff, normal = (bits64)(field != 0) & 1;
        bits64 size = (x & 0xfffffffffffff) | normal << 52, negative = (bits64)((lanes64)x < 0);
        bits64 position = field - normal, shift = position & 15, place = position >> 4;
        bits64 low = size << shift & (((uint64_t)1 << GR_PAIR_SPLIT) - 1);
        bits64 high = size >> (GR_PAIR_SPLIT - shift);
        low = (low ^ negative) - negative;
        high = (high ^ negative) - negative;
        memcpy(out->place + j, &place, sizeof place);
        memcpy(out->low + j, &low, sizeof low);
        memcpy(out->high + j, &high, sizeof high);
    }
}

static void add_pairs(const void *data, size_t n, gr_pairs table[GR_PAIR_TABLES])
{
    const unsigned char *in = data;
    unsigned char rest[SPREAD * 8] = {0};
    while (n > 0) {
        size_t piece = n < SPREAD ? n : SPREAD;
        if (piece < SPREAD)
            in = memcpy(rest, in, piece * 8);
        spread some;
        spread_out(in, &some);
#pragma GCC unroll 16
        for (int i = 0; i < SPREAD; i++) {
            int64_t *pair = table[i % GR_PAIR_TABLES][some.place[i]];
            pair[0] += some.low[i];
            pair[1] += some.high[i];
        }
        in += SPREAD * 8;
        n -= piece;
    }
}
