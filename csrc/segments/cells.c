/* Adds blocks of rows to cells of any kind, and finishes the cells. */
#include "segments/segment_job.h"
#include "shared/sizes.h"

/* Lowers job->bad_row to `row`. */
static void note_bad(gr_host_segments *job, size_t row)
{
    size_t known = __atomic_load_n(&job->bad_row, __ATOMIC_RELAXED);
    while (row < known && !__atomic_compare_exchange_n(&job->bad_row, &known, row, false,
                                                       __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

static bool add_block(gr_host_segments *job, const gr_segment_block *block, int copy)
{
    unsigned char *cells = job->cells + (size_t)copy * job->copy_bytes;
    switch (job->kind) {
    case GR_CELL_WORD: gr_add_words(job, block, (uint64_t *)(void *)cells); return true;
    case GR_CELL_SHORT:
    case GR_CELL_PAIR: return gr_add_pairs(job, block, cells, &job->outliers[copy]);
    case GR_CELL_LEVELS:
        return gr_add_levels(job, block, (int64_t *)(void *)cells, &job->outliers[copy]);
    case GR_CELL_PROVEN: gr_add_proven(job, block, cells); return true;
    default: gr_add_exactly(job, block, (gr_exact *)(void *)cells); return true;
    }
}

void gr_add_rows(gr_host_segments *job, gr_segment_block *block, size_t first, size_t end, int copy)
{
    size_t at = job->in_order ? job->first_segment : 0;
    size_t high = job->in_order ? at + job->segments : job->request->sums.segments;
    const int64_t *offsets = job->request->ids.offsets;
    while (offsets && high - at > 1) { /* the segment of the first row */
        size_t middle = at + (high - at) / 2;
        if ((size_t)offsets[middle] <= first)
            at = middle;
        else
            high = middle;
    }
    for (size_t row = first; row < end; row += block->rows) {
        block->rows = gr_least(GR_SEGMENT_BLOCK / (job->columns + !job->columns), end - row);
        block->rows += block->rows == 0;
        gr_read_ids(job, block, row, &at);
        size_t bad = job->in_order ? block->rows : gr_first_bad(job, block);
        if (bad < block->rows) {
            note_bad(job, row + bad);
            return;
        }
        for (size_t column = 0; column < job->columns; column += block->columns) {
            block->first_column = column;
            block->columns = gr_least(job->columns - column, GR_SEGMENT_BLOCK);
            gr_read_numbers(job, block, row);
            if (!add_block(job, block, copy)) {
                bool full = job->outliers[copy].count == job->most_outliers;
                __atomic_store_n(full ? &job->too_wide : &job->failed, true, __ATOMIC_RELAXED);
                return;
            }
        }
    }
}

static void finish_sums(const gr_host_segments *job, size_t first, size_t n)
{
    switch (job->kind) {
    case GR_CELL_WORD: gr_finish_words(job, first, n); break;
    case GR_CELL_SHORT:
    case GR_CELL_PAIR: gr_finish_pairs(job, first, n); break;
    case GR_CELL_LEVELS: gr_finish_levels(job, first, n); break;
    case GR_CELL_PROVEN: gr_finish_proven(job, first, n); break;
    default: gr_finish_exactly(job, first, n); break;
    }
}

void gr_finish_cells(const gr_host_segments *job, size_t first, size_t n)
{
    const gr_segment_finish *finish = job->request->sums.finish;
    if (!finish) {
        finish_sums(job, first, n);
        return;
    }
    double planes[4 * 4 * GR_FINISH_BATCH] = {0}; /* vectors also read lanes without a result */
    gr_host_segments own = *job;
    own.planes = planes;
    size_t parts = (size_t)finish->how.parts, batch = GR_FINISH_BATCH * parts;
    for (size_t end = first + n; first < end; first += batch) {
        batch = gr_least(batch, end - first);
        own.batch = first;
        finish_sums(&own, first, batch);
        gr_store_results(job, planes, GR_FINISH_BATCH,
                         (job->first_segment * job->columns + first) / parts, batch / parts);
    }
}
