/* Scattering float64. The vectors are of 32 bytes at most: as long as longer ones are at work,
 * Intel's processors close one of the three ports that the additions, one element at a time, go to.
 */
enum {
    SPREAD = 16, /* elements whose places are computed together */
    SPREAD_BYTES = VECTOR_BYTES < 32 ? VECTOR_BYTES : 32,
    SPREAD_WIDTH = SPREAD_BYTES / 8,
    /* The next block is looked at first (peak), all at once: by then it should be here, so what is
     * asked for is the one after it. */
    BLOCKS_AHEAD = 2 * BLOCK * 8
};

typedef double parts VECTOR(SPREAD_BYTES);
typedef uint64_t places VECTOR(SPREAD_BYTES);
typedef double pair64 VECTOR(16); /* low, high */

/* Where elements go by their exponents, and what they add there (scatter.h). The vectors compute
 * that for some elements; adding it is one at a time. */
typedef struct {
    alignas(64) uint64_t place[SPREAD]; /* bytes from the table's start */
    pair64 pair[SPREAD / SPREAD_WIDTH][2]
               [SPREAD_WIDTH / 2]; /* of each vector's even elements, then the odd ones */
} spread;

INLINE void spread_out(const unsigned char *in, spread *out)
{
    const uint64_t one = (uint64_t)1 << 52, window = (uint64_t)15 << 52;
    const uint64_t fraction = one - 1, sign = (uint64_t)1 << 63, exponent = sign - one;
    const uint64_t lowest = (uint64_t)(1023 + 1) << 52; /* 2: y's exponent where s mod 16 is 0 */
#pragma GCC unroll 8
    for (int j = 0; j < SPREAD / SPREAD_WIDTH; j++) {
        places x;
        parts pairs[2];
        memcpy(&x, in + 8 * j * SPREAD_WIDTH, sizeof x);
        places subnormal = (places)((x & exponent) == 0);
        places moved = x - (one & ~subnormal), place = moved >> 52 & (GR_PAIRS * 16 - 16);
        places bits = (moved & (sign | window | fraction)) | lowest;
        /* What the number has before its fraction, which a subnormal one has not. */
        parts y = (parts)bits - (parts)(subnormal & bits & (sign | exponent));
        parts high = y + GR_PAIR_MIDDLE - GR_PAIR_MIDDLE, low = y - high;
        interleave(low, high, pairs);
        memcpy(out->place + j * SPREAD_WIDTH, &place, sizeof place);
        /* One at a time: GCC 12 copies two vectors at once by way of the stack. */
        memcpy(out->pair[j][0], &pairs[0], sizeof *pairs);
        memcpy(out->pair[j][1], &pairs[1], sizeof *pairs);
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
        fetch_ahead(in, BLOCKS_AHEAD, SPREAD * 8);
        spread some;
        spread_out(in, &some);
#pragma GCC unroll 16
        for (int i = 0; i < SPREAD; i++)
            add_pair(table[i % GR_PAIR_TABLES], some.place[i],
                     some.pair[i / SPREAD_WIDTH][i % 2][i % SPREAD_WIDTH / 2]);
        in += SPREAD * 8;
        n -= piece;
    }
}
