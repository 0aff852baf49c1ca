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
    FEW = 256,                        /* fewer windows of a row do not move in lanes */
    LANES = GR_MOST_VECTOR / 2,
    MERGES = 64 /* bound of the additions to `tail` beyond two per element */
};

typedef struct {
    int64_t start, end;
} span;

/* The sums of a window. `moves`: the elements that entered or left since the sums were started. */
typedef struct {
    span at;
    gr_proven3 sum, squares;
    double count, moves;
} window;

/* A window whose sums are in integers. `sums` is NULL until needed. */
typedef struct {
    gr_finish_sums *sums;
    size_t row;
    span at;
} exact_window;

typedef struct {
    const gr_rolling *of;
    size_t rows, tasks_of_row, windows; /* of a task: rows and windows; tasks along a row */
    bool failed;
} division;

typedef struct {
    double counts[STRIDE], results[BLOCK];
    bool few[BLOCK], unproven; /* too few elements: a nan; a result of the last block is unproven */
    double lanes[GR_ROLL_NUMBERS * LANES], planes[8 * STRIDE];
    exact_window exact[LANES];
} memory;

#define INLINE static inline __attribute__((always_inline))

static int64_t within(int64_t x, const gr_rolling *of)
{
    return x < 0 ? 0 : x < (int64_t)of->n ? x : (int64_t)of->n;
}

/* Window k of a row. */
INLINE span find(const gr_rolling *of, size_t k)
{
    int64_t last = (int64_t)k + 1 + of->after;
    return (span){of->starts ? of->starts[k] : within(last - of->size, of),
                  of->ends ? of->ends[k] : within(last, of)};
}

/* Moves window `at` by one element towards window `to`. Returns the element's index, or -1 if the
 * windows are equal. Sets *sign to 1 if the element enters, to -1 if it leaves. */
INLINE int64_t step(span *at, span to, int *sign)
{
    *sign = at->end < to.end || at->start > to.start ? 1 : -1;
    return at->end < to.end       ? at->end++
           : at->start > to.start ? --at->start
           : at->end > to.end     ? --at->end
           : at->start < to.start ? at->start++
                                  : -1;
}

/* Whether fewer elements enter or leave than are in the window. */
INLINE bool is_near(span at, span to)
{
    return llabs(to.start - at.start) + llabs(to.end - at.end) <= to.end - to.start;
}

/* Adds x, or takes it away if `sign` is -1. */
INLINE void add(bool has_squares, window *to, double x, double sign)
{
    const double least = 0x1p-960, lost = 0x1p-1000;
    double square = x * x;
    to->moves++;
    if (x != x)
        return;
    to->count += sign;
    gr_proven3_add(&to->sum, sign * x);
    if (!has_squares)
        return;
    gr_proven3_add(&to->squares, sign * square);
    gr_proven3_add_rest(&to->squares, sign * gr_rest_of_product(x, x, square));
    if (x != 0 && square < least)
        to->squares.bound += lost; /* the product's rounding error may be no float64 */
}

static void store(const gr_proven3 *sum, double moves, double *planes)
{
    planes[0] = sum->sum;
    planes[STRIDE] = sum->rest;
    planes[2 * STRIDE] = sum->tail;
    planes[3 * STRIDE] = (2 * moves + MERGES) * 0x1p-52 * (1 + 0x1p-50) * sum->bound;
}

/* Stores the sums of n windows. */
INLINE void add_windows(bool has_squares, const gr_rolling *of, const double *x, size_t first,
                        size_t n, window *from, memory *own)
{
    window now = *from;
    for (size_t i = 0; i < n; i++) {
        span to = find(of, first + i);
        int sign;
        if (!is_near(now.at, to))
            now = (window){.at = {to.start, to.start}};
        for (int64_t k; (k = step(&now.at, to, &sign)) >= 0;)
            add(has_squares, &now, x[k], sign);
        own->counts[i] = now.count;
        store(&now.sum, now.moves, own->planes + i);
        if (has_squares)
            store(&now.squares, now.moves, own->planes + 4 * STRIDE + i);
    }
    *from = now;
}

/* Windows that are finished together: consecutive ones of a row, from `first` on. Or 2^log lanes
 * have consecutive windows each. They begin with window `first` of consecutive rows or, if `apart`
 * is not 0, with the windows first, first + apart, ... of one row. */
typedef struct {
    const gr_rolling *of;
    memory *own;
    size_t row, first, apart; /* 0: the lanes are rows */
    int log;
} block;

INLINE size_t lane_of(const block *here, size_t i)
{
    return i & (((size_t)1 << here->log) - 1);
}

INLINE size_t number_of(const block *here, size_t i)
{
    return here->first + lane_of(here, i) * here->apart + (i >> here->log);
}

