/* Sums in float64 numbers that prove their own rounding (exact/proven.h). */
#include "exact/proven.h"

#include "cpu/floating_point_mode.h"
#include "cpu/store.h"
#include "exact/format.h"
#include "segments/segment_job.h"

enum {
    MERGES = 1 << 16, /* more additions to `tail` than rows: of copies, and the initial number's */
    AHEAD = 16        /* rows whose cells are fetched in advance */
};

/* One column. The rows of a segment that follow each other are added without a store between them:
 * the next addition would wait for it. */
static void add_column(const gr_host_segments *job, const gr_segment_block *block,
                       gr_proven3 *cells)
{
    const double *x = block->numbers;
    const int64_t *ids = block->ids;
    size_t n = block->rows, first = job->first_segment, segments = job->segments;
    for (size_t i = 0; i < n;) {
        size_t place = (size_t)ids[i] - first;
        size_t ahead = (size_t)ids[i + AHEAD < n ? i + AHEAD : i] - first; /* may be outside */
        __builtin_prefetch((const void *)((uintptr_t)cells + ahead * sizeof *cells), 1);
        place = place < segments ? place : segments;
        gr_proven3 sum = cells[place];
        do
            gr_proven3_add(&sum, x[i++]);
        while (i < n && (size_t)ids[i] - first == place);
        cells[place] = sum;
    }
}

void gr_add_proven(const gr_host_segments *job, const gr_segment_block *block, unsigned char *cells)
{
    const double *x = block->numbers;
    gr_arithmetic before = gr_begin_plain();
    if (job->columns == 1)
        add_column(job, block, (gr_proven3 *)(void *)cells);
    for (size_t i = 0; i < block->rows && job->columns > 1; i++) {
        gr_proven3 *cell = (gr_proven3 *)(void *)cells + gr_cell_of(job, block, i);
        if (i + AHEAD < block->rows)
            __builtin_prefetch((gr_proven3 *)(void *)cells + gr_cell_of(job, block, i + AHEAD), 1);
        for (size_t k = 0; k < block->columns; k++)
            gr_proven3_add(cell++, *x++);
    }
    gr_end_plain(before);
}

void gr_finish_proven(const gr_host_segments *job, size_t first, size_t n)
{
    const gr_initial *initial = &job->request->initial;
    const gr_segment_sums *sums = &job->request->sums;
    const gr_format format = gr_format_of(sums->target);
    double additions = (double)job->request->values.rows + MERGES;
    gr_arithmetic before = gr_begin_plain();
    for (size_t cell = first; cell < first + n; cell++) {
        const unsigned char *at = job->cells + cell * sizeof(gr_proven3);
        gr_proven3 sum = {0, 0, 0, 0};
        for (int i = 0; i < job->copies; i++, at += job->copy_bytes)
            gr_proven3_merge(&sum, (const gr_proven3 *)(const void *)at);
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
