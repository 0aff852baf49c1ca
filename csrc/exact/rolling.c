/* From one window to the next, elements enter the sums and leave them. Three float64 numbers hold
 * such a sum without an error, mostly (exact/proven.h). Where they do not, the next block of
 * windows begins anew. A result that is not proven is made of integers. */
#include "exact/rolling.h"

#include "cpu/axis_job.h"
#include "cpu/floating_point_mode.h"
#include "exact/finish_integers.h"
#include "exact/proven_kernels.h"
#include "shared/sizes.h"
#include "threads/interrupts.h"
#include "threads/pool.h"

#include <stdlib.h>
#include <string.h>

enum {
    BLOCK = 256,                      /* windows that are finished at once */
    STRIDE = BLOCK + GR_FINISH_BATCH, /* of planes */
    TASK = 1 << 14,                   /* windows of a task */
    MERGES = 64                       /* more additions to `tail` than two per element */
};

/* The sums of a window. */
typedef struct {
    int64_t start, end;
    gr_proven3 sum, squares;
    double moves; /* elements that entered or left since the sums began */
} window;

typedef struct {
    const gr_rolling *of;
    size_t per_row;
    bool failed;
} division;

typedef struct {
    double planes[8 * STRIDE], row[4 * GR_PROVEN_ROWS * GR_MOST_VECTOR / 2];
} memory;

#define INLINE static inline __attribute__((always_inline))

typedef enum { NO_SQUARES, NARROW_SQUARES, WIDE_SQUARES } square_kind;

/* Adds x, or takes it away if `sign` is -1. */
INLINE void add(square_kind kind, gr_proven3 *sum, gr_proven3 *squares, double x, double sign)
{
    const double least = 0x1p-960, lost = 0x1p-1000;
    double square = x * x;
    gr_proven3_add(sum, sign * x);
    if (kind != NO_SQUARES)
        gr_proven3_add(squares, sign * square);
    if (kind == WIDE_SQUARES)
        gr_proven3_add_rest(squares, sign * gr_rest_of_product(x, x, square));
    if (kind == WIDE_SQUARES && x != 0 && square < least)
        squares->bound += lost; /* its error may be no float64 */
}

/* Begins the sums of a window anew. */
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
    to->sum =
        (gr_proven3){own->row[0], own->row[stride], own->row[2 * stride], own->row[3 * stride]};
    if (!of->how.second_count)
        return;
    kernels->term_rows(&squares, 1, own->row);
    to->squares =
        (gr_proven3){own->row[0], own->row[stride], own->row[2 * stride], own->row[3 * stride]};
}

static int64_t size_of(int64_t x)
{
    return x < 0 ? -x : x;
}

static void store(const gr_proven3 *sum, double moves, double *planes)
{
    planes[0] = sum->sum;
    planes[STRIDE] = sum->rest;
    planes[2 * STRIDE] = sum->tail;
    planes[3 * STRIDE] = (2 * moves + MERGES) * 0x1p-52 * (1 + 0x1p-50) * sum->bound;
}

/* Moves to n windows one after the other, and stores their sums. Returns how many these are: fewer
 * if the sums of the next one had better begin anew. */
INLINE size_t move(square_kind kind, const double *x, const int64_t *starts, const int64_t *ends,
                   size_t n, window *to, double *planes)
{
    window at = *to;
    size_t i = 0;
    for (; i < n; i++, planes++) {
        int64_t start = starts[i], end = ends[i];
        int64_t moves = size_of(start - at.start) + size_of(end - at.end);
        if (moves > end - start)
            break;
        for (; at.end < end; at.end++)
            add(kind, &at.sum, &at.squares, x[at.end], 1);
        while (at.start > start)
            add(kind, &at.sum, &at.squares, x[--at.start], 1);
        while (at.end > end)
            add(kind, &at.sum, &at.squares, x[--at.end], -1);
        for (; at.start < start; at.start++)
            add(kind, &at.sum, &at.squares, x[at.start], -1);
        at.moves += (double)moves;
        store(&at.sum, at.moves, planes);
        if (kind != NO_SQUARES)
            store(&at.squares, at.moves, planes + 4 * STRIDE);
    }
    *to = at;
    return i;
}