/* Moves the integers of the lane to the window, and finishes it. */
static bool finish_exactly(void *context, size_t i, double n, double mean, unsigned char *out)
{
    const block *here = context;
    const gr_rolling *of = here->of;
    const gr_format format = gr_format_of(GR_LOAD_f64);
    const uint64_t one = (uint64_t)1023 << 52; /* the bits of 1 */
    const size_t row = here->row + (here->apart ? 0 : lane_of(here, i));
    const double *x = of->in + (ptrdiff_t)row * of->row;
    const span to = find(of, number_of(here, i));
    exact_window *exact = &here->own->exact[lane_of(here, i)];
    bool is_new = !exact->sums;
    int sign;
    if (here->own->few[i])
        return true;
    here->own->unproven = true;
    if (is_new && !(exact->sums = malloc(sizeof *exact->sums)))
        return false;
    if (is_new || exact->row != row || !is_near(exact->at, to)) {
        gr_products_init(&exact->sums->first[0]);
        gr_products_init(&exact->sums->second[0]);
        exact->row = row;
        exact->at = (span){to.start, to.start};
    }
    for (int64_t k; (k = step(&exact->at, to, &sign)) >= 0;) {
        uint64_t bits = gr_element_bits(&x[k * of->step], sizeof *x);
        if (k % BLOCK == 0 && gr_ask_for_interrupts())
            break;
        if (gr_element_flag(bits, format)) /* a nan */
            continue;
        gr_products_add(&exact->sums->first[0], bits, one, sign, format);
        if (of->how.second_count)
            gr_products_add(&exact->sums->second[0], bits, bits, sign, format);
    }
    exact->sums->n = of->divides ? n : 1;
    exact->sums->mean = mean;
    gr_finish_in_integers(&of->how, exact->sums, out);
    return true;
}

/* Rounds the results of n windows, whose sums are in the planes. */
static bool finish_block(block *here, size_t n, unsigned char *out)
{
    const gr_rolling *of = here->of;
    memory *own = here->own;
    size_t size = gr_load_size(of->how.target);
    gr_finish_planes planes = {.first = {own->planes},
                               .second = {own->planes + 4 * STRIDE},
                               .n = of->divides ? own->counts : NULL,
                               .stride = STRIDE};
    double least = (double)of->least, free = of->divides ? of->how.ddof : -1;
    bool any = false;
    for (size_t i = 0; i < n; i++)
        any |= own->few[i] = own->counts[i] < least || own->counts[i] <= free;
    own->unproven = false;
    bool done = gr_finish_groups(&of->how, planes, false, n, out, finish_exactly, here);
    for (size_t i = 0; i < n && any; i++)
        if (own->few[i])
            gr_store_float(out + i * size, __builtin_nan(""), of->how.target);
    return done;
}

static unsigned char *result_at(const gr_rolling *of, size_t row, size_t k)
{
    return of->out + (ptrdiff_t)row * of->out_row + (ptrdiff_t)k * of->out_step;
}

/* Finishes windows first to end - 1 of a row. */
static bool finish_windows(const gr_rolling *of, size_t row, size_t first, size_t end, memory *own)
{
    const double *x = of->in + (ptrdiff_t)row * of->row;
    const span far = {INT64_MAX / 2, INT64_MAX / 2}; /* forces fresh sums */
    window now = {.at = far};
    own->unproven = false;
    for (size_t some; first < end && !gr_ask_for_interrupts(); first += some) {
        some = gr_least(end - first, BLOCK);
        if (own->unproven && now.moves > 2 * (double)(now.at.end - now.at.start))
            now.at = far;
        if (of->how.second_count)
            add_windows(true, of, x, first, some, &now, own);
        else
            add_windows(false, of, x, first, some, &now, own);
        block here = {of, own, row, first, 1, 0};
        if (!finish_block(&here, some, result_at(of, row, first)))
            return false;
    }
    return true;
}

/* Stores the results of `steps` windows of each lane. The first `skipped` lanes are not stored. */
static void store_lanes(const block *here, size_t steps, size_t skipped)
{
    const gr_rolling *of = here->of;
    const unsigned char *from = (const unsigned char *)here->own->results;
    const size_t lanes = (size_t)1 << here->log, size = gr_load_size(of->how.target);
    if (of->out_step == (ptrdiff_t)size) {
        for (size_t l = skipped; l < lanes; l++) {
            gr_spaced lane = {.in = from + l * size,
                              .in_step = (ptrdiff_t)(lanes * size),
                              .size = size,
                              .parts = 1};
            gr_gather(result_at(of, here->row + (here->apart ? 0 : l), number_of(here, l)), &lane,
                      steps);
        }
        return;
    }
    for (size_t i = 0; i < steps; i++)
        memcpy(result_at(of, here->row + skipped, here->first + i),
               from + (i * lanes + skipped) * size, (lanes - skipped) * size);
}

