/* Scattering float64, for instruction sets that shift each lane by its own count. */
enum { SPREAD = 32 }; /* elements whose places are computed together */

typedef int64_t pair64 VECTOR(16); /* low, high */

/* Where elements go by their exponents, and what they add there (scatter.h). The vectors compute
 * that for some elements; adding it is one at a time. */
typedef struct {
    alignas(64) uint64_t place[SPREAD]; /* bytes from the table's start */
    pair64 pair[SPREAD / WIDTH][2]
               [WIDTH / 2]; /* of each vector's even elements, then the odd ones */
} spread;

INLINE void spread_out(const unsigned char *in, spread *out)
{
#pragma GCC unroll 8
    for (int j = 0; j < SPREAD / WIDTH; j++) {
        bits64 x, pairs[2];
        memcpy(&x, in + 8 * j * WIDTH, sizeof x);
        bits64 field = x >> 52 & 0x7ff, normal = (bits64)(field != 0) & 1;
        bits64 size = (x & 0xfffffffffffff) | normal << 52, negative = (bits64)((lanes64)x < 0);
        bits64 position = field - normal, shift = position & 15, place = position & ~(uint64_t)15;
        bits64 low = size << shift & (((uint64_t)1 << GR_PAIR_SPLIT) - 1);
        bits64 high = size >> (GR_PAIR_SPLIT - shift);
        interleave((low ^ negative) - negative, (high ^ negative) - negative, pairs);
        memcpy(out->place + j * WIDTH, &place, sizeof place);
        memcpy(out->pair[j], pairs, sizeof pairs);
    }
}

INLINE void add_pair(gr_pairs table, uint64_t place, pair64 more)
{
    pair64 sum;
    unsigned char *at = (unsigned char *)table + place;
    memcpy(&sum, at, sizeof sum);
    sum += more;
    memcpy(at, &sum, sizeof sum);
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
#pragma GCC unroll 32
        for (int i = 0; i < SPREAD; i++)
            add_pair(table[i % GR_PAIR_TABLES], some.place[i],
                     some.pair[i / WIDTH][i % 2][i % WIDTH / 2]);
        in += SPREAD * 8;
        n -= piece;
    }
}
