#include "cpu/cpu_samples.h"

#include "cpu/floating_point_mode.h"
#include "threads/interrupts.h"
#include "threads/pool.h"
#include "cpu/cpu_sum.h"

#define GR_SAMPLING static
#include "shared/sample_values.h"

#include <stdlib.h>

enum { TILE = 2048 };

/* The number of tiles whose sums are stored at a time: 8 MiB. */
static const size_t MOST_TILES = (size_t)1 << 20;

typedef struct {
    const gr_samples *samples;
    size_t first; /* tile */
    double *sums;
} tile_job;

/* Computes and adds the samples of one tile. They fit the first-level cache, from where the SIMD
 * sum reads them. */
static void sum_tile(size_t tile, void *context)
{
    const tile_job *job = context;
    double sample[TILE];
    gr_value sums[2];
    uint64_t first = (uint64_t)(job->first + tile) * TILE, left = job->samples->last + 1 - first;
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
    size_t most = tiles < MOST_TILES ? tiles : MOST_TILES;
    double *sums = malloc(most * sizeof *sums), total = 0;
    gr_value part[2];

    if (!sums)
        return -1;
    for (size_t first = 0; first < tiles && !gr_interrupted(); first += most) {
        size_t count = tiles - first < most ? tiles - first : most;
        tile_job job = {samples, first, sums};
        gr_parallel(threads, count, sum_tile, &job);
        gr_cpu_sum(sums, count, GR_LOAD_f64, GR_ACC_f64, 1, 1, part);
        total += part[0].f64;
    }
    free(sums);
    if (acc == GR_ACC_f32)
        sum->f32 = (float)total;
    else
        sum->f64 = total;
    return 0;
}