/* Stores the sums of n windows. */
static void add_windows(const gr_rolling *of, const double *x, size_t first, size_t n, window *at,
                        memory *own)
{
    const int64_t *starts = of->starts + first, *ends = of->ends + first;
    for (size_t i = 0; i < n;) {
        double *planes = own->planes + i;
        i += !of->how.second_count ? move(NO_SQUARES, x, starts + i, ends + i, n - i, at, planes)
             : of->is_wide         ? move(WIDE_SQUARES, x, starts + i, ends + i, n - i, at, planes)
                           : move(NARROW_SQUARES, x, starts + i, ends + i, n - i, at, planes);
        if (i < n)
            begin(of, x, starts[i], ends[i], at, own);
    }
}

/* The windows of a block, for those that are not proven. */
typedef struct {
    const gr_rolling *of;
    const double *x;
    size_t first;
} block;

static bool finish_exactly(void *context, size_t i, double n, double mean, unsigned char *out)
{
    const block *here = context;
    const gr_rolling *of = here->of;
    const gr_format format = gr_format_of(GR_LOAD_f64);
    const double one = 1;
    gr_finish_sums *sums = malloc(sizeof *sums);
    if (!sums)
        return false;
    gr_products_init(&sums->first[0]);
    gr_products_init(&sums->second[0]);
    sums->n = n;
    sums->mean = mean;
    int64_t end = of->ends[here->first + i];
    for (int64_t k = of->starts[here->first + i]; k < end && !gr_ask_for_interrupts(); k++) {
        uint64_t bits = gr_element_bits(&here->x[k], sizeof here->x[k]);
        gr_products_add(&sums->first[0], bits, gr_element_bits(&one, sizeof one), 1, format);
        gr_products_add(&sums->second[0], bits, bits, 1, format);
    }
    gr_finish_in_integers(&of->how, sums, out);
    free(sums);
    return true;
}

static bool is_sure(const window *of)
{
    return of->sum.bound == 0 && of->squares.bound == 0;
}

/* Finishes windows first to end - 1 of a row. */
static bool finish_windows(const gr_rolling *of, size_t row, size_t first, size_t end, memory *own)
{
    const double *x = of->in + row * of->n;
    size_t size = gr_load_size(of->how.target);
    window at;
    begin(of, x, of->starts[first], of->ends[first], &at, own);
    for (size_t some; first < end && !gr_ask_for_interrupts(); first += some) {
        some = gr_least(end - first, BLOCK);
        if (!is_sure(&at))
            begin(of, x, of->starts[first], of->ends[first], &at, own);
        add_windows(of, x, first, some, &at, own);
        gr_finish_planes planes = {.first = {own->planes},
                                   .second = {own->planes + 4 * STRIDE},
                                   .n = of->counts + row * of->windows + first,
                                   .stride = STRIDE};
        block here = {of, x, first};
        unsigned char *out = of->out + (row * of->windows + first) * size;
        if (!gr_finish_groups(&of->how, planes, false, some, out, finish_exactly, &here))
            return false;
    }
    return true;
}

static void run_task(size_t task, void *context)
{
    division *all = context;
    const gr_rolling *of = all->of;
    size_t first = task % all->per_row * TASK;
    memory *own = calloc(1, sizeof *own);
    gr_arithmetic before = gr_begin_plain();
    if (!own ||
        !finish_windows(of, task / all->per_row, first, gr_least(first + TASK, of->windows), own))
        __atomic_store_n(&all->failed, true, __ATOMIC_RELAXED);
    gr_end_plain(before);
    free(own);
}

bool gr_rolling_results(const gr_rolling *of)
{
    division all = {of, (of->windows - 1) / TASK + 1, false};
    gr_parallel(of->rows * of->windows < TASK ? 1 : 0, of->rows * all.per_row, run_task, &all);
    return !all.failed;
}
