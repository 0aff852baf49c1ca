/* Adds up a range of elements on one thread. Chooses the method for each block: bins for few
 * exponents, bins for all exponents, scattering, or elements one by one. */
#include "exact/range_sum.h"
#include "shared/sizes.h"

#include "cpu/floating_point_mode.h"
#include "cpu/instruction_set.h"

enum {
    FIRST = 512,        /* elements inspected for their size before any is added */
    FEW = 8,            /* up to this many elements, single deposits are faster than bins */
    PATIENCE = 16,      /* blocks to scatter after a block that did not fit the bins */
    SCATTER_FROM = 128, /* elements from which on clearing the scatter tables pays */
    WHOLE_FROM = 24,    /* elements from which on bins for all exponents pay */
    STRANGE = 256,      /* elements to add one by one after an inf or nan */
    MOST_POWER = 1022 - GR_EXTRACT_LOG_ROWS - 1 /* extract.h: k_0 <= 1022 */
};

/* The starts of bins, and the exponents of their units. */
typedef struct {
    double start[GR_EXTRACT_WIDE_BINS];
    int units[GR_EXTRACT_WIDE_BINS];
} bin_set;

/* One thread's work on a range of the array. sums[0] is for elements at even indexes, sums[1] for
 * odd ones; both may point to the same accumulator. */
typedef struct {
    const gr_extract_kernels *kernels;
    gr_extract_kernel *extract; /* null: not worth trying */
    gr_whole_kernel *whole;     /* for blocks that do not fit; null: scatter them */
    gr_load load;
    gr_format format;
    gr_exact *sums[2];
    int least_bins, bins; /* at least; needed recently */
    int power;            /* `tried` are for elements below 2^power in size */
    bool flags;           /* whether the inexact flag may be used */
    bin_set tried;
    gr_bin_sums *kept; /* sums of bins, not yet added to `sums` */
    gr_scatter scatter;
} worker;

GR_CHOOSE_TABLE(gr_extract_best, gr_extract_kernels, gr_extract_baseline, gr_extract_avx2,
                gr_extract_avx512, gr_extract_avx512)

static void add_elements(worker *work, const unsigned char *in, size_t n)
{
    size_t size = (size_t)work->format.size;
    for (size_t i = 0; i < n; i++)
        gr_add_element(work->sums[i % 2], gr_element_bits(in + i * size, size), work->format);
}

static void add_bins(gr_exact *const sums[2], const int64_t (*sum)[2], const int *units, int bins)
{
    for (int b = 0; b < bins; b++)
        for (int i = 0; i < 2; i++)
            if (sum[b][i])
                gr_exact_add_scaled(sums[i], sum[b][i], units[b]);
}

void gr_bins_deposit(const gr_bin_sums *kept, gr_exact *const sums[2])
{
    if (kept->any)
        add_bins(sums, kept->sum, kept->units, GR_EXTRACT_BINS);
}

bool gr_bins_add(gr_bin_sums *kept, const gr_bin_sums *more)
{
    if (!kept->any) {
        *kept = *more;
        return true;
    }
    if (!more->any)
        return true;
    gr_bin_sums next = *kept;
    bool over = memcmp(kept->units, more->units, sizeof kept->units) != 0;
    for (int b = 0; b < GR_EXTRACT_BINS; b++)
        for (int i = 0; i < 2; i++)
            over |= __builtin_add_overflow(kept->sum[b][i], more->sum[b][i], &next.sum[b][i]);
    if (!over)
        *kept = next;
    return !over;
}

void gr_bins_keep(gr_bin_sums *kept, const gr_bin_sums *more, gr_exact *const sums[2])
{
    if (gr_bins_add(kept, more))
        return;
    gr_bins_deposit(kept, sums);
    *kept = *more;
}

static void keep_extracted(worker *work, const gr_extracted *got)
{
    gr_bin_sums more = {.any = true};
    memcpy(more.units, work->tried.units, sizeof more.units);
    memcpy(more.sum, got->sum, (size_t)work->bins * sizeof *more.sum);
    gr_bins_keep(work->kept, &more, work->sums);
}

