#include "exact/scatter.h"

#include <string.h>

void gr_scatter_empty(gr_scatter *scatter, gr_exact *const sums[2])
{
    if (!scatter->used)
        return;
    int parities = sums[0] == sums[1] ? 1 : 2;
    for (int parity = 0; parity < parities; parity++)
        for (int w = 0; w < GR_PAIRS; w++)
            for (int i = 0; i < 2; i++) {
                double sum = 0;
                for (int t = parity; t < GR_PAIR_TABLES; t += parities)
                    sum += scatter->table[t][w][i];
                if (sum != 0)
                    gr_exact_add_scaled(sums[parity], (int64_t)(sum * (i ? 0x1p17 : 0x1p51)),
                                        16 * w + (i ? 34 : 0) + GR_EXACT_UNIT);
            }
    scatter->used = false;
}

void gr_scatter_add(gr_scatter *scatter, const void *data, size_t n, gr_pairs_kernel *kernel,
                    gr_exact *const sums[2])
{
    const unsigned char *in = data;
    while (n > 0) {
        if (scatter->used && scatter->added == GR_PAIR_MOST)
            gr_scatter_empty(scatter, sums);
        if (!scatter->used) {
            memset(scatter->table, 0, sizeof scatter->table);
            scatter->used = true;
            scatter->added = 0;
        }
        /* Except for the last piece, a multiple of the number of tables, so that the first element
         * of each piece goes to table 0. */
        size_t room = (GR_PAIR_MOST - scatter->added) * GR_PAIR_TABLES, piece = n < room ? n : room;
        kernel(in, piece, scatter->table);
        scatter->added += (piece - 1) / GR_PAIR_TABLES + 1;
        in += piece * sizeof(double);
        n -= piece;
    }
}
