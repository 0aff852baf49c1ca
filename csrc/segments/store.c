/* Rounds the sums of cells and stores them. */
#include "segments/segment_job.h"

#include "cpu/floating_point_mode.h"
#include "cpu/store.h"
#include "exact/words.h"
#include "shared/sizes.h"

#include <math.h>

static unsigned char *place_of(const gr_host_segments *job, size_t cell)
{
    const gr_segment_sums *sums = &job->request->sums;
    if (job->touching && !job->segment_of)
        return sums->data + (job->first_segment * job->columns + cell) * gr_load_size(sums->target);
    size_t parts = (size_t)job->request->values.parts, column = cell % job->columns;
    size_t segment = job->first_segment + cell / job->columns;
    segment = job->segment_of ? job->segment_of[segment] : segment;
    return sums->data + (ptrdiff_t)segment * sums->row_step +
           (ptrdiff_t)(column / parts) * sums->column_step +
           (ptrdiff_t)(column % parts * gr_load_size(sums->target));
}

static void add_initial(const gr_host_segments *job, gr_exact *sum, int part)
{
    const gr_initial *initial = &job->request->initial;
    for (int i = 0; i < initial->count[part]; i++)
        gr_exact_add_f64(sum, initial->terms[part][i]);
}

void gr_store_sum(const gr_host_segments *job, size_t cell, uint64_t bits)
{
    const gr_segment_sums *sums = &job->request->sums;
    unsigned char *place = place_of(job, cell);
    gr_store_integer(place, bits, sums->target);
    if (sums->parts == job->request->values.parts)
        return;
    gr_exact imaginary;
    gr_exact_init(&imaginary);
    add_initial(job, &imaginary, 1);
    place += gr_load_size(sums->target);
    gr_store_integer(place, gr_exact_round(&imaginary, sums->target), sums->target);
}

static void store_words(const gr_host_segments *job, const gr_exact *sum, size_t cell)
{
    const gr_segment_sums *sums = &job->request->sums;
    size_t row = (job->first_segment * job->columns + cell) / (size_t)sums->parts;
    int64_t *words = sums->words + row * gr_exact_words(sums->parts);
    int part = gr_part_of_cell(job, cell);
    if (part == 0)
        gr_write_words_head(words, 0, sums->parts, sums->target);
    (void)gr_exact_component_to_words(sum, part, words); /* sums of 2^64 numbers fit */
}

void gr_store_results(const gr_host_segments *job, const double *planes, size_t stride,
                      size_t first, size_t n)
{
    enum { BATCH = GR_FINISH_BATCH };
    const gr_segment_finish *finish = job->request->sums.finish;
    const gr_finish_how *how = &finish->how;
    size_t each = job->columns / (size_t)how->parts; /* results of a segment */
    bool by_one = finish->counts_results || each == 1;
    for (size_t end = first + n, some; first < end; first += some, planes += some) {
        double counts[BATCH];
        gr_finish_planes from = {.n = counts, .stride = stride};
        some = gr_least(BATCH, end - first);
        for (size_t i = 0; i < some; i++)
            counts[i] = (double)finish->counts[by_one ? first + i : (first + i) / each];
        for (int i = 0; i < how->first_count; i++)
            from.first[i] = planes + (size_t)i * 4 * stride;
        for (int i = 0; i < how->second_count; i++)
            from.second[i] = planes + (size_t)(how->first_count + i) * 4 * stride;
        (void)gr_finish_sums_of(how, from, some, finish->out + first * gr_load_size(how->target),
                                finish->unknown + first);
    }
}

void gr_store_accumulator(const gr_host_segments *job, gr_exact *sum, size_t cell)
{
    if (job->request->sums.words) {
        store_words(job, sum, cell);
        return;
    }
    if (job->request->sums.finish) {
        gr_store_numbers(job, gr_unrounded_of(sum), cell, false);
        return;
    }
    add_initial(job, sum, gr_part_of_cell(job, cell));
    gr_store_sum(job, cell, gr_exact_round(sum, job->request->sums.target));
}
