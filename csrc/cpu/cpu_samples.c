#include "cpu_samples.h"

#include "../exact/arithmetic.h"
#include "../threads/pool.h"
#include "cpu_sum.h"

#define GR_SAMPLING static
#include "../engine/sample_text.h"

#include <stdlib.h>

enum { TILE = 2048 };

typedef struct {
    const gr_samples *samples;
    double *sums;
} tile_job;

/* A tile's samples fit the nearest cache, where the SIMD sum finds them. */
static void sum_tile(size_t tile, void *context)
{
    const tile_job *job = context;
    double sample[TILE];
    gr_value sums[2];
    uint64_t first = (uint64_t)tile * TILE, left = job->samples->last + 1 - first;
    size_t n = left < TILE ? (size_t)left : TILE;

    gr_arithmetic before = gr_begin_plain();
    for (size_t i = 0; i < n; i++)
        sample[i] = gr_sample(job->samples, first + i);
    gr_end_plain(before);
    gr_cpu_sum(sample, n, GR_LOAD_f64, GR_ACC_f64, 1, 1, sums);
    job->sums[tile] = sums[0].f64;
}

int gr_cpu_sum_samples(const gr_samples *samples, gr_acc acc, int threads, gr_value *sum)
{
    size_t tiles = (size_t)(samples->last / TILE + 1);
    double *sums = malloc(tiles * sizeof *sums);
    tile_job job = {samples, sums};
    gr_value total[2];

    if (!sums)
        return -1;
    gr_parallel(threads, tiles, sum_tile, &job);
    gr_cpu_sum(sums, tiles, GR_LOAD_f64, GR_ACC_f64, 1, 1, total);
    free(sums);
    if (acc == GR_ACC_f32)
        sum->f32 = (float)total[0].f64;
    else
        sum->f64 = total[0].f64;
    return 0;
}
