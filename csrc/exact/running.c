/* A row's elements are added one after the other in float64 numbers that prove how their sum is
 * rounded (exact/proven.h); blocks of entries are rounded by vectors. Columns that lie beside each
 * other are added together, and so are short rows. An entry that is not proven is rounded by an
 * accumulator, which takes each element of the row once at most.
 *
 * Few long rows are divided into chunks, whose exact sums are added up first. */
#include "exact/running.h"

#include "cpu/axis_job.h"
#include "cpu/floating_point_mode.h"
#include "cpu/gather.h"
#include "cpu/store.h"
#include "exact/exact.h"
#include "exact/format.h"
#include "exact/proven_kernels.h"
#include "shared/sizes.h"
#include "threads/interrupts.h"
#include "threads/pool.h"
#include "threads/processors.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum {
    BLOCK = 256, /* entries of a row, or of few columns, that are rounded together */
    TILE = 256,  /* columns that are added together */
    ROOM = TILE + GR_MOST_VECTOR, /* numbers of a plane */
    TASK = 1 << 15,               /* elements of a task, about */
    CHUNK = 1 << 16,              /* elements of a chunk of a long row at least */
    MOST_CHUNKS = 64,             /* of a row */
    MERGES = 16,                  /* bound of the additions to `tail` beyond one per element */
    FEW_COLUMNS = 32,             /* of fewer columns, a block of rows is rounded together */
    AS_ROWS = 8,   /* fewer columns are treated as rows if that gives all threads work */
    SHORT_ROW = 72 /* elements; shorter rows are added together, as columns are */
};

/* A row, or one of some columns, while it is added up. */
typedef struct {
    const unsigned char *in;
    unsigned char *out;
    gr_exact *exact; /* sum of the elements before `known`; NULL until needed */
    size_t known;
} line;

/* The memory of a task. */
typedef struct {
    double planes[4 * ROOM], x[ROOM], rounded[ROOM], margin[ROOM];
    double sums[FEW_COLUMNS * GR_ROLL_NUMBERS]; /* of few columns */
    unsigned char raw[TILE * sizeof(double)];
    line lines[TILE];
} memory;

typedef struct {
    const gr_running *of;
    gr_format format;
    double factor; /* of `bound` */
    size_t units, per_task, tiles, chunks, chunk;
    size_t inner; /* entries of the kept dimensions that vary faster than `columns` */
    const gr_axis
        *columns;   /* the dimension whose entries are added together; NULL: rows are added */
    gr_exact *sums; /* exact sums before each chunk */
    bool failed;
} division;

static gr_spaced spaced(const gr_running *of, const unsigned char *in, ptrdiff_t step)
{
    return (gr_spaced){.in = in,
                       .in_step = step,
                       .size = gr_load_size(of->load),
                       .parts = 1,
                       .swapped = of->swapped};
}

/* Copies n elements as float64 numbers. */
static void read(const gr_running *of, const unsigned char *in, ptrdiff_t step, size_t n,
                 unsigned char *raw, double *to)
{
    gr_spaced from = spaced(of, in, step);
    if (step != (ptrdiff_t)from.size || of->swapped) {
        gr_gather(raw, &from, n);
        in = raw;
    }
    gr_proven_best()->widen(of->load, in, n, to);
}

/* Splits an exact sum into float64 numbers. */
static gr_proven3 numbers_of(const gr_exact *sum)
{
    double part[4];
    gr_exact_split(sum, part);
    double bound = 0x1p53 * gr_magnitude(part[3]) + gr_magnitude(part[1]); /* additions round it */
    return (gr_proven3){part[0], part[1], part[2], bound};
}

/* The sum before row `index`: its accumulator, or NULL, and its float64 numbers. */
static gr_exact *sum_before(const gr_running *of, size_t index, gr_proven3 *numbers)
{
    gr_exact *sum = of->before ? &of->before[index] : NULL;
    *numbers = sum ? numbers_of(sum) : (gr_proven3){0, 0, 0, 0};
    return sum;
}

/* --- entries that are not proven ----------------------------------------------------------------
 */

/* Adds the elements before `end` to the accumulator of a line. */
static bool catch_up(const gr_running *of, line *one, size_t end)
{
    enum { SOME = 128 };
    unsigned char raw[SOME * sizeof(double)];
    if (!one->exact) {
        one->exact = malloc(sizeof *one->exact);
        if (!one->exact)
            return false;
        gr_exact_init(one->exact);
    }
    for (size_t some; one->known < end && !gr_ask_for_interrupts(); one->known += some) {
        some = gr_least(end - one->known, SOME);
        gr_spaced from = spaced(of, one->in + (ptrdiff_t)one->known * of->axis.in, of->axis.in);
        gr_gather(raw, &from, some);
        gr_exact_add_array(one->exact, raw, some, of->load, 1, 1);
    }
    return true;
}

