/* Scattering float64. Vectors have at most 32 bytes: while longer ones execute, Intel processors
 * close one of the three ports that execute the additions, which are one element at a time. */
enum {
    SPREAD = 16, /* elements whose table offsets are computed together */
    SPREAD_BYTES = VECTOR_BYTES < 32 ? VECTOR_BYTES : 32,
    SPREAD_WIDTH = SPREAD_BYTES / 8,
    /* The peak kernel reads a whole block before it is scattered, so the next block should be in
     * the cache already, and the prefetch is for the block after it. */
    BLOCKS_AHEAD = 2 * BLOCK * 8
};

typedef double parts VECTOR(SPREAD_BYTES);
typedef uint64_t places VECTOR(SPREAD_BYTES);
typedef double pair64 VECTOR(16); /* low, high */

/* Table offsets of some elements, by their exponents, and the numbers to add there (scatter.h).
 * Vector code computes them; the additions are one element at a time. */
typedef struct {
    alignas(64) uint64_t place[SPREAD]; /* byte offset in the table */
    pair64 pair[SPREAD / SPREAD_WIDTH][2]
               [SPREAD_WIDTH / 2]; /* of each vector's even elements, then the odd ones */
} spread;

INLINE void spread_out(const unsigned char *in, spread *out)
{
    const uint64_t one = (uint64_t)1 << 52, window = (uint64_t)15 << 52;
    const uint64_t fraction = one - 1, sign = (uint64_t)1 << 63, exponent = sign - one;
    const uint64_t lowest = (uint64_t)(1023 + 1) << 52; /* 2: y's exponent if s mod 16 is 0 */
#pragma GCC unroll 8
    for (int j = 0; j < SPREAD / SPREAD_WIDTH; j++) {
        places x;
        parts pairs[2];
        memcpy(&x, in + 8 * j * SPREAD_WIDTH, sizeof x);
        places subnormal = (places)((x & exponent) == 0);
        places moved = x - (one & ~subnormal), place = moved >> 52 & (GR_PAIRS * 16 - 16);
        places bits = (moved & (sign | window | fraction)) | lowest;
        /* Subtracts the one before the fraction, which a subnormal number does not have. */
        parts y = (parts)bits - (parts)(subnormal & bits & (sign | exponent));
        parts high = y + GR_PAIR_MIDDLE - GR_PAIR_MIDDLE, low = y - high;
        interleave(low, high, pairs);
        memcpy(out->place + j * SPREAD_WIDTH, &place, sizeof place);
        /* One at a time: GCC 12 copies two vectors at once through the stack. */
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
