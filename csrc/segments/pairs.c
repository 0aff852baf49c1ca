/* Sums in pairs: 128-bit integers in units of one power of two.
 *
 * Lemma. A number with the exponent field f = low + s, 0 <= s <= most, is m 2^(f - 1075) with
 * |m| < 2^53. In its type the last `spare` bits of m are zero. So it counts m 2^-spare 2^s units of
 * 2^(low + spare - 1075), which is less than 2^(53 - spare + most) in size. gr_choose_window() sets
 * `most` such that 2^count of them stay below 2^127, where 2^count is more than the number of rows
 * and of initial numbers. So no pair overflows, even if all elements go to one segment.
 *
 * Short cells have 64 bits: the same holds with 2^63 in place of 2^127.
 *
 * Zeros of either sign count 0. All other numbers that do not fit are outliers: subnormal, too
 * large or too small for the window, inf and nan. */
#include "segments/pairs.h"

#include "cpu/floating_point_mode.h"
#include "cpu/instruction_set.h"
#include "cpu/store.h"
#include "exact/proven.h"
#include "exact/round.h"
#include "shared/sizes.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    AHEAD = 32,           /* rows whose cells are prefetched ... */
    NEAR_BYTES = 1 << 19, /* ... if a copy of the cells exceeds the second-level cache */
    PER_SAMPLE = 256,     /* one sample per so many numbers, ... */
    FEW_SAMPLES = 64,     /* ... but at least this many for short arrays */
    SPARE_BINADES = 2,    /* binades of a window for short cells beyond those of the samples */
    MOST_FIELD = 2046     /* of a finite number */
};

typedef unsigned __int128 pair;

static pair load_pair(const unsigned char *at)
{
    pair x;
    memcpy(&x, at, sizeof x);
    return x;
}

static void store_pair(unsigned char *at, pair x)
{
    memcpy(at, &x, sizeof x);
}

static uint64_t load_word(const unsigned char *at)
{
    uint64_t x;
    memcpy(&x, at, sizeof x);
    return x;
}

static void store_word(unsigned char *at, uint64_t x)
{
    memcpy(at, &x, sizeof x);
}

static pair make_pair(uint64_t low, uint64_t high)
{
    return (pair)high << 64 | low;
}

/* --- the window ---------------------------------------------------------------------------- */

size_t gr_take_samples(gr_host_segments *job, double samples[2 * GR_MOST_SAMPLES])
{
    const gr_segment_values *values = &job->request->values;
    size_t all = values->rows * job->columns, parts = (size_t)values->parts;
    size_t many = gr_least(all / parts / PER_SAMPLE, GR_MOST_SAMPLES);
    many = gr_least(many < FEW_SAMPLES ? FEW_SAMPLES : many, all / parts);
    gr_segment_block *block = malloc(sizeof *block);
    job->failed = !block;
    for (size_t i = 0; i < many && block; i++) {
        size_t at = all / parts / many * i;
        at += i * 7919 % (all / parts / many); /* varies the column */
        block->rows = 1;
        block->columns = parts;
        block->first_column = at % (job->columns / parts) * parts;
        gr_read_numbers(job, block, at / (job->columns / parts));
        memcpy(samples + i * parts, block->numbers, parts * sizeof *samples);
    }
    free(block);
    return block ? many * parts : 0;
}

size_t gr_count_fields(const double *samples, size_t n, unsigned counts[GR_FIELDS],
                       gr_field_range *range)
{
    size_t found = 0;
    *range = (gr_field_range){GR_FIELDS, 0};
    for (size_t i = 0; i < n; i++) {
        uint64_t bits;
        memcpy(&bits, samples + i, sizeof bits);
        int field = (int)(bits >> 52 & 0x7ff);
        if (field > 0 && field <= MOST_FIELD) {
            counts[field]++;
            found++;
            range->least = field < range->least ? field : range->least;
            range->most = field > range->most ? field : range->most;
        }
    }
    if (found == 0)
        *range = (gr_field_range){MOST_FIELD / 2, MOST_FIELD / 2};
    return found;
}

