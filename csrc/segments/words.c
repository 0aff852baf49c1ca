/* Sums of integers modulo 2^64. */
#include "segments/segment_job.h"

void gr_add_words(const gr_host_segments *job, const gr_segment_block *block, uint64_t *cells)
{
    const uint64_t *x = block->numbers;
    for (size_t i = 0; i < block->rows; i++) {
        uint64_t *cell = cells + gr_cell_of(job, block, i);
        for (size_t k = 0; k < block->columns; k++)
            cell[k] += *x++;
    }
}

void gr_finish_words(const gr_host_segments *job, size_t first, size_t n)
{
    for (size_t cell = first; cell < first + n; cell++) {
        const unsigned char *at = job->cells + cell * sizeof(uint64_t);
        uint64_t sum = job->request->initial.integer;
        for (int i = 0; i < job->copies; i++, at += job->copy_bytes)
            sum += *(const uint64_t *)(const void *)at;
        gr_store_sum(job, cell, sum);
    }
}