/* Finishes `count` windows of each lane, in windows of `size` elements. */
static bool finish_lanes(block here, size_t count, size_t skipped)
{
    gr_roll_kernel *roll = gr_proven_best()->roll;
    const gr_rolling *of = here.of;
    memory *own = here.own;
    const ptrdiff_t n = (ptrdiff_t)of->n;
    const size_t lanes = (size_t)1 << here.log, end = here.first + count;
    const double *x = of->in + (ptrdiff_t)here.row * of->row;
    gr_roll how = {.step = of->step,
                   .apart = here.apart ? (ptrdiff_t)here.apart * of->step : of->row,
                   .has_squares = of->how.second_count,
                   .stride = STRIDE,
                   .width = lanes};
    size_t moves = 0, least = 0; /* since the sums were started; least before a restart */
    own->unproven = true;
    for (size_t some; here.first < end && !gr_ask_for_interrupts(); here.first += some) {
        ptrdiff_t last = (ptrdiff_t)here.first + of->after, start = last + 1 - of->size;
        bool enters = last < n, leaves = start >= 0;
        some = gr_least(end - here.first, BLOCK / lanes);
        some = gr_least(some, enters ? (size_t)(n - last) : some);
        some = gr_least(some, leaves ? some : (size_t)-start);
        if (own->unproven && moves >= least) { /* restarts with all elements but the last */
            memset(own->lanes, 0, sizeof own->lanes);
            how.enters = x + (leaves ? start : 0) * of->step;
            how.leaves = NULL;
            moves = (size_t)((enters ? last : n) - (leaves ? start : 0));
            least = moves + (size_t)of->size / 2;
            roll(&how, moves, own->lanes, NULL, NULL);
        }
        moves += 2 * some;
        how.enters = enters ? x + last * of->step : NULL;
        how.leaves = leaves ? x + start * of->step : NULL;
        how.factor = (2 * (double)moves + MERGES) * 0x1p-52 * (1 + 0x1p-50);
        roll(&how, some, own->lanes, own->planes, own->counts);
        if (!finish_block(&here, some * lanes, (unsigned char *)own->results))
            return false;
        store_lanes(&here, some, skipped);
    }
    return true;
}

/* Finishes windows first to end - 1 of a row. Full windows are finished in lanes. */
static bool finish_row(const gr_rolling *of, size_t row, size_t first, size_t end, memory *own)
{
    size_t lanes = gr_proven_best()->vector / 2, before = (size_t)(of->size - 1 - of->after);
    size_t from = before > first ? before : first, after = (size_t)of->after;
    size_t to = of->n > after && of->n - after < end ? of->n - after : end;
    size_t per_lane = to > from ? (to - from) / lanes : 0;
    block full = {of, own, row, from, per_lane, __builtin_ctzll(lanes)};
    if (of->starts || of->n <= after || per_lane * lanes < FEW ||
        per_lane * lanes < (size_t)of->size)
        return finish_windows(of, row, first, end, own);
    return finish_windows(of, row, first, from, own) && finish_lanes(full, per_lane, 0) &&
           finish_windows(of, row, from + per_lane * lanes, end, own);
}

static void run_task(size_t task, void *context)
{
    division *all = context;
    const gr_rolling *of = all->of;
    size_t lanes = of->starts ? of->rows + 1 : gr_proven_best()->vector / 2;
    size_t row = task / all->tasks_of_row * all->rows, rows = gr_least(row + all->rows, of->rows);
    size_t first = task % all->tasks_of_row * all->windows;
    size_t end = gr_least(first + all->windows, of->windows), step = 1;
    memory *own = calloc(1, sizeof *own);
    bool done = own;
    gr_arithmetic before = gr_begin_plain();
    for (; row < rows && done && !gr_interrupted(); row += step) {
        if (of->rows < lanes) {
            done = finish_row(of, row, first, end, own);
            continue;
        }
        size_t at = gr_least(row, of->rows - lanes); /* the last lanes are those of the last rows */
        step = lanes;
        block side_by_side = {of, own, at, first, 0, __builtin_ctzll(lanes)};
        done = finish_lanes(side_by_side, end - first, row - at);
    }
    if (!done)
        __atomic_store_n(&all->failed, true, __ATOMIC_RELAXED);
    gr_end_plain(before);
    for (size_t l = 0; l < LANES && own; l++)
        free(own->exact[l].sums);
    free(own);
}

bool gr_rolling_results(const gr_rolling *of)
{
    size_t share = of->windows / (size_t)gr_thread_count(), rows = of->rows < LANES ? 1 : LANES;
    size_t task = TASK + gr_least(share, SIZES * (size_t)of->size);
    division all = {of, rows, (of->windows - 1) / task + 1, task, false};
    if (task > of->windows)
        all.rows *= task / of->windows / all.rows + 1;
    gr_parallel(of->rows * of->windows < TASK ? 1 : 0,
                ((of->rows - 1) / all.rows + 1) * all.tasks_of_row, run_task, &all);
    return !all.failed;
}
