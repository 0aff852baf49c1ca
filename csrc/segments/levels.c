/* Sums and sums of squares in one cell of a cache line, for variances: three integers count the sum
 * in units of as many powers of two, and five integers count the sum of squares.
 *
 * Lemma. Adjacent units are 2^w apart, w = `spacing`. A number below 2^e in size counts at most
 * 2^(w - 1) of the first unit, 2^(e + 1 - w), and leaves at most half a unit for the next level:
 * 2^(w - 1) of its units. Its last bit is a multiple of the last unit if its exponent field lies in
 * the window that gr_choose_levels() sets, so the last level leaves no rest. A square is the sum of
 * its float64 and that one's rounding error, which counts less than 2^(w - 1) of the second unit. A
 * row thus adds at most 2^w to each integer, and w <= 62 less the bit length of the rows, so no
 * integer overflows.
 *
 * A variance is that of the differences from any number, the pivot. If all samples lie close to
 * each other, it is one of them: most differences are float64 numbers then, and n times the sum of
 * their squares is not nearly the square of their sum. */
#include "segments/segment_job.h"

#include "cpu/floating_point_mode.h"
#include "exact/format.h"
#include "exact/proven.h"
#include "exact/round.h"

#include <math.h>

enum {
    OF_X = GR_LEVELS_OF_X,
    LEAST_SPACING = 27, /* store_count() takes 12 to 51 */
    MOST_SPACING = 42,
    HIGHEST = 1023 + 400, /* exponent fields of a window's end: units are normal numbers */
    LOWEST = 1023 - 350
};

/* A sample, if the samples differ little beside their size; otherwise 0. */
static double choose_pivot(const double *samples, size_t n)
{
    double least = n ? samples[0] : 0, most = least;
    for (size_t i = 0; i < n; i++) {
        least = samples[i] < least ? samples[i] : least;
        most = samples[i] > most ? samples[i] : most;
    }
    double nearest = least > 0 ? least : -most;
    return most - least < 0x1p-14 * nearest ? least : 0;
}

bool gr_choose_levels(gr_host_segments *job)
{
    unsigned counts[GR_FIELDS] = {0};
    double samples[2 * GR_MOST_SAMPLES];
    gr_field_range range;
    int fraction = gr_format_of(job->request->values.load).fraction;
    int spacing = 62 - gr_bit_length(job->request->values.rows), low;
    spacing = spacing < MOST_SPACING ? spacing : MOST_SPACING;
    int most = OF_X * spacing - 2 - fraction;
    int most_of_squares = ((GR_LEVELS - OF_X) * spacing - 3 - 2 * fraction) / 2;
    most = most < most_of_squares ? most : most_of_squares;
    size_t many = gr_take_samples(job, samples);
    bool has_missing = job->request->sums.finish->counts_results; /* which are 0 */
    job->levels.pivot = has_missing ? 0 : choose_pivot(samples, many);
    for (size_t i = 0; i < many; i++)
        samples[i] -= job->levels.pivot;
    size_t found = gr_count_fields(samples, many, counts, &range);
    if (job->failed || spacing < LEAST_SPACING ||
        !gr_place_window(counts, found, range, most, &low))
        return false;
    int end = low + most + 1;
    if (end > HIGHEST || end < LOWEST)
        return false;
    job->levels.spacing = spacing;
    job->levels.least = gr_power_of_two(low - 1023);
    job->levels.end = gr_power_of_two(end - 1023);
    for (int squares = 0, k = 0; squares < 2; squares++) {
        int unit = (end - 1023) * (1 + squares) + 1 - spacing;
        for (int stop = squares ? GR_LEVELS : OF_X; k < stop; k++, unit -= spacing) {
            job->levels.start[k] = 1.5 * gr_power_of_two(unit + 52);
            job->unit[squares] = unit;
            job->levels.unit[squares] = gr_power_of_two(unit);
        }
    }
    return true;
}