/* The first field of a window for numbers of that range, in its middle. */
static int middle_window(gr_field_range range, int most)
{
    int first = range.most - most > 1 ? range.most - most : 1;
    int last = range.least < MOST_FIELD - most ? range.least : MOST_FIELD - most;
    return (first + last) / 2;
}

bool gr_place_window(const unsigned counts[GR_FIELDS], size_t samples, gr_field_range range,
                     int most, int *where)
{
    size_t within = 0, best = 0;
    *where = middle_window(range, most);
    if (range.most - range.least <= most)
        return true;
    int first = 1, last = 1; /* the windows that hold most of the samples */
    for (int low = 1 - most; low <= MOST_FIELD - most; low++) {
        within += counts[low + most];
        within -= low > 1 ? counts[low - 1] : 0;
        if (low < 1)
            continue;
        if (within > best)
            first = low;
        if (within >= best)
            last = within > best || last == low - 1 ? low : last;
        best = within > best ? within : best;
    }
    *where = (first + last) / 2;
    return samples - best <= samples / 32;
}

bool gr_choose_window(gr_host_segments *job)
{
    unsigned counts[GR_FIELDS] = {0};
    double samples[2 * GR_MOST_SAMPLES];
    gr_field_range range;
    gr_pair_window *window = &job->window, *narrow = &job->narrow;
    window->spare = narrow->spare = 52 - gr_format_of(job->request->values.load).fraction;
    window->most =
        127 - (53 - window->spare) - gr_bit_length(job->request->values.rows + GR_MOST_TERMS);
    size_t found = gr_count_fields(samples, gr_take_samples(job, samples), counts, &range);
    narrow->most = window->most - 64;
    narrow->low = middle_window(range, narrow->most);
    if (narrow->most < range.most - range.least + SPARE_BINADES)
        narrow->most = -1;
    return gr_place_window(counts, found, range, window->most, &window->low) && !job->failed;
}

/* --- additions ----------------------------------------------------------------------------- */

void gr_split_baseline(const double *x, size_t n, gr_pair_window window, gr_split *to)
{
    to->outliers = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t bits;
        memcpy(&bits, x + i, sizeof bits);
        gr_split_one(bits, i, window, to);
    }
}

static void split(const gr_host_segments *job, const gr_segment_block *block, size_t n,
                  gr_split *to)
{
    if (!job->adds_floats) {
        to->outliers = 0;
        memcpy(to->low, block->numbers, n * sizeof *to->low);
        for (size_t i = 0; i < n; i++)
            to->high[i] = job->request->values.is_signed && to->low[i] >> 63 ? UINT64_MAX : 0;
        return;
    }
#ifdef __x86_64__
    if (gr_instructions() >= GR_AVX512) {
        gr_split_avx512(block->numbers, n, job->window, to);
        return;
    }
    if (gr_instructions() >= GR_AVX2) {
        gr_split_avx2(block->numbers, n, job->window, to);
        return;
    }
#endif
    gr_split_baseline(block->numbers, n, job->window, to);
}

static bool note_outliers(gr_host_segments *job, const gr_segment_block *block,
                          const gr_split *some, gr_outliers *outliers)
{
    const double *x = block->numbers;
    size_t end = job->segments * job->columns;
    for (size_t k = 0; k < some->outliers; k++) {
        size_t i = some->outlier[k];
        size_t cell = gr_cell_of(job, block, i / block->columns) + i % block->columns;
        if (cell >= end) /* a segment of another pass */
            continue;
        if (!gr_note_outlier(job, outliers, (gr_outlier){cell, x[i]}))
            return false;
    }
    return true;
}

/* Prefetches a cell. The address may be outside the cells. */
static void fetch(unsigned char *cells, size_t place, size_t size)
{
    __builtin_prefetch((const void *)((uintptr_t)cells + place * size), 1);
}

/* Adds one column. Local variables hold what does not change, because the compiler must assume that
 * stores to cells change everything behind pointers. */
#define ADD_TO_CELLS(fetches, type, number)                                                        \
    for (size_t i = 0; i < n; i++) {                                                               \
        size_t place = (size_t)ids[i] - first;                                                     \
        unsigned char *at = cells + (place < segments ? place : segments) * sizeof(type);          \
        if (fetches)                                                                               \
            fetch(cells, (size_t)ids[i + AHEAD < n ? i + AHEAD : i] - first, sizeof(type));        \
        type x;                                                                                    \
        memcpy(&x, at, sizeof x);                                                                  \
        x += (number);                                                                             \
        memcpy(at, &x, sizeof x);                                                                  \
    }