/* Returns 3 * 2^(exponent - 1). The exponent must be that of a normal number. */
static double middle(int exponent)
{
    uint64_t bits = (uint64_t)(exponent + 1023) << 52 | (uint64_t)1 << 51;
    double start;
    memcpy(&start, &bits, sizeof start);
    return start;
}

/* Makes bins for 2^log_rows elements below 2^power in size. The exponents are those of the lemma in
 * extract.h. */
static void make_bins(bin_set *set, int bins, int power, int log_rows)
{
    int exponent = power + log_rows + 1;
    for (int b = 0; b < bins; b++) {
        exponent = exponent < -1022 ? -1022 : exponent;
        set->start[b] = middle(exponent);
        set->units[b] = exponent - 52;
        exponent += log_rows + 1 - 53;
    }
}

static void try_power(worker *work, int power)
{
    work->power = power;
    make_bins(&work->tried, GR_EXTRACT_BINS, power, GR_EXTRACT_LOG_ROWS);
}

/* Returns the greatest exponent field of n elements. */
static int peak_of(gr_format format, const unsigned char *in, size_t n)
{
    size_t size = (size_t)format.size;
    /* The high word of each element, without its sign. */
    uint64_t mask = size == 8   ? 0x7fff000000000000
                    : size == 4 ? 0x7fff00007fff0000
                                : 0x7fff7fff7fff7fff;
    return (int)(gr_extract_best()->peak(in, n * size, mask) >> (15 - format.exponent));
}

/* Returns the power for which the elements are below 2^power in size, or MOST_POWER + 1 if no bins
 * can be made for them. */
static int power_of(gr_format format, const unsigned char *in, size_t n)
{
    /* Elements with exponent field 1 are below 2^(unit + fraction + 1), and so are those with field
     * 0. */
    int top = peak_of(format, in, n), special = (1 << format.exponent) - 1;
    int power = format.unit + format.fraction + (top > 0 ? top : 1);
    return top < special && power <= MOST_POWER ? power : MOST_POWER + 1;
}

/* Changes the bins for elements that did not fit. Returns false if no other bins would help. */
static bool adapt(worker *work, const unsigned char *in, size_t n)
{
    int power = power_of(work->format, in, gr_least(n, work->kernels->block));
    if (power > MOST_POWER || n < WHOLE_FROM)
        return false;
    if (power != work->power)
        try_power(work, power);
    else if (work->bins < GR_EXTRACT_BINS)
        work->bins++;
    else
        return false;
    return true;
}

/* Adds elements in bins. Returns the number of elements that fitted. The bins are made for the
 * largest exponents met recently, because the exponents of the next elements are unknown before
 * they are read. Elements that do not fit are read again for other bins; by then they are in the
 * cache. */
static size_t extract(worker *work, const unsigned char *in, size_t n)
{
    size_t done = 0;
    while (done < n) {
        gr_extracted got;
        const unsigned char *from = in + done * (size_t)work->format.size;
        size_t asked = gr_least(n - done, GR_EXTRACT_MOST);
        size_t more = work->extract(from, asked, work->bins, work->tried.start,
                                    (unsigned)(work->power + 1022), work->flags, &got);
        if (more)
            keep_extracted(work, &got);
        done += more;
        if (more == GR_EXTRACT_MOST && work->bins > work->least_bins)
            work->bins--; /* later elements may need fewer */
        else if (more < asked && !adapt(work, in + done * (size_t)work->format.size, n - done))
            break;
    }
    return done;
}

