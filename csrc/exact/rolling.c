/* Sums, means and variances of moving windows. From one window to the next, elements enter and
 * leave three float64 numbers, which mostly hold the sum without an error (exact/proven.h).
 * Unproven results are computed from integers, and the next block of windows starts afresh. Windows
 * of one size move in all lanes of a vector, each lane through its own part of the task. */
#include "exact/rolling.h"

#include "cpu/floating_point_mode.h"
#include "cpu/gather.h"
#include "cpu/store.h"
#include "exact/axis_exact_job.h"
#include "exact/finish_integers.h"
#include "exact/proven_kernels.h"
#include "shared/sizes.h"
#include "threads/interrupts.h"
#include "threads/pool.h"
#include "threads/processors.h"

#include <stdlib.h>
#include <string.h>

enum {
    BLOCK = 256,                      /* windows that are finished at once */
    STRIDE = BLOCK + GR_FINISH_BATCH, /* of planes */
    TASK = 1 << 14,                   /* least number of windows of a task, .. */
    SIZES = 32,                       /* .. plus this many for each element of a window */
    FEW = 256,                        /* fewer windows do not move in lanes */
    MERGES = 64                       /* bound of the additions to `tail` beyond two per element */
};

/* The sums of a window. */
typedef struct {
    int64_t start, end;
    gr_proven3 sum, squares;
    double moves; /* elements that entered or left since the sums began */
} window;

typedef struct {
    const gr_rolling *of;
    size_t task, per_row; /* windows of a task; tasks */
    bool failed;
} division;

typedef struct {
    double n[BLOCK], results[BLOCK];
    bool few[BLOCK], unproven; /* too few elements: a nan; a result of the last block is unproven */
    double lanes[GR_ROLL_NUMBERS * GR_MOST_VECTOR / 2];
    double planes[8 * STRIDE], row[4 * GR_PROVEN_ROWS * GR_MOST_VECTOR / 2];
} memory;

#define INLINE static inline __attribute__((always_inline))

static int64_t within(int64_t x, const gr_rolling *of)
{
    return x < 0 ? 0 : x < (int64_t)of->n ? x : (int64_t)of->n;
}

/* Window k of a row. */
INLINE void find(const gr_rolling *of, size_t k, int64_t *start, int64_t *end)
{
    int64_t last = (int64_t)k + 1 + of->after;
    *start = of->starts ? of->starts[k] : within(last - of->size, of);
    *end = of->ends ? of->ends[k] : within(last, of);
}

/* Adds x, or takes it away if `sign` is -1. */
INLINE void add(bool has_squares, gr_proven3 *sum, gr_proven3 *squares, double x, double sign)
{
    const double least = 0x1p-960, lost = 0x1p-1000;
    double square = x * x;
    gr_proven3_add(sum, sign * x);
    if (!has_squares)
        return;
    gr_proven3_add(squares, sign * square);
    gr_proven3_add_rest(squares, sign * gr_rest_of_product(x, x, square));
    if (x != 0 && square < least)
        squares->bound += lost; /* the product's rounding error may be no float64 */
}

/* Computes the sums of a window from its elements. */
static void begin(const gr_rolling *of, const double *x, int64_t start, int64_t end, window *to,
                  memory *own)
{
    const gr_proven_kernels *kernels = gr_proven_best();
    size_t n = end > start ? (size_t)(end - start) : 0;
    size_t stride = GR_PROVEN_ROWS * kernels->vector / 2;
    *to = (window){.start = start, .end = start + (int64_t)n, .moves = (double)n};
    if (n == 0)
        return;
    const unsigned char *in = (const unsigned char *)(x + start);
    gr_term_rows squares = {GR_TERM_SQUARE, GR_LOAD_f64, in, in, 0, 0, n};
    kernels->rows_f64(in, 0, n, 1, 1, own->row);
    to->sum = gr_sum_at(own->row, stride);
    if (!of->how.second_count)
        return;
    kernels->term_rows(&squares, 1, own->row);
    to->squares = gr_sum_at(own->row, stride);
}

static void store(const gr_proven3 *sum, double moves, double *planes)
{
    planes[0] = sum->sum;
    planes[STRIDE] = sum->rest;
    planes[2 * STRIDE] = sum->tail;
    planes[3 * STRIDE] = (2 * moves + MERGES) * 0x1p-52 * (1 + 0x1p-50) * sum->bound;
}

/* Moves to the next n windows and stores their sums. Returns how many it moved to: fewer if it is
 * better to compute the next window's sums afresh. */