/* Stores entry i of a line, whose element is x, from its accumulator. */
static bool store_exactly(const division *all, line *one, size_t i, double x)
{
    const gr_running *of = all->of;
    bool is_settled = one->exact && one->exact->flags && isfinite(x); /* x changes nothing */
    if (is_settled)
        one->known = i + 1;
    else if (!catch_up(of, one, i + 1))
        return false;
    gr_store_integer(one->out + (ptrdiff_t)i * of->axis.out, gr_exact_round(one->exact, of->target),
                     of->target);
    return true;
}

/* Stores entry i of a line if its float64 numbers, at `planes`, prove the rounding. */
static bool store_alone(const division *all, line *one, size_t i, const double *planes,
                        size_t stride)
{
    gr_proven3 sum = {planes[0], planes[stride], planes[2 * stride], planes[3 * stride]};
    double rounded;
    if (!gr_proven3_finish(&sum, all->factor * 0x1p52, all->format.fraction, all->format.unit,
                           &rounded))
        return false;
    gr_store_float(one->out + (ptrdiff_t)i * all->of->axis.out, rounded, all->of->target);
    return true;
}

/* --- rows ---------------------------------------------------------------------------------------
 */

/* Adds n numbers, and keeps the sums after each of them. */
static void add_numbers(const double *x, size_t n, bool is_wide, gr_proven3 *sum, double *planes)
{
    gr_proven3 at = *sum;
    for (size_t i = 0; i < n; i++) {
        if (is_wide) {
            gr_proven3_add(&at, x[i]);
        } else {
            double error = gr_two_sum(&at.sum, x[i]);
            at.rest += error;
            at.bound += gr_magnitude(error);
        }
        planes[i] = at.sum;
        planes[ROOM + i] = at.rest;
        planes[2 * ROOM + i] = at.tail;
        planes[3 * ROOM + i] = at.bound;
    }
    *sum = at;
}

/* Adds the elements first to end - 1 of a row to `sum`, which has the elements before `first`. */
static bool add_row(const division *all, line *row, gr_proven3 *sum, size_t first, size_t end,
                    memory *own)
{
    const gr_running *of = all->of;
    bool is_wide = of->load == GR_LOAD_f64;
    for (size_t some; first < end && !gr_ask_for_interrupts(); first += some) {
        some = gr_least(end - first, BLOCK);
        gr_arithmetic before = gr_begin_plain();
        read(of, row->in + (ptrdiff_t)first * of->axis.in, of->axis.in, some, own->raw, own->x);
        add_numbers(own->x, some, is_wide, sum, own->planes);
        bool proven =
            gr_proven_best()->round_sums(own->planes, ROOM, some, all->factor, all->format.fraction,
                                         all->format.unit, own->rounded, own->margin);
        gr_store_floats(row->out + (ptrdiff_t)first * of->axis.out, of->axis.out, own->rounded,
                        some, of->target);
        for (size_t i = 0; i < some && !proven; i++)
            if (!(own->margin[i] > 0) && !store_alone(all, row, first + i, own->planes + i, ROOM) &&
                !store_exactly(all, row, first + i, own->x[i])) {
                gr_end_plain(before);
                return false;
            }
        gr_end_plain(before);
    }
    return true;
}

/* --- columns ------------------------------------------------------------------------------------
 */

/* Column k of the unit, and the float64 numbers of the sum before its first element. */
static line line_of(const division *all, size_t unit, const gr_axes_place *at, size_t k,
                    gr_proven3 *sum)
{
    const gr_running *of = all->of;
    size_t index = (unit / all->inner * all->columns->size + k) * all->inner + unit % all->inner;
    return (line){.in = of->in + at->in + (ptrdiff_t)k * all->columns->in,
                  .out = of->out + at->out + (ptrdiff_t)k * all->columns->out,
                  .exact = sum_before(of, index, sum)};
}

/* Adds up columns. Sums of many columns are in the planes. Sums of few stay in vectors for several
 * rows: lanes without a column add elements of the next row, whose entries replace theirs. */
