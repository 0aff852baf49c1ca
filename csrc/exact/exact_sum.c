/* How an array is split into tasks and blocks, and which way a block is added up. */
#include "exact.h"

#include "../cpu/cpu_sum.h"
#include "../threads/pool.h"
#include "extract.h"
#include "format.h"

#include <float.h>
#include <stdalign.h>
#include <stdatomic.h>

enum {
    /* Elements of a task; even, so that it starts with a real part. */
    LEAST_TASK = 1 << 13,
    MOST_TASK = 1 << 16,
    TASKS = 64, /* to share out among threads, where that takes none of another size */
    /* Below this, a region of the pool costs more than it saves: some microseconds if its threads
     * are awake. */
    THREADS_FROM = 1 << 16,
    PLACES = 16,        /* where threads put down what they have added up */
    FEW = 8,            /* elements that are deposited sooner than bins are set up and emptied */
    PATIENCE = 16,      /* blocks that are scattered from one on that did not fit the bins */
    SCATTER_FROM = 128, /* elements worth clearing the tables for */
    WHOLE_FROM = 24,    /* and worth bins for all exponents */
    MOST_POWER = 1022 - GR_EXTRACT_LOG_ROWS - 1 /* extract.h: k_0 <= 1022 */
};

/* Several of them, so that no thread waits for another one. */
typedef struct {
    alignas(64) atomic_bool taken;
    bool used; /* the sums are set up */
    gr_exact sums[2];
} place;

typedef struct {
    const unsigned char *data;
    size_t n, task;
    gr_load load;
    gr_format format;
    int components;
    place *places;
} sum_job;

/* Where bins start, and what they count in. */
typedef struct {
    double start[GR_EXTRACT_WIDE_BINS];
    int units[GR_EXTRACT_WIDE_BINS];
} bin_set;

/* One thread's work on a stretch of the array. The sums are of even and odd elements, or the same
 * one twice. */
typedef struct {
    const gr_extract_kernels *kernels;
    gr_extract_kernel *extract; /* null: not worth trying */
    gr_whole_kernel *whole;     /* null: blocks that do not fit are scattered */
    gr_load load;
    gr_format format;
    gr_exact *sums[2];
    int most_bins; /* that are tried */
    int bins;      /* that the last block needed */
    int power;     /* `tried` are for elements below 2^power in size */
    bin_set tried;
    gr_scatter scatter;
} worker;

static const gr_extract_kernels *best_kernels(void)
{
#ifdef __x86_64__
    const char *name = gr_cpu_instructions();
    if (strcmp(name, "avx512") == 0)
        return &gr_extract_avx512;
    if (strcmp(name, "avx2") == 0)
        return &gr_extract_avx2;
#endif
    return &gr_extract_baseline;
}

/* Whether this thread's additions round to nearest and keep subnormals. Other code in the process
 * may have told the processor otherwise (-ffast-math libraries do); integers do not mind. */
static bool plain_arithmetic(void)
{
    if (FLT_EVAL_METHOD == 2 || FLT_EVAL_METHOD < 0) /* x87: wider than float64 */
        return false;
    volatile double least = 0x1p-1074, one = 1, small = 0x1p-60, normal = DBL_MIN;
    if (least + least == 0 || normal - normal / 4 == 0)
        return false;
    return one + small == 1 && -one - small == -1 && one - small == 1 && small - one == -1;
}

static void add_elements(worker *work, const unsigned char *in, size_t n)
{
    size_t size = (size_t)work->format.size;
    for (size_t i = 0; i < n; i++)
        gr_add_element(work->sums[i % 2], gr_element_bits(in + i * size, size), work->format);
}

static void add_extracted(worker *work, const gr_extracted *got, int bins, const bin_set *set)
{
    for (int b = 0; b < bins; b++)
        for (int i = 0; i < 2; i++)
            gr_exact_add_scaled(work->sums[i], got->sum[b][i], set->units[b]);
}

/* 3 * 2^(exponent - 1), for a normal number's exponent. */
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

