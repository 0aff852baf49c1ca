/* Sums in accumulators (exact/exact.h), for numbers of any exponents. */
#include "segments/segment_job.h"

#include "exact/format.h"

void gr_add_exactly(const gr_host_segments *job, const gr_segment_block *block, gr_exact *cells)
{
    const gr_format format = gr_format_of(GR_LOAD_f64);
    const double *x = block->numbers;
    size_t end = job->segments * job->columns;
    for (size_t i = 0; i < block->rows; i++, x += block->columns) {
        size_t first = gr_cell_of(job, block, i);
        for (size_t k = 0; k < block->columns && first < end; k++)
            gr_add_element(&cells[first + k], gr_element_bits(x + k, sizeof *x), format);
    }
}

void gr_finish_exactly(const gr_host_segments *job, size_t first, size_t n)
{
    for (size_t cell = first; cell < first + n; cell++) {
        gr_exact sum;
        gr_exact_init(&sum);
        const unsigned char *at = job->cells + cell * job->cell_bytes;
        for (int i = 0; i < job->copies; i++, at += job->copy_bytes)
            gr_exact_merge(&sum, (const gr_exact *)(const void *)at);
        gr_store_accumulator(job, &sum, cell);
    }
}
