/* Scattering float32 and bfloat16 (scatter.h). Vector code widens some elements; the additions are
 * one element at a time. Bits 3 to 6 of an element's last byte are the top four bits of its
 * exponent field. Masked, they are the bin's byte offset in the table. */
enum { WIDENED = 16 };

INLINE void add_bins(const void *data, size_t n, size_t size, load_pair *load, lane_order order,
                     gr_bins table[GR_BIN_TABLES])
{
    const unsigned char *in = data;
    unsigned char rest[WIDENED * 4] = {0};
    while (n > 0) {
        alignas(64) double x[WIDENED / WIDTH / 2][2][WIDTH];
        size_t piece = n < WIDENED ? n : WIDENED;
        /* The peak kernel has read this whole block. This prefetches the next one for it. */
        fetch_ahead(in, BLOCK * size, WIDENED * size);
        if (piece < WIDENED)
            in = memcpy(rest, in, piece * size);
#pragma GCC unroll 4
        for (int j = 0; j < WIDENED / WIDTH / 2; j++) {
            doubles pair[2];
            load(in + (size_t)(2 * WIDTH * j) * size, pair);
            memcpy(x[j], pair, sizeof pair);
        }
#pragma GCC unroll 16
        for (int i = 0; i < WIDENED; i++) {
            int j = i / (2 * WIDTH), k = i % (2 * WIDTH);
            double more = order == PAIRED ? x[j][k % 2][k / 2] : x[j][k / WIDTH][k % WIDTH];
            unsigned char *bin = (unsigned char *)table[i % GR_BIN_TABLES];
            double sum;
            bin += in[size * (size_t)(i + 1) - 1] & (GR_BINS - 1) * sizeof sum;
            memcpy(&sum, bin, sizeof sum);
            sum += more;
            memcpy(bin, &sum, sizeof sum);
        }
        in += WIDENED * size;
        n -= piece;
    }
}

static void add_bins_bf16(const void *data, size_t n, gr_bins table[GR_BIN_TABLES])
{
    add_bins(data, n, 2, load_bf16, PAIRED, table);
}

static void add_bins_f32(const void *data, size_t n, gr_bins table[GR_BIN_TABLES])
{
    add_bins(data, n, 4, load_f32, IN_ORDER, table);
}
