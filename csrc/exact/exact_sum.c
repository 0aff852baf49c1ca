/* Splits an array into tasks and blocks, and chooses the method that adds up a block. */
#include "exact/exact.h"

#include "threads/pool.h"
#include "cpu/floating_point_mode.h"
#include "exact/extract.h"
#include "exact/format.h"

#include <stdalign.h>
#include <stdatomic.h>
#include <stdlib.h>

enum {
    /* Elements of a task; even, so that it starts with a real part. */
    LEAST_TASK = 1 << 13,
    MOST_TASK = 1 << 16,
    TASKS = 64, /* at most, as long as tasks do not exceed MOST_TASK */
    /* Below this, the thread pool costs more than it saves: some microseconds if its threads are
     * awake. */
    THREADS_FROM = 1 << 16,
    PLACES = 16,        /* slots for the partial sums of threads */
    FIRST = 512,        /* elements inspected for their size before any is added */
    FLAGS_FROM = 1024,  /* elements worth a misprediction of the flag: floating_point_mode.h */
    FEW = 8,            /* up to this many elements, single deposits are faster than bins */
    PATIENCE = 16,      /* blocks scattered after one that did not fit the bins */
    SCATTER_FROM = 128, /* elements worth clearing the tables for */
    WHOLE_FROM = 24,    /* elements worth bins for all exponents */
    WHOLE_TO = 512,     /* elements from which on scattering is faster, if both exist */
    STRANGE = 256,      /* elements added one by one if one of them is inf or nan */
    MOST_POWER = 1022 - GR_EXTRACT_LOG_ROWS - 1 /* extract.h: k_0 <= 1022 */
};

/* The units that one set of bins has taken. For most arrays this is the whole sum, in a tenth of
 * the bytes of an accumulator. */
typedef struct {
    bool any;
    int units[GR_EXTRACT_BINS];
    int64_t sum[GR_EXTRACT_BINS][2];
} bin_sums;

/* A slot for partial sums. There are several, so that threads do not wait for each other. */
typedef struct {
    alignas(64) atomic_bool taken;
    bool used; /* the sums are set up */
    bin_sums kept;
    gr_exact sums[2];
} place;

typedef struct {
    const unsigned char *data;
    size_t n, task;
    gr_load load;
    gr_format format;
    int components;
    int power; /* the first elements are below 2^power in size */
    place *places;
} sum_job;

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
    bool scatters;              /* long ones are scattered even if `whole` is not null */
    gr_load load;
    gr_format format;
    gr_exact *sums[2];
    int least_bins, most_bins; /* limits of `bins` */
    int bins;                  /* bins needed recently */
    int power;                 /* `tried` are for elements below 2^power in size */
    bool flags;                /* whether the inexact flag may be used */
    bin_set tried;
    bin_sums *kept; /* sums of bins, not yet added to `sums` */
    gr_scatter scatter;
} worker;

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

static void deposit(const bin_sums *kept, gr_exact *const sums[2])
{
    if (kept->any)
        add_bins(sums, kept->sum, kept->units, GR_EXTRACT_BINS);
}

/* Adds `more` to `kept`. Returns false, and changes nothing, if their bins differ or a sum would
 * overflow. */
static bool add_to_kept(bin_sums *kept, const bin_sums *more)
{
    if (!kept->any) {
        *kept = *more;
        return true;
    }
    if (!more->any)
        return true;
    bin_sums next = *kept;
    bool over = memcmp(kept->units, more->units, sizeof kept->units) != 0;
    for (int b = 0; b < GR_EXTRACT_BINS; b++)
        for (int i = 0; i < 2; i++)
            over |= __builtin_add_overflow(kept->sum[b][i], more->sum[b][i], &next.sum[b][i]);
    if (!over)
        *kept = next;
    return !over;
}

static void keep(bin_sums *kept, const bin_sums *more, gr_exact *const sums[2])
{
    if (add_to_kept(kept, more))
        return;
    deposit(kept, sums);
    *kept = *more;
}