static bool add_columns(const division *all, size_t unit, const gr_axes_place *at, size_t first,
                        size_t width, memory *own)
{
    const gr_running *of = all->of;
    const gr_axis *columns = all->columns;
    const gr_proven_kernels *kernels = gr_proven_best();
    const size_t n = of->axis.size, lanes = kernels->vector / 2;
    const bool is_few = columns->size < FEW_COLUMNS && n >= SHORT_ROW;
    const size_t rows = is_few ? BLOCK / width : 1;
    const size_t whole = (width + GR_MOST_VECTOR - 1) / GR_MOST_VECTOR * GR_MOST_VECTOR;
    const bool is_packed = of->axis.in == (ptrdiff_t)width * columns->in &&
                           of->axis.out == (ptrdiff_t)width * columns->out;
    gr_roll how = {
        .step = (ptrdiff_t)width, .apart = 1, .stride = ROOM, .width = width, .factor = 1};
    bool done = true;
    how.takes_nan = true;
    memset(own, 0, offsetof(memory, lines));
    for (size_t k = 0; k < width; k++) {
        gr_proven3 sum;
        double *to =
            is_few ? own->sums + k / lanes * lanes * GR_ROLL_NUMBERS + k % lanes : own->planes + k;
        size_t stride = is_few ? lanes : ROOM;
        own->lines[k] = line_of(all, unit, at, first + k, &sum);
        to[0] = sum.sum;
        to[stride] = sum.rest;
        to[2 * stride] = sum.tail;
        to[3 * stride] = sum.bound;
    }
    for (size_t row = 0, some; row < n && done && !gr_ask_for_interrupts(); row += some) {
        some = gr_least(n - row, rows);
        const unsigned char *in = own->lines[0].in + (ptrdiff_t)row * of->axis.in;
        const unsigned char *x = (const unsigned char *)own->x;
        unsigned char *out = own->lines[0].out + (ptrdiff_t)row * of->axis.out;
        size_t entries = some * width, together = is_packed ? entries : width;
        gr_arithmetic before = gr_begin_plain();
        for (size_t i = 0; i < entries; i += together, in += of->axis.in)
            read(of, in, columns->in, together, own->raw, own->x + i);
        for (size_t k = (width + lanes - 1) / lanes * lanes; k > 0 && is_few;) {
            how.enters = own->x + (k -= lanes);
            kernels->roll(&how, some, own->sums + k * GR_ROLL_NUMBERS, own->planes + k, NULL);
        }
        if (!is_few)
            kernels->columns[GR_LOAD_f64](&x, 1, whole, own->planes, ROOM);
        bool proven =
            kernels->round_sums(own->planes, ROOM, entries, all->factor, all->format.fraction,
                                all->format.unit, own->rounded, own->margin);
        for (size_t i = 0; i < entries; i += together, out += of->axis.out)
            gr_store_floats(out, columns->out, own->rounded + i, together, of->target);
        for (size_t i = 0; i < entries && !proven && done; i++) {
            line *one = &own->lines[i % width];
            size_t k = row + i / width;
            done = own->margin[i] > 0 || store_alone(all, one, k, own->planes + i, ROOM) ||
                   store_exactly(all, one, k, own->x[i]);
        }
        gr_end_plain(before);
    }
    for (size_t k = 0; k < width && !of->before; k++)
        free(own->lines[k].exact);
    return done;
}

/* --- tasks --------------------------------------------------------------------------------------
 */

/* Where a unit begins: a row, or some columns. */
static gr_axes_place place_of(const division *all, size_t unit)
{
    gr_axes_place at;
    gr_axes_go(&at, &all->of->kept, all->of->kept.count, unit);
    return at;
}

static void fail(division *all)
{
    __atomic_store_n(&all->failed, true, __ATOMIC_RELAXED);
}

static bool run_segment(const division *all, const gr_axes_place *at, size_t segment, memory *own)
{
    const gr_running *of = all->of;
    ptrdiff_t first = of->offsets[segment];
    line row = {.in = of->in + at->in + first * of->axis.in,
                .out = of->out + at->out + first * of->axis.out};
    gr_proven3 sum = {0, 0, 0, 0};
    bool done = add_row(all, &row, &sum, 0, (size_t)(of->offsets[segment + 1] - first), own);
    free(row.exact);
    return done;
}

static bool run_unit(const division *all, size_t unit, memory *own)
{
    const gr_running *of = all->of;
    gr_axes_place at = place_of(all, unit / all->tiles);
    if (of->offsets)
        return run_segment(all, &at, unit % all->tiles, own);
    if (all->columns) {
        size_t first = unit % all->tiles * TILE;
        return add_columns(all, unit / all->tiles, &at, first,
                           gr_least(TILE, all->columns->size - first), own);
    }
    gr_proven3 sum;
    line row = {.in = of->in + at.in, .out = of->out + at.out};
    row.exact = sum_before(of, unit, &sum);
    bool done = add_row(all, &row, &sum, 0, of->axis.size, own);
    if (!of->before)
        free(row.exact);
    return done;
}

static void run_task(size_t task, void *context)
{
    division *all = context;
    memory *own = malloc(sizeof *own);
    size_t first = task * all->per_task, end = gr_least(first + all->per_task, all->units);
    if (!own)
        fail(all);
    for (size_t unit = first; own && unit < end && !gr_interrupted(); unit++)
        if (!run_unit(all, unit, own)) {
            fail(all);
            break;
        }
    free(own);
}