static void add_column(const gr_host_segments *job, const gr_segment_block *block,
                       const gr_split *some, unsigned char *cells, bool fetches)
{
    const int64_t *ids = block->ids;
    size_t n = block->rows, segments = job->segments, first = job->first_segment;
    bool is_short = job->kind == GR_CELL_SHORT;
    if (is_short && fetches)
        ADD_TO_CELLS(true, uint64_t, some->low[i])
    else if (is_short)
        ADD_TO_CELLS(false, uint64_t, some->low[i])
    else if (fetches)
        ADD_TO_CELLS(true, pair, make_pair(some->low[i], some->high[i]))
    else
        ADD_TO_CELLS(false, pair, make_pair(some->low[i], some->high[i]))
}

static void add_columns(const gr_host_segments *job, const gr_segment_block *block,
                        const gr_split *some, unsigned char *cells)
{
    const uint64_t *low = some->low, *high = some->high;
    size_t rows = block->rows, columns = block->columns;
    for (size_t i = 0; i < rows; i++) {
        unsigned char *at = cells + gr_cell_of(job, block, i) * job->cell_bytes;
        if (job->kind == GR_CELL_SHORT) {
            for (size_t k = 0; k < columns; k++, at += sizeof *low)
                store_word(at, load_word(at) + *low++);
            continue;
        }
        for (size_t k = 0; k < columns; k++, at += sizeof(pair))
            store_pair(at, load_pair(at) + make_pair(*low++, *high++));
    }
}

bool gr_add_pairs(gr_host_segments *job, const gr_segment_block *block, unsigned char *cells,
                  gr_outliers *outliers)
{
    gr_split some;
    bool fetches = job->columns == 1 && job->copy_bytes > NEAR_BYTES;
    for (size_t i = 0; fetches && i < AHEAD && i < block->rows; i++)
        fetch(cells, (size_t)block->ids[i] - job->first_segment, job->cell_bytes);
    split(job, block, block->rows * block->columns, &some);
    if (job->columns > 1)
        add_columns(job, block, &some, cells);
    else
        add_column(job, block, &some, cells, fetches);
    return some.outliers == 0 || note_outliers(job, block, &some, outliers);
}

/* --- sums ---------------------------------------------------------------------------------- */

/* The exponent of the unit that the cells count. */
static int unit_of(const gr_host_segments *job)
{
    return job->adds_floats ? job->window.low + job->window.spare - 1075 : 0;
}

/* Adds up all copies of a cell. `at` is the cell in the first copy. */
static pair sum_of_copies(const unsigned char *at, bool is_short, int copies, size_t copy_bytes)
{
    pair sum = 0;
    for (int i = 0; i < copies; i++, at += copy_bytes)
        sum += is_short ? (pair)(__int128)(int64_t)load_word(at) : load_pair(at);
    return sum;
}

/* Rounds x * 2^unit to nearest, ties to even: exact/round.h has the lemma. Without branches that
 * depend on the number, as these would be mispredicted, except for zero and small results. */
static uint64_t round_pair(pair x, int unit, gr_format format)
{
    uint64_t sign = (uint64_t)1 << (format.fraction + format.exponent);
    uint64_t infinity = sign - ((uint64_t)1 << format.fraction);
    pair negative = (pair)0 - (x >> 127), size = (x ^ negative) - negative;
    if (size == 0)
        return 0;
    uint64_t high = (uint64_t)(size >> 64), low = (uint64_t)size;
    int bits = gr_bit_length(high ? high : low) + (high ? 64 : 0);
    int least = format.unit - unit, last = bits - 1 - format.fraction;
    int more = last < least ? least - last : 0; /* bits that a subnormal result lacks */
    last += more;
    if (more > format.fraction + 1)
        return sign & (uint64_t)negative; /* below half of the least subnormal: 0 */
    pair all = size << (128 - bits);      /* its first bit is the highest one */
    uint64_t top = (uint64_t)(all >> 64);
    int drop = 63 - format.fraction + more; /* 11 to 64 bits of it */
    uint64_t mantissa = top >> (drop - 1) >> 1;
    uint64_t rest = top << (64 - drop) | ((uint64_t)all != 0), half = (uint64_t)1 << 63;
    mantissa += (rest > half) | ((rest == half) & mantissa);
    uint64_t rounded = ((uint64_t)(last - least) << format.fraction) + mantissa;
    rounded = rounded > infinity ? infinity : rounded;
    return rounded | (sign & (uint64_t)negative);
}