/* The first cells of all numbers of a block. */
static void find_places(const gr_host_segments *job, const gr_segment_block *block, size_t *places)
{
    const int64_t *ids = block->ids;
    size_t rows = block->rows, first = job->first_segment, segments = job->segments;
    for (size_t i = 0; i < rows && job->columns == 1; i++) {
        size_t place = (size_t)ids[i] - first;
        places[i] = place < segments ? place : segments;
    }
    for (size_t i = 0; i < rows && job->columns > 1; i++)
        for (size_t k = 0; k < block->columns; k++)
            *places++ = gr_cell_of(job, block, i) + k;
}

bool gr_add_levels(gr_host_segments *job, const gr_segment_block *block, int64_t *cells,
                   gr_outliers *outliers)
{
    size_t places[GR_SEGMENT_BLOCK], n = block->rows * block->columns;
    const double *x = block->numbers;
    find_places(job, block, places);
    gr_arithmetic before = gr_begin_plain();
    bool room = true, all = gr_proven_best()->add_cells(&job->levels, x, places, n, cells);
    for (size_t i = 0; i < n && !all && room; i++) {
        double above = x[i], lost = gr_two_sum(&above, -job->levels.pivot);
        double size = gr_magnitude(above);
        bool fits =
            lost == 0 && ((size >= job->levels.least && size < job->levels.end) || size == 0);
        bool counts = places[i] < job->segments * job->columns; /* a segment of this pass */
        gr_outlier outlier = {places[i], lost == 0 ? above : (double)NAN}; /* nan: unknown */
        room = fits || !counts || gr_note_outlier(job, outliers, outlier);
    }
    gr_end_plain(before);
    return room;
}

/* Adds the outliers of a cell to its sums, and stores these. */
static void store_with_outliers(const gr_host_segments *job, size_t cell, size_t next)
{
    const gr_outliers *outliers = job->outliers;
    const unsigned char *cells = job->cells + cell * job->cell_bytes;
    for (int squares = 0, k = 0; squares < 2; squares++) {
        gr_exact sum;
        gr_exact_init(&sum);
        bool is_known = true;
        int count = squares ? GR_LEVELS : OF_X, unit = job->unit[squares];
        for (; k < count; k++)
            for (int i = 0; i < job->copies; i++) {
                const void *copy = cells + (size_t)i * job->copy_bytes;
                gr_exact_add_scaled(&sum, ((const int64_t *)copy)[k],
                                    unit + (count - 1 - k) * job->levels.spacing);
            }
        for (size_t i = next; i < outliers->count && outliers->list[i].cell == cell; i++) {
            double x = outliers->list[i].x, square = x * x;
            gr_exact_add_f64(&sum, squares ? square : x);
            if (squares)
                gr_exact_add_f64(&sum, gr_rest_of_product(x, x, square));
            is_known = is_known && (!squares || (square >= 0x1p-900 && square <= 0x1p900));
        }
        gr_unrounded found = gr_unrounded_of(&sum);
        if (!is_known)
            found.error = (double)NAN;
        gr_store_numbers(job, found, cell, squares);
    }
}

void gr_finish_levels(const gr_host_segments *job, size_t first, size_t n)
{
    enum { PLANES = 4 * GR_FINISH_BATCH }; /* numbers of a sum */
    const gr_outliers *outliers = job->outliers;
    size_t parts = (size_t)job->request->sums.finish->how.parts;
    gr_cell_copies from = {(const int64_t *)(const void *)job->cells + first * GR_LEVELS,
                           parts * GR_LEVELS, job->copy_bytes / sizeof(int64_t), job->copies};
    gr_arithmetic before = gr_begin_plain();
    for (double *to = job->planes; to < job->planes + parts * PLANES; to += PLANES) {
        gr_proven_best()->cell_sums(&job->levels, &from, n / parts, to, to + parts * PLANES);
        from.cells += GR_LEVELS;
    }
    size_t next = gr_first_outlier(outliers, first), cell = first + n;
    for (; next < outliers->count && outliers->list[next].cell < first + n; next++)
        if (cell != outliers->list[next].cell) {
            cell = outliers->list[next].cell;
            store_with_outliers(job, cell, next);
        }
    gr_end_plain(before);
}