static void keep_extracted(worker *work, const gr_extracted *got)
{
    bin_sums more = {.any = true};
    memcpy(more.units, work->tried.units, sizeof more.units);
    memcpy(more.sum, got->sum, (size_t)work->bins * sizeof *more.sum);
    keep(work->kept, &more, work->sums);
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

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
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
    int power = power_of(work->format, in, least(n, work->kernels->block));
    if (power > MOST_POWER || n < WHOLE_FROM)
        return false;
    if (power != work->power)
        try_power(work, power);
    else if (work->bins < work->most_bins)
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
        size_t asked = least(n - done, GR_EXTRACT_MOST);
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
    n = least(n, GR_EXTRACT_MOST);
    size_t done = work->whole(in, n, set.start, &got);
    add_bins(work->sums, got.sum, set.units, bins);
    size_t end = done + least(n - done, work->kernels->block);
    for (size_t piece; done < end; done += piece) {
        const unsigned char *from = in + done * (size_t)work->format.size;
        piece = least(end - done, STRANGE);
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
    n = least(n, PATIENCE * block);
    for (size_t left = n; left > 0;) {
        size_t piece = least(left, block);
        bool strange = peak_of(work->format, in, piece) == special;
        if (strange) {
            piece = least(left, STRANGE);
            strange = peak_of(work->format, in, piece) == special;
        }
        if (strange)
            add_elements(work, in, piece);
        else
            gr_scatter_add(&work->scatter, in, piece, work->load, &work->kernels->scatter,
                           work->sums);
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
    bool whole = work->whole && (!work->scatters || n < WHOLE_TO);
    if (n < (whole ? WHOLE_FROM : SCATTER_FROM)) {
        add_elements(work, in, n);
        return done + n;
    }
    return done + (whole ? add_whole(work, in, n) : scatter(work, in, n));
}

/* Chooses the kernels and the first bins. */
static void start_worker(worker *work, const sum_job *job)
{
    const gr_extract_kernels *kernels = work->kernels = gr_extract_best();
    work->scatter.used = false;
    work->least_bins = 1; /* enough for most data */
    work->most_bins = kernels->narrow_bins;
    switch (work->load) {
    case GR_LOAD_f16:
        work->extract = NULL;
        work->whole = kernels->whole_f16;
        work->scatters = false;
        return;
    case GR_LOAD_bf16:
        work->extract = kernels->bf16;
        work->whole = kernels->whole_bf16;
        work->scatters = kernels->scatter.bf16 != NULL;
        break;
    case GR_LOAD_f32:
        work->extract = kernels->f32;
        work->whole = kernels->whole_f32;
        work->scatters = kernels->scatter.f32 != NULL;
        break;
    default:
        work->extract = kernels->f64;
        work->whole = NULL;
        work->scatters = true;
        work->least_bins = 2;
        work->most_bins = GR_EXTRACT_BINS;
    }
    work->bins = work->least_bins;
    try_power(work, job->power);
}

/* Adds n elements to `kept` and `sums`. */
static void add_range(const sum_job *job, const unsigned char *in, size_t n, bin_sums *kept,
                      gr_exact *const sums[2])
{
    worker work;
    work.kept = kept;
    work.load = job->load;
    work.format = job->format;
    work.sums[0] = sums[0];
    work.sums[1] = sums[1];
    /* Adding one by one uses integers only, so it works in any floating-point mode. */
    if (n <= FEW || !gr_plain_arithmetic()) {
        add_elements(&work, in, n);
        return;
    }
    work.flags = n >= FLAGS_FROM && gr_flags_work();
    start_worker(&work, job);
    while (n > 0) {
        /* Once both sums are nan, no further element changes them. */
        if (sums[0]->flags & sums[1]->flags & GR_EXACT_NAN)
            break;
        size_t done = add_some(&work, in, n);
        in += done * (size_t)work.format.size;
        n -= done;
    }
    gr_scatter_empty(&work.scatter, job->load, sums);
}

/* Returns the power for the bins of the first elements, at most MOST_POWER. Returns 0 if no bins
 * will be used. */
static int first_power(const sum_job *job)
{
    if (job->n <= FEW || job->load == GR_LOAD_f16)
        return 0;
    int power = power_of(job->format, job->data, least(job->n, FIRST));
    return power < MOST_POWER ? power : MOST_POWER;
}

/* Whether anything has been added. */
static bool is_used(const gr_exact *acc)
{
    return acc->fill || acc->flags;
}

static void put_down(place *places, const bin_sums *kept, gr_exact own[2], int components)
{
    static atomic_uint numbers;
    static _Thread_local unsigned number; /* from 1: selects the first slot it tries */
    if (!number)
        number = atomic_fetch_add_explicit(&numbers, 1, memory_order_relaxed) + 1;
    unsigned i = number % PLACES;
    while (atomic_exchange_explicit(&places[i].taken, true, memory_order_acquire))
        i = (i + 1) % PLACES;
    gr_exact *sums[2] = {&own[0], &own[components - 1]};
    if (!add_to_kept(&places[i].kept, kept))
        deposit(kept, sums);
    bool used = is_used(sums[0]) || is_used(sums[1]);
    for (int c = 0; used && c < components; c++) {
        if (places[i].used)
            gr_exact_merge(&places[i].sums[c], &own[c]);
        else
            places[i].sums[c] = own[c];
    }
    places[i].used |= used;
    atomic_store_explicit(&places[i].taken, false, memory_order_release);
}

static void run_task(size_t task, void *context)
{
    sum_job *job = context;
    size_t first = task * job->task, n = job->n - first < job->task ? job->n - first : job->task;
    bin_sums kept = {.any = false};
    gr_exact own[2];
    gr_exact *sums[2] = {&own[0], &own[job->components - 1]};
    for (int c = 0; c < job->components; c++)
        gr_exact_init(&own[c]);
    add_range(job, job->data + first * (size_t)job->format.size, n, &kept, sums);
    put_down(job->places, &kept, own, job->components);
}

static void add_by_one(const sum_job *job, gr_exact *const sums[2])
{
    bin_sums kept = {.any = false};
    add_range(job, job->data, job->n, &kept, sums);
    deposit(&kept, sums);
}

/* The slots are allocated, as they are too large for the stacks of some threads. */
static void add_by_threads(sum_job *job, gr_exact *const sums[2], int threads)
{
    place *places = aligned_alloc(alignof(place), PLACES * sizeof *places);
    if (!places) {
        add_by_one(job, sums);
        return;
    }
    for (int i = 0; i < PLACES; i++) {
        atomic_init(&places[i].taken, false);
        places[i].used = places[i].kept.any = false;
    }
    job->places = places;
    job->task = LEAST_TASK;
    while (job->task < MOST_TASK && job->task * TASKS < job->n)
        job->task *= 2;
    gr_parallel(threads, (job->n - 1) / job->task + 1, run_task, job);
    bin_sums kept = {.any = false};
    for (int i = 0; i < PLACES; i++) {
        keep(&kept, &places[i].kept, sums);
        for (int c = 0; places[i].used && c < job->components; c++)
            gr_exact_merge(sums[c], &places[i].sums[c]);
    }
    deposit(&kept, sums);
    free(places);
}

void gr_exact_add_array(gr_exact *acc, const void *data, size_t n, gr_load load, int components,
                        int threads)
{
    sum_job job = {.data = data,
                   .n = n * (size_t)components,
                   .load = load,
                   .format = gr_format_of(load),
                   .components = components};
    gr_exact *sums[2] = {acc, acc + components - 1};
    for (int i = 0; i < components; i++)
        acc[i].count += n;
    /* Kernels clear this thread's inexact flag. If it was set before, it is set again at the end.
     */
    bool raised = job.n >= FLAGS_FROM && load != GR_LOAD_f16 && gr_inexact();
    job.power = first_power(&job);
    if (threads == 1 || job.n < THREADS_FROM)
        add_by_one(&job, sums);
    else
        add_by_threads(&job, sums, threads);
    if (raised)
        gr_raise_inexact();
}

void gr_exact_sum_array(const void *data, size_t n, gr_load load, int components, int threads,
                        gr_exact *out)
{
    for (int i = 0; i < components; i++)
        gr_exact_init(&out[i]);
    gr_exact_add_array(out, data, n, load, components, threads);
}

/* Copies n elements of `size` bytes to contiguous memory. There is a function for each size, so
 * that each copy is a load and a store. */
static inline __attribute__((always_inline)) void
pack_size(unsigned char *out, const unsigned char *in, size_t n, ptrdiff_t stride, size_t size)
{
    for (size_t i = 0; i < n; i++)
        memcpy(out + i * size, in + (ptrdiff_t)i * stride, size);
}

static void pack(unsigned char *out, const unsigned char *in, size_t n, ptrdiff_t stride,
                 size_t size)
{
    switch (size) {
    case 2: pack_size(out, in, n, stride, 2); break;
    case 4: pack_size(out, in, n, stride, 4); break;
    case 8: pack_size(out, in, n, stride, 8); break;
    default: pack_size(out, in, n, stride, 16); break;
    }
}

void gr_exact_add_strided(gr_exact *acc, const void *data, size_t n, ptrdiff_t stride, gr_load load,
                          int components)
{
    enum { BUFFER = 1 << 15 };
    unsigned char buffer[BUFFER];
    size_t size = gr_load_size(load) * (size_t)components, most = BUFFER / size;
    for (size_t first = 0; first < n; first += most) {
        size_t piece = n - first < most ? n - first : most;
        pack(buffer, (const unsigned char *)data + (ptrdiff_t)first * stride, piece, stride, size);
        gr_exact_add_array(acc, buffer, piece, load, components, 1);
    }
}
