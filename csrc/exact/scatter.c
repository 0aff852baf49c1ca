#include "exact/scatter.h"

#include <string.h>

static void empty_bins(gr_bins *table, gr_exact *const sums[2])
{
    for (int parity = 0; parity < 2; parity++)
        for (int b = 0; b < GR_BINS; b++) {
            double sum = 0;
            for (int t = parity; t < GR_BIN_TABLES; t += 2)
                sum += table[t][b];
            if (sum != 0)
                gr_exact_add_f64(sums[parity], sum);
        }
}

static void empty_pairs(gr_pairs *table, gr_exact *const sums[2])
{
    int parities = sums[0] == sums[1] ? 1 : 2;
    for (int parity = 0; parity < parities; parity++)
        for (int w = 0; w < GR_PAIRS; w++)
            for (int i = 0; i < 2; i++) {
                double sum = 0;
                for (int t = parity; t < GR_PAIR_TABLES; t += parities)
                    sum += table[t][w][i];
                if (sum != 0)
                    gr_exact_add_scaled(sums[parity], (int64_t)(sum * (i ? 0x1p17 : 0x1p51)),
                                        16 * w + (i ? 34 : 0) + GR_EXACT_UNIT);
            }
}

void gr_scatter_empty(gr_scatter *scatter, gr_load load, gr_exact *const sums[2])
{
    if (!scatter->used)
        return;
    if (load == GR_LOAD_f64)
        empty_pairs(scatter->table.pair, sums);
    else
        empty_bins(scatter->table.bin, sums);
    scatter->used = false;
}

static void start(gr_scatter *scatter, gr_load load)
{
    if (load == GR_LOAD_f64)
        memset(scatter->table.pair, 0, sizeof scatter->table.pair);
    else
        memset(scatter->table.bin, 0, sizeof scatter->table.bin);
    scatter->used = true;
    scatter->added = 0;
}

void gr_scatter_add(gr_scatter *scatter, const void *data, size_t n, gr_load load,
                    const gr_scatter_kernels *kernels, gr_exact *const sums[2])
{
    const unsigned char *in = data;
    const size_t tables = load == GR_LOAD_f64 ? GR_PAIR_TABLES : GR_BIN_TABLES;
    const size_t most = load == GR_LOAD_f64 ? GR_PAIR_MOST : GR_BIN_MOST;
    while (n > 0) {
        if (scatter->used && scatter->added == most)
            gr_scatter_empty(scatter, load, sums);
        if (!scatter->used)
            start(scatter, load);
        /* Except for the last piece, a multiple of the number of tables, so that the first element
         * of each piece goes to table 0. */
        size_t room = (most - scatter->added) * tables, piece = n < room ? n : room;
        if (load == GR_LOAD_f64)
            kernels->pairs(in, piece, scatter->table.pair);
        else
            kernels->bins[load](in, piece, scatter->table.bin);
        scatter->added += (piece - 1) / tables + 1;
        in += piece * gr_load_size(load);
        n -= piece;
    }
}
