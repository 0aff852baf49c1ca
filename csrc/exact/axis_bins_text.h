/* Sums along an axis in bins (extract.h); a part of proven_text.h. */

/* Two float64 numbers that take elements without rounding. They start at 1.5 2^e. As long as `high`
 * stays in its binade, an addition to it leaves a rest of at most half a unit in its last place,
 * exactly. `low` takes the rests and cannot leave its binade. It takes a rest exactly if and only
 * if it grows by it. */
typedef struct {
    doubles high, low;
} bins;

typedef struct {
    lanes64 left, lost; /* high's binade changed (bits from 52 up); low lost bits of a rest */
} bin_faults;

/* Binades from the largest element seen up to the bin: room for 2^11 elements, and for larger ones
 * that were not seen. */
enum { BIN_ROOM = 16 };

/* Updates `most`, the bits of the largest magnitude in each lane, with n >= WIDTH elements. */
INLINE void note_sizes(int64_t most[WIDTH], const unsigned char *in, size_t n)
{
    for (size_t first = 0; first < n; first += WIDTH) {
        int64_t x[WIDTH];
        memcpy(x, in + (first + WIDTH <= n ? first : n - WIDTH) * sizeof(double), sizeof x);
        for (int i = 0; i < WIDTH; i++)
            most[i] = (x[i] & INT64_MAX) > most[i] ? x[i] & INT64_MAX : most[i];
    }
}

/* Sets the start of the bins for n elements, at most 2^11, of magnitudes about `most`. Returns
 * false if these are too large or too small for bins. */
INLINE bool start_bins(const int64_t most[WIDTH], size_t n, bins *start)
{
    int64_t size = 0;
    for (int i = 0; i < WIDTH; i++)
        size = most[i] > size ? most[i] : size;
    int log = 64 - __builtin_clzll(n), exponent = size ? (int)(size >> 52) - 1023 : 0;
    if (exponent < -800 || exponent > 800)
        return false;
    start->high = 1.5 * gr_power_of_two(exponent + BIN_ROOM) - (doubles){0};
    start->low = 1.5 * gr_power_of_two(exponent + BIN_ROOM - 52 + log) - (doubles){0};
    return true;
}

INLINE void add_to_bins(bins *to, doubles x, const bins *start, bin_faults *faults)
{
    doubles high = to->high + x, rest = x - minus(high, to->high), low = to->low + rest;
    faults->left |= (lanes64)high ^ (lanes64)start->high;
    faults->lost |= (lanes64)minus(low, to->low) ^ (lanes64)rest;
    *to = (bins){high, low};
}

INLINE bool is_faultless(const bin_faults *faults)
{
    lanes64 bits = (faults->left & ~(((int64_t)1 << 52) - 1)) | (faults->lost & INT64_MAX);
    int64_t any = 0;
    for (int i = 0; i < WIDTH; i++)
        any |= bits[i];
    return any == 0;
}

typedef enum { FIRST = 1, LAST = 2, ALONG = 4 } bin_pass;
enum { AHEAD = 4096 }; /* bytes to the next strip of columns */

/* Adds `count` rows: every `apart`-th pointer of `rows`. Prefetches what is added later, which the
 * additions would delay: the next columns (ALONG), or the rows after the first `next` rows, which
 * the next pass adds. */
INLINE void add_rows_to_bins(const unsigned char *const *rows, size_t count, size_t apart,
                             size_t next, size_t width, const bins *start, int pass, double *sums,
                             double *rests, bool rounds, bin_faults *faults)
{
    for (size_t first = 0; first < width; first += GROUP, sums += GROUP, rests += GROUP) {
        size_t at = (first + GROUP <= width ? first : width - GROUP) * sizeof(double);
        bins to[2] = {*start, *start};
        if (!(pass & FIRST)) {
            memcpy(&to[0].high, sums, sizeof to[0].high);
            memcpy(&to[1].high, sums + WIDTH, sizeof to[1].high);
            memcpy(&to[0].low, rests, sizeof to[0].low);
            memcpy(&to[1].low, rests + WIDTH, sizeof to[1].low);
        }
        for (size_t j = 0; j < count; j++) {
            uintptr_t later = (uintptr_t)rows[j * apart + (j < next)] + at;
            later += pass & ALONG ? AHEAD : 0; /* may be past the array */
            doubles x[2];
            load_f64(rows[j * apart] + at, x);
            for (size_t i = 0; i < GROUP * sizeof(double); i += 64)
                __builtin_prefetch((const void *)(later + i), 0, SECOND_LEVEL);
            add_to_bins(&to[0], x[0], start, faults);
            add_to_bins(&to[1], x[1], start, faults);
        }
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++) {
            doubles sum = to[i].high, rest = to[i].low;
            if (pass & LAST) {
                sum -= start->high;
                rest -= start->low;
                sum += rounds ? rest : (doubles){0};
            }
            memcpy(sums + i * WIDTH, &sum, sizeof sum);
            memcpy(rests + i * WIDTH, &rest, sizeof rest);
        }
    }
}