/* Adds up a chunk of a row in an accumulator. */
static void sum_chunk(size_t task, void *context)
{
    division *all = context;
    const gr_running *of = all->of;
    gr_axes_place at = place_of(all, task / all->chunks);
    size_t first = task % all->chunks * all->chunk;
    line row = {.in = of->in + at.in, .exact = &all->sums[task], .known = first};
    gr_exact_init(row.exact);
    (void)catch_up(of, &row, gr_least(first + all->chunk, of->axis.size));
}

static void run_chunk(size_t task, void *context)
{
    division *all = context;
    const gr_running *of = all->of;
    gr_axes_place at = place_of(all, task / all->chunks);
    size_t first = task % all->chunks * all->chunk;
    line row = {
        .in = of->in + at.in, .out = of->out + at.out, .exact = &all->sums[task], .known = first};
    memory *own = malloc(sizeof *own);
    gr_proven3 sum = numbers_of(row.exact);
    if (!own || !add_row(all, &row, &sum, first, gr_least(first + all->chunk, of->axis.size), own))
        fail(all);
    free(own);
}

/* Runs each chunk twice: first for its exact sum, then for its entries. */
static void run_chunks(division *all, int threads)
{
    size_t tasks = all->units * all->chunks;
    all->sums = malloc(tasks * sizeof *all->sums);
    if (!all->sums) {
        all->failed = true;
        return;
    }
    gr_parallel(threads, tasks, sum_chunk, all);
    for (size_t row = 0; row < all->units && !gr_interrupted(); row++) {
        gr_exact before;
        gr_exact_init(&before);
        if (all->of->before)
            before = all->of->before[row];
        for (size_t i = row * all->chunks; i < (row + 1) * all->chunks; i++) {
            gr_exact sum = all->sums[i];
            all->sums[i] = before;
            gr_exact_merge(&before, &sum);
        }
    }
    if (!gr_interrupted())
        gr_parallel(threads, tasks, run_chunk, all);
    free(all->sums);
}

/* Removes from the kept dimensions the one with the smallest steps, to add up its entries as
 * columns, if its steps are less than the axis's or the rows are short. Fewer than AS_ROWS long
 * columns stay rows if there are several threads. */
static bool take_columns(gr_running *of, size_t threads, gr_axis *columns, size_t *inner)
{
    int least = -1;
    for (int i = 0; i < of->kept.count; i++)
        if (least < 0 ||
            gr_axis_distance(of->kept.dim[i].in) < gr_axis_distance(of->kept.dim[least].in))
            least = i;
    if (least < 0 || (gr_axis_distance(of->kept.dim[least].in) >= gr_axis_distance(of->axis.in) &&
                      of->axis.size >= SHORT_ROW))
        return false;
    size_t size = of->kept.dim[least].size, others = gr_axes_size(&of->kept) / size;
    if (threads > 1 && size < AS_ROWS && others < 2 * threads && of->axis.size >= SHORT_ROW &&
        of->axis.size * size * others >= 2 * TASK)
        return false;
    *columns = of->kept.dim[least];
    for (int i = least; i + 1 < of->kept.count; i++) {
        of->kept.dim[i] = of->kept.dim[i + 1];
        *inner *= of->kept.dim[i].size;
    }
    of->kept.count--;
    return true;
}

bool gr_running_sums(const gr_running *of, int threads)
{
    gr_running own = *of;
    gr_axis columns;
    division all = {
        .of = &own, .format = gr_format_of(of->target), .tiles = 1, .chunks = 1, .inner = 1};
    size_t n = own.axis.size, each = n;
    int most = threads > 0 ? threads : gr_thread_count();
    all.factor = ((double)n + MERGES) * 0x1p-52 * (1 + 0x1p-50);
    if (own.offsets) {
        all.tiles = own.segments;
        each = n / own.segments + 1;
    } else if (take_columns(&own, (size_t)most, &columns, &all.inner)) {
        all.columns = &columns;
        all.tiles = (columns.size - 1) / TILE + 1;
        each *= gr_least(columns.size, TILE);
    }
    all.units = gr_axes_size(&own.kept) * all.tiles;
    all.per_task = each < TASK ? TASK / each : 1;
    if (!all.columns && !own.offsets && most > 1 && all.units < 2 * (size_t)most &&
        n >= 2 * CHUNK) {
        all.chunks = gr_least(MOST_CHUNKS, n / CHUNK);
        all.chunk = (n - 1) / all.chunks + 1;
        run_chunks(&all, threads);
        return !all.failed;
    }
    gr_parallel(all.units * each < 2 * TASK ? 1 : threads, (all.units - 1) / all.per_task + 1,
                run_task, &all);
    return !all.failed;
}