/* Whether no sum is subnormal or too large: all but zero are at least 2^unit and below 2^(unit +
 * 127). The results are float32 or float64. */
static bool are_normal(int unit, gr_format format)
{
    int bias = (1 << (format.exponent - 1)) - 1;
    return format.size >= 4 && unit >= format.unit + format.fraction && unit + 127 <= bias;
}

/* Rounds such sums of all copies, for adjacent cells: as round_pair(), with less work. The first 63
 * bits of a sum, whose last one is 1 if any bit below is, round as the sum does; the processor
 * rounds them. Without branches that depend on the number. */
static void round_normal_pairs(const gr_normal_pairs *from, size_t n, unsigned char *to)
{
    size_t i = 0;
#ifdef __x86_64__
    if (gr_instructions() >= GR_AVX512)
        i = gr_round_pairs_avx512(from, n, to);
#endif
    for (; i < n; i++) {
        const unsigned char *at =
            from->cells + i * (from->is_short ? sizeof(int64_t) : sizeof(pair));
        pair sum = sum_of_copies(at, from->is_short, from->copies, from->copy_bytes) +
                   make_pair(from->initial[0], from->initial[1]);
        pair negative = (pair)0 - (sum >> 127), size = (sum ^ negative) - negative;
        uint64_t high = (uint64_t)(size >> 64), low = (uint64_t)size;
        uint64_t is_long = (uint64_t)0 - (high != 0);
        uint64_t top = high | (low & ~is_long), rest = low & is_long;
        int zeros = __builtin_clzll(top | 1);
        uint64_t bits = top << zeros | rest >> 1 >> (63 - zeros);
        int64_t m = (int64_t)(bits >> 1 | (bits & 1) | (rest << zeros != 0));
        uint64_t exponent = (uint64_t)(from->unit + 1 - zeros) + (64 & is_long);
        exponent &= (uint64_t)0 - (m != 0);
        if (from->single) {
            float x = (float)m;
            uint32_t all;
            memcpy(&all, &x, sizeof all);
            all = (all + ((uint32_t)exponent << 23)) | (uint32_t)negative << 31;
            memcpy(to + i * sizeof all, &all, sizeof all);
        } else {
            double x = (double)m;
            uint64_t all;
            memcpy(&all, &x, sizeof all);
            all = (all + (exponent << 52)) | (uint64_t)negative << 63;
            memcpy(to + i * sizeof all, &all, sizeof all);
        }
    }
}

static void deposit(gr_exact *sum, pair x, int unit)
{
    int64_t parts[] = {(uint32_t)x, (uint32_t)(x >> 32), (int64_t)(x >> 64)};
    const int up[] = {0, 32, 64};
    for (int i = 0; i < 3; i++)
        if (parts[i])
            gr_exact_add_scaled(sum, parts[i], unit + up[i]);
}

/* Converts the initial number to a pair. Returns false if it does not fit. */
static bool initial_pair(const gr_host_segments *job, int part, pair *total)
{
    const gr_initial *initial = &job->request->initial;
    gr_split some = {.outliers = 0};
    *total = 0;
    if (initial->count[part] > 0 && !job->adds_floats)
        return false;
    for (int i = 0; i < initial->count[part]; i++) {
        uint64_t bits;
        memcpy(&bits, initial->terms[part] + i, sizeof bits);
        if (bits & (((uint64_t)1 << job->window.spare) - 1))
            return false;
        gr_split_one(bits, 0, job->window, &some);
        *total += make_pair(some.low[0], some.high[0]);
    }
    return some.outliers == 0;
}