static bool bin_columns_f64(const unsigned char *const *rows, size_t count, size_t width,
                            double *sums, double *rests, bool rounds)
{
    bin_faults faults = {{0}, {0}};
    int64_t most[WIDTH] = {0};
    bins start;
    note_sizes(most, rows[0], width);
    note_sizes(most, rows[count - 1], width);
    if (!start_bins(most, count, &start))
        return false;
    size_t passes = (count - 1) / TOGETHER + 1;
    bool in_strips = rounds && width * sizeof(double) > AHEAD / 2;
    for (size_t r = 0; r < passes; r++) {
        bool is_last = r == passes - 1, along = is_last || in_strips;
        size_t next = along ? 0 : (count - r - 2) / passes + 1;
        int pass = (r == 0 ? FIRST : 0) | (is_last ? LAST : 0) | (along ? ALONG : 0);
        add_rows_to_bins(rows + r, (count - r - 1) / passes + 1, passes, next, width, &start, pass,
                         sums, rests, rounds, &faults);
    }
    return is_faultless(&faults);
}

/* The sum of one part's elements in units: how much its lanes have grown. */
INLINE int64_t take_units(doubles lanes, doubles start, int part, int parts)
{
    lanes64 bits = (lanes64)lanes, origin = (lanes64)start;
    uint64_t sum = 0; /* wraps around if a bin has left its binade */
    for (int i = part; i < WIDTH; i += parts)
        sum += (uint64_t)bits[i] - (uint64_t)origin[i];
    return (int64_t)sum;
}

/* Adds up a row, and prefetches the next one, which may be past the array. */
INLINE void bin_row(const unsigned char *in, ptrdiff_t step, size_t n, const bins *start, bins *to,
                    bin_faults *faults)
{
    doubles x;
    size_t i = 0;
    *to = *start;
    for (; i + WIDTH <= n; i += WIDTH) {
        memcpy(&x, in + i * sizeof(double), sizeof x);
        __builtin_prefetch((const void *)((uintptr_t)in + i * sizeof(double) + (uintptr_t)step));
        add_to_bins(to, x, start, faults);
    }
    if (i == n)
        return;
    static const int64_t keep[2 * WIDTH] = {[WIDTH... 2 * WIDTH - 1] = -1};
    lanes64 last; /* selects those of the last WIDTH elements that are not yet added */
    memcpy(&last, keep + n - i, sizeof last);
    memcpy(&x, in + (n - WIDTH) * sizeof(double), sizeof x);
    add_to_bins(to, (doubles)((lanes64)x & last), start, faults);
}

static bool bin_rows_f64(const unsigned char *in, ptrdiff_t step, size_t n, size_t rows, int parts,
                         double *sums, double *rests)
{
    enum { LOOK = 128 }; /* elements whose magnitudes choose the bins */
    bin_faults faults = {{0}, {0}};
    int64_t most[WIDTH] = {0};
    bins start, to;
    if (n < WIDTH)
        return false;
    note_sizes(most, in, n < LOOK ? n : LOOK);
    if (!start_bins(most, n, &start))
        return false;
    const double unit = start.high[0] / 1.5 * 0x1p-52, small = start.low[0] / 1.5 * 0x1p-52;
    const uint64_t most_units = (uint64_t)1 << 53;
    bool exact = true;
    for (size_t r = 0; r < rows; r++, in += step) {
        bin_row(in, step, n, &start, &to, &faults);
        for (int part = 0; part < parts; part++, sums += GR_PROVEN_ROWS, rests += GR_PROVEN_ROWS) {
            int64_t high = take_units(to.high, start.high, part, parts);
            exact &= (uint64_t)high + most_units <= 2 * most_units;
            sums[r] = (double)high * unit;
            rests[r] =
                gr_two_sum(&sums[r], (double)take_units(to.low, start.low, part, parts) * small);
        }
        sums -= parts * GR_PROVEN_ROWS;
        rests -= parts * GR_PROVEN_ROWS;
    }
    return exact && is_faultless(&faults);
}
