/* Rounds the sums of cells and stores them. */
#include "segments/segment_job.h"

#include "cpu/floating_point_mode.h"
#include "cpu/store.h"
#include "exact/format.h"

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
        gr_exact_head_to_words(0, sums->parts, sums->target, words);
    (void)gr_exact_component_to_words(sum, part, words); /* sums of 2^64 numbers fit */
}

typedef struct {
    const gr_finish_how *how;
    unsigned char *unknown;
} results;

/* Stores a nan for 0 / 0, and marks other results. */
static bool mark_unknown(void *context, size_t group, double n, double mean, unsigned char *out)
{
    const results *of = context;
    double least = of->how->kind == GR_FINISH_RATIO ? 0 : of->how->ddof < 1 ? of->how->ddof : 1;
    (void)mean;
    if (n <= least)
        gr_store_float(out, (double)NAN, of->how->target);
    else
        of->unknown[group] = 1;
    return true;
}

void gr_store_results(const gr_host_segments *job, const double *planes, size_t stride,
                      size_t first, size_t n)
{
    const gr_segment_finish *finish = job->request->sums.finish;
    const gr_finish_how *how = &finish->how;
    gr_finish_planes from = {.n = finish->n + first, .stride = stride};
    results context = {how, finish->unknown + first};
    for (int i = 0; i < how->first_count + how->second_count; i++, planes += 4 * stride)
        *(i < how->first_count ? &from.first[i] : &from.second[i - how->first_count]) = planes;
    gr_arithmetic before = gr_begin_plain();
    (void)gr_finish_groups(how, from, false, n, finish->out + first * gr_load_size(how->target),
                           mark_unknown, &context);
    gr_end_plain(before);
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