/* The bins are for the largest exponents met of late, which are not known for this block before it
 * has been read. If they were not the right ones, it is read again; by then it is in the cache. */
static bool extract_block(worker *work, const unsigned char *in, size_t n)
{
    gr_extracted got;
    while (!work->extract(in, n, work->bins, work->tried.start, (unsigned)(work->power + 1022),
                          &got)) {
        int power = got.peak > 0 ? (int)got.peak - 1022 : -1021;
        if (power > MOST_POWER) /* inf and nan, too */
            return false;
        if (power > work->power || (power < work->power && got.left))
            try_power(work, power);
        else if (work->bins < work->most_bins)
            work->bins++;
        else
            return false;
    }
    add_extracted(work, &got, work->bins, &work->tried);
    return true;
}

/* The greatest exponent field. */
static int peak_of(const worker *work, const unsigned char *in, size_t n)
{
    size_t size = (size_t)work->format.size;
    /* The high word of each element, without its sign. */
    uint64_t mask = size == 8   ? 0x7fff000000000000
                    : size == 4 ? 0x7fff00007fff0000
                                : 0x7fff7fff7fff7fff;
    return (int)(work->kernels->peak(in, n * size, mask) >> (15 - work->format.exponent));
}

/* Of the elements of the first block, if bins can be made for it. */
static int first_power(const worker *work, const unsigned char *in, size_t n)
{
    /* An exponent field of 1 is below 2^(unit + fraction + 1), and so is 0. */
    int top = peak_of(work, in, n);
    int power = work->format.unit + work->format.fraction + (top > 0 ? top : 1);
    return power < MOST_POWER ? power : MOST_POWER;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Adds some elements, and says how many, with bins for all exponents. */
static size_t add_whole(worker *work, const unsigned char *in, size_t n)
{
    bool half = work->load == GR_LOAD_f16;
    int bins = half ? GR_EXTRACT_HALF_BINS : GR_EXTRACT_WIDE_BINS;
    int power = half ? GR_EXTRACT_HALF_POWER : GR_EXTRACT_WIDE_POWER;
    bin_set set;
    gr_extracted got;
    make_bins(&set, bins, power, half ? GR_EXTRACT_HALF_LOG_ROWS : GR_EXTRACT_WIDE_LOG_ROWS);
    n = least(n, GR_EXTRACT_WHOLE_MOST);
    size_t done = work->whole(in, n, set.start, &got);
    add_extracted(work, &got, bins, &set);
    size_t strange = least(n - done, work->kernels->block);
    add_elements(work, in + done * (size_t)work->format.size, strange);
    return done + strange;
}

static size_t scatter(worker *work, const unsigned char *in, size_t n)
{
    int special = (1 << work->format.exponent) - 1;
    size_t size = (size_t)work->format.size, block = work->kernels->block;
    n = least(n, PATIENCE * block);
    for (size_t left = n; left > 0;) {
        size_t piece = least(left, block);
        if (peak_of(work, in, piece) == special)
            add_elements(work, in, piece);
        else
            gr_scatter_add(&work->scatter, in, piece, work->load, &work->kernels->scatter,
                           work->sums);
        in += piece * size;
        left -= piece;
    }
    return n;
}

/* Adds some elements, and says how many. */
static size_t add_some(worker *work, const unsigned char *in, size_t n)
{
    size_t block = least(n, work->kernels->block);
    if (work->extract) {
        if (extract_block(work, in, block))
            return block;
        if (block < (work->whole ? WHOLE_FROM : SCATTER_FROM)) {
            add_elements(work, in, block);
            return block;
        }
    }
    return work->whole ? add_whole(work, in, n) : scatter(work, in, n);
}

/* Which kernels, and with which bins to begin. */
static void start_worker(worker *work, const unsigned char *in, size_t n)
{
    const gr_extract_kernels *kernels = work->kernels = best_kernels();
    work->scatter.used = false;
    work->bins = 1; /* the fewest that most data fits */
    work->most_bins = kernels->narrow_bins;
    switch (work->load) {
    case GR_LOAD_f16:
        work->extract = NULL;
        work->whole = kernels->whole_f16;
        return;
    case GR_LOAD_bf16:
        work->extract = kernels->bf16;
        work->whole = kernels->whole_bf16;
        break;
    case GR_LOAD_f32:
        work->extract = kernels->f32;
        work->whole = kernels->whole_f32;
        break;
    default:
        work->extract = kernels->f64;
        work->whole = NULL;
        work->bins = 2;
        work->most_bins = GR_EXTRACT_BINS;
    }
    try_power(work, first_power(work, in, least(n, kernels->block)));
}

static void add_range(const sum_job *job, const unsigned char *in, size_t n,
                      gr_exact *const sums[2])
{
    worker work;
    work.load = job->load;
    work.format = job->format;
    work.sums[0] = sums[0];
    work.sums[1] = sums[1];
    if (n <= FEW || !plain_arithmetic()) {
        add_elements(&work, in, n);
        return;
    }
    start_worker(&work, in, n);
    while (n > 0) {
        /* Once a nan has been met, nothing else matters. */
        if (sums[0]->flags & sums[1]->flags & GR_EXACT_NAN)
            break;
        size_t done = add_some(&work, in, n);
        in += done * (size_t)work.format.size;
        n -= done;
    }
    gr_scatter_empty(&work.scatter, job->load, sums);
}

static void put_down(place *places, const gr_exact own[2], int components)
{
    static atomic_uint numbers;
    static _Thread_local unsigned number; /* of this thread, from 1: where it looks first */
    if (!number)
        number = atomic_fetch_add_explicit(&numbers, 1, memory_order_relaxed) + 1;
    unsigned i = number % PLACES;
    while (atomic_exchange_explicit(&places[i].taken, true, memory_order_acquire))
        i = (i + 1) % PLACES;
    for (int c = 0; c < components; c++) {
        if (places[i].used)
            gr_exact_merge(&places[i].sums[c], &own[c]);
        else
            places[i].sums[c] = own[c];
    }
    places[i].used = true;
    atomic_store_explicit(&places[i].taken, false, memory_order_release);
}

static void run_task(size_t task, void *context)
{
    sum_job *job = context;
    size_t first = task * job->task, n = job->n - first < job->task ? job->n - first : job->task;
    gr_exact own[2];
    gr_exact *sums[2] = {&own[0], &own[job->components - 1]};
    for (int c = 0; c < job->components; c++)
        gr_exact_init(&own[c]);
    add_range(job, job->data + first * (size_t)job->format.size, n, sums);
    put_down(job->places, own, job->components);
}

/* Not inlined, to keep its large frame out of small sums. */
static __attribute__((noinline)) void add_by_threads(sum_job *job, gr_exact *acc, int threads)
{
    place places[PLACES];
    for (int i = 0; i < PLACES; i++) {
        atomic_init(&places[i].taken, false);
        places[i].used = false;
    }
    job->places = places;
    job->task = LEAST_TASK;
    while (job->task < MOST_TASK && job->task * TASKS < job->n)
        job->task *= 2;
    gr_parallel(threads, (job->n - 1) / job->task + 1, run_task, job);
    for (int i = 0; i < PLACES; i++)
        for (int c = 0; places[i].used && c < job->components; c++)
            gr_exact_merge(&acc[c], &places[i].sums[c]);
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
    if (threads == 1 || job.n < THREADS_FROM)
        add_range(&job, data, job.n, sums);
    else
        add_by_threads(&job, acc, threads);
}

void gr_exact_sum_array(const void *data, size_t n, gr_load load, int components, int threads,
                        gr_exact *out)
{
    for (int i = 0; i < components; i++)
        gr_exact_init(&out[i]);
    gr_exact_add_array(out, data, n, load, components, threads);
}

/* Copies n elements of `size` bytes side by side; a function for each size, so that each copy is
 * a load and a store. */
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