INLINE size_t move(bool has_squares, const gr_rolling *of, const double *x, size_t first, size_t n,
                   window *to, double *planes)
{
    window at = *to;
    size_t i = 0;
    for (; i < n; i++, planes++) {
        int64_t start, end;
        find(of, first + i, &start, &end);
        int64_t moves = start - at.start + end - at.end;
        if (start < at.start || end < at.end || moves > end - start)
            break;
        for (; at.end < end; at.end++)
            add(has_squares, &at.sum, &at.squares, x[at.end], 1);
        for (; at.start < start; at.start++)
            add(has_squares, &at.sum, &at.squares, x[at.start], -1);
        at.moves += (double)moves;
        store(&at.sum, at.moves, planes);
        if (has_squares)
            store(&at.squares, at.moves, planes + 4 * STRIDE);
    }
    *to = at;
    return i;
}

/* Stores the sums of n windows. */
static void add_windows(const gr_rolling *of, const double *x, size_t first, size_t n, window *at,
                        memory *own)
{
    int64_t start, end;
    for (size_t i = 0; i < n;) {
        double *planes = own->planes + i;
        i += of->how.second_count ? move(true, of, x, first + i, n - i, at, planes)
                                  : move(false, of, x, first + i, n - i, at, planes);
        if (i == n)
            break;
        find(of, first + i, &start, &end);
        begin(of, x, start, end, at, own);
    }
}

/* Windows that are finished together: consecutive ones from `first` on; or, with 2^log lanes,
 * first, first + apart, ..., then the window after each. */
typedef struct {
    const gr_rolling *of;
    memory *own;
    size_t row, first, apart;
    int log;
} block;

INLINE size_t number_of(const block *here, size_t i)
{
    return here->first + (i & (((size_t)1 << here->log) - 1)) * here->apart + (i >> here->log);
}

static bool finish_exactly(void *context, size_t i, double n, double mean, unsigned char *out)
{
    const block *here = context;
    const gr_rolling *of = here->of;
    const gr_format format = gr_format_of(GR_LOAD_f64);
    const double one = 1, *x = of->in + here->row * of->n;
    int64_t start, end;
    if (here->own->few[i])
        return true;
    here->own->unproven = true;
    find(of, number_of(here, i), &start, &end);
    gr_finish_sums *sums = malloc(sizeof *sums);
    if (!sums)
        return false;
    gr_products_init(&sums->first[0]);
    gr_products_init(&sums->second[0]);
    sums->n = n;
    sums->mean = mean;
    for (int64_t k = start; k < end; k++) {
        uint64_t bits = gr_element_bits(&x[k], sizeof *x);
        if (k % BLOCK == 0 && gr_ask_for_interrupts())
            break;
        gr_products_add(&sums->first[0], bits, gr_element_bits(&one, sizeof one), 1, format);
        gr_products_add(&sums->second[0], bits, bits, 1, format);
    }
    gr_finish_in_integers(&of->how, sums, out);
    free(sums);
    return true;
}

/* Reads the element counts of n windows, or of the first one if all are equal. */
static void count(const block *here, bool one_n, size_t n)
{
    const gr_rolling *of = here->of;
    memory *own = here->own;
    for (size_t i = 0; i < (one_n ? 1 : n); i++) {
        int64_t start, end;
        size_t k = number_of(here, i);
        find(of, k, &start, &end);
        int64_t some = of->counts ? of->counts[here->row * of->windows + k] : end - start;
        own->n[i] = of->divides ? (double)some : 1;
        own->few[i] = some < of->least || (of->divides && (double)some <= of->how.ddof);
    }
    if (one_n)
        memset(own->few, own->few[0], n);
}

/* Makes results of the sums of n windows. */
static bool finish_block(block *here, bool one_n, size_t n, unsigned char *out)
{
    const gr_rolling *of = here->of;
    memory *own = here->own;
    size_t size = gr_load_size(of->how.target);
    gr_finish_planes planes = {.first = {own->planes},
                               .second = {own->planes + 4 * STRIDE},
                               .n = own->n,
                               .stride = STRIDE};
    count(here, one_n, n);
    own->unproven = false;
    if (!gr_finish_groups(&of->how, planes, one_n, n, out, finish_exactly, here))
        return false;
    for (size_t i = 0; i < n; i++)
        if (own->few[i])
            gr_store_float(out + i * size, __builtin_nan(""), of->how.target);
    return true;
}