/* Adds some elements in bins for all exponents. Returns the number of elements added. */
static size_t add_whole(worker *work, const unsigned char *in, size_t n)
{
    bool half = work->load == GR_LOAD_f16;
    int bins = half ? GR_EXTRACT_HALF_BINS : GR_EXTRACT_WIDE_BINS;
    int power = half ? GR_EXTRACT_HALF_POWER : GR_EXTRACT_WIDE_POWER;
    bin_set set;
    gr_extracted got;
    make_bins(&set, bins, power, half ? GR_EXTRACT_HALF_LOG_ROWS : GR_EXTRACT_WIDE_LOG_ROWS);
    n = gr_least(n, GR_EXTRACT_MOST);
    size_t done = work->whole(in, n, set.start, &got);
    add_bins(work->sums, got.sum, set.units, bins);
    size_t end = done + gr_least(n - done, work->kernels->block);
    for (size_t piece; done < end; done += piece) {
        const unsigned char *from = in + done * (size_t)work->format.size;
        piece = gr_least(end - done, STRANGE);
        if (work->whole(from, piece, set.start, &got) == piece)
            add_bins(work->sums, got.sum, set.units, bins);
        else
            add_elements(work, from, piece);
    }
    return end;
}

static size_t scatter(worker *work, const unsigned char *in, size_t n)
{
    int special = (1 << work->format.exponent) - 1;
    size_t size = (size_t)work->format.size, block = work->kernels->block;
    n = gr_least(n, PATIENCE * block);
    for (size_t left = n; left > 0;) {
        size_t piece = gr_least(left, block);
        bool strange = peak_of(work->format, in, piece) == special;
        if (strange) {
            piece = gr_least(left, STRANGE);
            strange = peak_of(work->format, in, piece) == special;
        }
        if (strange)
            add_elements(work, in, piece);
        else
            gr_scatter_add(&work->scatter, in, piece, work->kernels->scatter, work->sums);
        in += piece * size;
        left -= piece;
    }
    return n;
}

/* Adds some elements. Returns the number of elements added. */
static size_t add_some(worker *work, const unsigned char *in, size_t n)
{
    size_t done = work->extract ? extract(work, in, n) : 0;
    if (done == n)
        return n;
    in += done * (size_t)work->format.size;
    n -= done;
    if (n < (work->whole ? WHOLE_FROM : SCATTER_FROM)) {
        add_elements(work, in, n);
        return done + n;
    }
    return done + (work->whole ? add_whole(work, in, n) : scatter(work, in, n));
}

/* Chooses the kernels and the first bins. */
static void start_worker(worker *work, int power)
{
    const gr_extract_kernels *kernels = work->kernels = gr_extract_best();
    work->scatter.used = false;
    work->extract = kernels->extract[work->load];
    work->whole = kernels->whole[work->load];
    work->least_bins = work->load == GR_LOAD_f64 ? 2 : 1; /* enough for most data */
    work->bins = work->least_bins;
    try_power(work, power);
}

int gr_first_power(gr_load load, const unsigned char *in, size_t n)
{
    if (n <= FEW || load == GR_LOAD_f16)
        return 0;
    int power = power_of(gr_format_of(load), in, gr_least(n, FIRST));
    return power < MOST_POWER ? power : MOST_POWER;
}

void gr_add_range(gr_load load, int power, const unsigned char *in, size_t n, gr_bin_sums *kept,
                  gr_exact *const sums[2])
{
    worker work;
    work.kept = kept;
    work.load = load;
    work.format = gr_format_of(load);
    work.sums[0] = sums[0];
    work.sums[1] = sums[1];
    /* Adding one by one uses integers only, so it works in any floating-point mode. */
    if (n <= FEW || !gr_plain_arithmetic()) {
        add_elements(&work, in, n);
        return;
    }
    work.flags = n >= GR_FLAGS_FROM && gr_flags_work();
    start_worker(&work, power);
    while (n > 0) {
        /* Once both sums are nan, no further element changes them. */
        if (sums[0]->flags & sums[1]->flags & GR_EXACT_NAN)
            break;
        size_t done = add_some(&work, in, n);
        in += done * (size_t)work.format.size;
        n -= done;
    }
    gr_scatter_empty(&work.scatter, sums);
}