/* x * 2^unit, exactly. */
static gr_unrounded unrounded_pair(pair x, int unit)
{
    const uint64_t ones = ((uint64_t)1 << 53) - 1;
    pair negative = (pair)0 - (x >> 127), size = (x ^ negative) - negative;
    if (unit > -1000 && unit < 850) { /* nothing is subnormal or too large */
        int64_t sign = (int64_t)negative | 1, part = (int64_t)(size >> 75);
        double low = (double)(sign * (int64_t)((uint64_t)(size >> 22) & ones));
        double tail = (double)(sign * (int64_t)((uint64_t)size & (ones >> 31)));
        return (gr_unrounded){(double)(sign * part) * gr_power_of_two(unit + 75),
                              low * gr_power_of_two(unit + 22), tail * gr_power_of_two(unit), 0};
    }
    /* In two steps, as 2^unit may be no normal number. */
    double scale = gr_power_of_two(unit / 2), more = gr_power_of_two(unit - unit / 2);
    scale = negative ? -scale : scale;
    double high = (double)(uint64_t)(size >> 75) * 0x1p75 * scale * more;
    double low = (double)((uint64_t)(size >> 22) & ones) * 0x1p22 * scale * more;
    double tail = (double)((uint64_t)size & (ones >> 31)) * scale * more;
    bool is_finite = gr_magnitude(high) + gr_magnitude(low) <= DBL_MAX;
    return is_finite ? (gr_unrounded){high, low, tail, 0} : (gr_unrounded){0, 0, 0, (double)NAN};
}

void gr_finish_pairs(const gr_host_segments *job, size_t first, size_t n)
{
    const gr_outliers *outliers = job->outliers;
    const gr_load target = job->request->sums.target;
    const gr_format format = gr_format_of(target);
    size_t size = gr_load_size(target);
    unsigned char *out = job->request->sums.data + job->first_segment * job->columns * size;
    size_t next = gr_first_outlier(outliers, first);
    int unit = unit_of(job);
    pair initial[2] = {0, 0};
    bool fits[2] = {true, true};
    for (int part = 0; part < job->request->values.parts; part++)
        fits[part] = initial_pair(job, part, &initial[part]);
    gr_normal_pairs normal = {
        .copy_bytes = job->copy_bytes,
        .copies = job->copies,
        .unit = unit,
        .initial = {(uint64_t)initial[0], (uint64_t)(initial[0] >> 64)},
        .is_short = job->kind == GR_CELL_SHORT,
        .single = size == 4,
    };
    bool are_alike =
        fits[0] && fits[1] && (job->request->values.parts == 1 || initial[0] == initial[1]);
    bool is_normal = are_alike && job->touching && !job->request->sums.words &&
                     !job->request->sums.finish && are_normal(unit, format);
    gr_arithmetic before = gr_begin_plain();
    for (size_t cell = first, end = first + n; cell < end; cell++) {
        if (is_normal) { /* vector code, up to the next outlier */
            size_t stop = next < outliers->count ? outliers->list[next].cell : end;
            stop = stop < end ? stop : end;
            normal.cells = job->cells + cell * job->cell_bytes;
            round_normal_pairs(&normal, stop - cell, out + cell * size);
            cell = stop;
            if (cell == end)
                break;
        }
        pair sum = sum_of_copies(job->cells + cell * job->cell_bytes, normal.is_short, job->copies,
                                 job->copy_bytes);
        int part = gr_part_of_cell(job, cell);
        bool has_outlier = next < outliers->count && outliers->list[next].cell == cell;
        if (has_outlier || !fits[part] || job->request->sums.words) {
            gr_exact total;
            gr_exact_init(&total);
            deposit(&total, sum, unit);
            for (; next < outliers->count && outliers->list[next].cell == cell; next++)
                gr_exact_add_f64(&total, outliers->list[next].x);
            gr_store_accumulator(job, &total, cell);
            continue;
        }
        if (job->request->sums.finish) {
            gr_store_numbers(job, unrounded_pair(sum, unit), cell, false);
            continue;
        }
        uint64_t bits = round_pair(sum + initial[part], unit, format);
        if (job->touching)
            gr_store_integer(out + cell * size, bits, target);
        else
            gr_store_sum(job, cell, bits);
    }
    gr_end_plain(before);
}