static unsigned char *result_at(const gr_rolling *of, size_t row, size_t k)
{
    return of->out + (row * of->windows + k) * gr_load_size(of->how.target);
}

/* Finishes windows first to end - 1 of a row. */
static bool finish_windows(const gr_rolling *of, size_t row, size_t first, size_t end, memory *own)
{
    const double *x = of->in + row * of->n;
    window at = {0};
    own->unproven = true;
    for (size_t some; first < end && !gr_ask_for_interrupts(); first += some) {
        some = gr_least(end - first, BLOCK);
        if (own->unproven)
            at.start = INT64_MAX / 2; /* forces fresh sums */
        add_windows(of, x, first, some, &at, own);
        block here = {of, own, row, first, 0, 0};
        if (!finish_block(&here, false, some, result_at(of, row, first)))
            return false;
    }
    return true;
}

/* The same for windows of `size` elements, `per_lane` in each lane. */
static bool finish_lanes(const gr_rolling *of, size_t row, size_t first, size_t per_lane,
                         memory *own)
{
    gr_roll_kernel *roll = gr_proven_best()->roll;
    const size_t lanes = gr_proven_best()->vector / 2, size = gr_load_size(of->how.target);
    gr_roll how = {.apart = per_lane, .has_squares = of->how.second_count, .stride = STRIDE};
    block here = {of, own, row, first, per_lane, __builtin_ctzll(lanes)};
    size_t moves = 0;
    own->unproven = true;
    for (size_t i = 0, some; i < per_lane && !gr_ask_for_interrupts(); i += some) {
        here.first = first + i;
        how.in = of->in + row * of->n + ((ptrdiff_t)here.first + of->after + 1 - of->size);
        if (own->unproven) { /* the elements of the first windows but their last */
            memset(own->lanes, 0, sizeof own->lanes);
            how.before = 0;
            moves = (size_t)of->size - 1;
            roll(&how, moves, own->lanes, NULL);
        }
        some = gr_least(per_lane - i, BLOCK / lanes);
        moves += 2 * some;
        how.before = (size_t)of->size - 1;
        how.factor = (2 * (double)moves + MERGES) * 0x1p-52 * (1 + 0x1p-50);
        roll(&how, some, own->lanes, own->planes);
        if (!finish_block(&here, !of->counts, some * lanes, (unsigned char *)own->results))
            return false;
        for (size_t l = 0; l < lanes; l++) {
            gr_spaced from = {.in = (unsigned char *)own->results + l * size,
                              .in_step = (ptrdiff_t)(lanes * size),
                              .size = size,
                              .parts = 1};
            gr_gather(result_at(of, row, here.first + l * per_lane), &from, some);
        }
    }
    return true;
}

/* Finishes windows first to end - 1 of a row. Full windows are finished in lanes. */
static bool finish_range(const gr_rolling *of, size_t row, size_t first, size_t end, memory *own)
{
    size_t lanes = gr_proven_best()->vector / 2, before = (size_t)(of->size - 1 - of->after);
    size_t from = before > first ? before : first, after = (size_t)of->after;
    size_t to = of->n > after && of->n - after < end ? of->n - after : end;
    size_t per_lane = to > from ? (to - from) / lanes : 0;
    if (of->starts || of->n <= after || per_lane * lanes < FEW ||
        per_lane * lanes < (size_t)of->size)
        return finish_windows(of, row, first, end, own);
    return finish_windows(of, row, first, from, own) &&
           finish_lanes(of, row, from, per_lane, own) &&
           finish_windows(of, row, from + per_lane * lanes, end, own);
}

static void run_task(size_t task, void *context)
{
    division *all = context;
    const gr_rolling *of = all->of;
    size_t first = task % all->per_row * all->task;
    memory *own = calloc(1, sizeof *own);
    gr_arithmetic before = gr_begin_plain();
    if (!own || !finish_range(of, task / all->per_row, first,
                              gr_least(first + all->task, of->windows), own))
        __atomic_store_n(&all->failed, true, __ATOMIC_RELAXED);
    gr_end_plain(before);
    free(own);
}

bool gr_rolling_results(const gr_rolling *of)
{
    size_t share = of->windows / (size_t)gr_thread_count();
    size_t task = TASK + gr_least(share, SIZES * (size_t)of->size);
    division all = {of, task, (of->windows - 1) / task + 1, false};
    gr_parallel(of->rows * of->windows < TASK ? 1 : 0, of->rows * all.per_row, run_task, &all);
    return !all.failed;
}
