/* Sums in float64 numbers that prove their own rounding (exact/proven.h). */
#include "exact/proven.h"

#include "cpu/floating_point_mode.h"
#include "cpu/store.h"
#include "exact/format.h"
#include "segments/segment_job.h"

#include <float.h>
#include <math.h>

#define INLINE static inline __attribute__((always_inline))

enum {
    MERGES = 1 << 16, /* bound of additions to `tail` beyond two per row: copies, `initial` */
    AHEAD = 16        /* rows whose cells are prefetched */
};

/* Adds x to sum[0], and x^2 to sum[1] if there are squares. */
INLINE void add_number(gr_proven3 *sum, bool has_squares, double x)
{
    const double least = 0x1p-960, lost = 0x1p-1000;
    gr_proven3_add(&sum[0], x);
    if (!has_squares)
        return;
    gr_proven3_add(&sum[1], x * x);
    gr_proven3_add_rest(&sum[1], gr_rest_of_product(x, x, x * x));
    if (x != 0 && x * x < least)
        sum[1].bound += lost; /* the product's rounding error may be no float64 */
}

/* Adds one column. Adjacent rows of one segment are added without a store in between, for which the
 * next addition would wait. */
INLINE void add_column(const gr_host_segments *job, const gr_segment_block *block,
                       gr_proven3 *cells, bool has_squares)
{
    const double *x = block->numbers;
    const int64_t *ids = block->ids;
    size_t n = block->rows, first = job->first_segment, segments = job->segments;
    const size_t each = 1 + has_squares;
    for (size_t i = 0; i < n;) {
        size_t place = (size_t)ids[i] - first;
        size_t ahead = (size_t)ids[i + AHEAD < n ? i + AHEAD : i] - first; /* may be outside */
        __builtin_prefetch((const void *)((uintptr_t)cells + ahead * each * sizeof *cells), 1);
        place = place < segments ? place : segments;
        gr_proven3 sum[2];
        memcpy(sum, cells + place * each, each * sizeof *sum);
        do
            add_number(sum, has_squares, x[i++]);
        while (i < n && (size_t)ids[i] - first == place);
        memcpy(cells + place * each, sum, each * sizeof *sum);
    }
}

void gr_add_proven(const gr_host_segments *job, const gr_segment_block *block, unsigned char *cells)
{
    const double *x = block->numbers;
    bool has_squares = gr_has_squares(job);
    size_t each = 1 + has_squares;
    gr_proven3 *all = (gr_proven3 *)(void *)cells;
    gr_arithmetic before = gr_begin_plain();
    if (job->columns == 1 && has_squares)
        add_column(job, block, all, true);
    else if (job->columns == 1)
        add_column(job, block, all, false);
    for (size_t i = 0; i < block->rows && job->columns > 1; i++) {
        gr_proven3 *cell = all + gr_cell_of(job, block, i) * each;
        if (i + AHEAD < block->rows)
            __builtin_prefetch(all + gr_cell_of(job, block, i + AHEAD) * each, 1);
        for (size_t k = 0; k < block->columns; k++, cell += each)
            add_number(cell, has_squares, *x++);
    }
    gr_end_plain(before);
}

static gr_unrounded unrounded(const gr_proven3 *sum, double additions)
{
    double error = additions * 0x1p-52 * sum->bound * (1 + 0x1p-50);
    double size = gr_magnitude(sum->sum) + gr_magnitude(sum->rest) + gr_magnitude(sum->tail);
    bool is_known = size + error <= DBL_MAX;
    return is_known ? (gr_unrounded){sum->sum, sum->rest, sum->tail, error}
                    : (gr_unrounded){0, 0, 0, (double)NAN};
}

/* Adds up all copies of a cell's sum, or of its sum of squares: `which` is 1. */
static gr_proven3 sum_of_copies(const gr_host_segments *job, size_t cell, size_t which)
{
    const unsigned char *at = job->cells + cell * job->cell_bytes + which * sizeof(gr_proven3);
    gr_proven3 sum = {0, 0, 0, 0};
    for (int i = 0; i < job->copies; i++, at += job->copy_bytes)
        gr_proven3_merge(&sum, (const gr_proven3 *)(const void *)at);
    return sum;
}

void gr_finish_proven(const gr_host_segments *job, size_t first, size_t n)
{
    const gr_initial *initial = &job->request->initial;
    const gr_segment_sums *sums = &job->request->sums;
    const gr_format format = gr_format_of(sums->target);
    double additions = 2 * (double)job->request->values.rows + MERGES;
    gr_arithmetic before = gr_begin_plain();
    for (size_t cell = first; cell < first + n; cell++) {
        gr_proven3 sum = sum_of_copies(job, cell, 0);
        if (sums->finish) {
            gr_store_numbers(job, unrounded(&sum, additions), cell, false);
            if (gr_has_squares(job)) {
                sum = sum_of_copies(job, cell, 1);
                gr_store_numbers(job, unrounded(&sum, additions), cell, true);
            }
            continue;
        }
        int part = gr_part_of_cell(job, cell);
        for (int i = 0; i < initial->count[part]; i++)
            gr_proven3_add(&sum, initial->terms[part][i]);
        double rounded;
        if (gr_proven3_finish(&sum, additions, format.fraction, format.unit, &rounded)) {
            uint64_t bits = 0;
            gr_store_float((unsigned char *)&bits, rounded, sums->target);
            gr_store_sum(job, cell, bits);
        } else {
            size_t segment = job->first_segment + cell / job->columns;
            __atomic_store_n(&job->unproven[segment], 1, __ATOMIC_RELAXED);
        }
    }
    gr_end_plain(before);
}
