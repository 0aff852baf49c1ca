/* Sums by segment: the plan, and the tasks for threads.
 *
 * One pass over the elements, block by block. A block's ids are checked, its numbers are brought to
 * integers, and these are added to the cells of their segments. Integer additions commute, so the
 * sums do not depend on the order of the elements or on the threads. Cells are rounded and stored
 * after the pass, so nothing is stored before all ids have been checked.
 *
 *   words   sums of integers modulo 2^64: 8 bytes per cell (words.c)
 *   short   sums of floats of up to 32 bits, if a sample of the elements has few exponents: 64-bit
 *           integers in units of one power of two. They take all numbers of some 15 neighbouring
 *           binades for float32. The rest is as for pairs. (pairs.c)
 *   pairs   sums of floats: 128-bit integers in units of one power of two, chosen by a sample of
 *           the elements. They take all numbers of some 50 neighbouring binades for float64, 80
 *           for float32, 95 for bfloat16, and all of float16: most data. Outliers, inf and nan go
 *           to a list, and their segments are rounded by an accumulator of exact.h. (pairs.c)
 *   levels  sums of floats and of their squares, for variances: eight 64-bit integers, which count
 *           eight powers of two. The integers take some 50 neighbouring binades for float64.
 *           Outliers, inf and nan go to a list, as for pairs. (levels.c)
 *   proven  sums of floats of any exponents, if the list would get long: float64 numbers that
 *           mostly prove how the sum is rounded. Also for squares. (proven.c)
 *   exact   sums of the segments where they do not, in another pass: accumulators of exact.h.
 *           (accumulators.c)
 *
 * Each thread has a copy of the cells, and takes chunks of rows until none is left. Cells of all
 * copies take as much memory as the elements at most, or COPIED_BYTES. If one copy takes more, and
 * more than FREE_BYTES, the segments are divided into ranges, one pass each: elements of other
 * segments go to a row of cells that is not read. There is at most a copy for each row of a
 * segment, on average, because clearing and reading more takes longer than adding the elements.
 *
 * Segments may lie one after another, as offsets name them or their ids are sorted: each thread
 * takes some of them, and cells stay in its cache (in_order.c). */
#include "segments/segment_job.h"
#include "shared/sizes.h"

#include "exact/format.h"
#include "exact/proven.h"
#include "threads/pool.h"
#include "threads/processors.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    HUGE_FROM = 1 << 22,    /* bytes of cells that go to huge pages */
    FREE_BYTES = 1 << 26,   /* bytes of cells that are always allowed ... */
    COPIED_BYTES = 1 << 25, /* ... and of several copies: more take longer to get than to fill */
    CHUNK = 1 << 13,        /* numbers that a task takes at a time */
    FINISHED = 1 << 12,     /* cells that a task finishes */
    FEW_OUTLIERS = 1 << 10, /* outliers that a list may always have, plus one ... */
    OUTLIERS_PER = 256      /* ... for each this many numbers */
};

/* Takes the next chunk of rows. Returns false if there is none, or if the pass ends early. */
static bool take_chunk(gr_host_segments *job, size_t *first, size_t *end)
{
    if (gr_is_interrupted(job->watch) || gr_ask_for_interrupts() ||
        __atomic_load_n(&job->failed, __ATOMIC_RELAXED) ||
        __atomic_load_n(&job->too_wide, __ATOMIC_RELAXED))
        return false;
    *first = __atomic_fetch_add(&job->next_row, job->chunk, __ATOMIC_RELAXED);
    size_t rows = job->request->values.rows;
    if (*first >= rows || *first >= __atomic_load_n(&job->bad_row, __ATOMIC_RELAXED))
        return false;
    *end = *first + gr_least(job->chunk, rows - *first);
    return true;
}

static void add_task(size_t task, void *context)
{
    gr_host_segments *job = context;
    size_t first, end;
    gr_segment_block *block = malloc(sizeof *block);
    if (!block)
        __atomic_store_n(&job->failed, true, __ATOMIC_RELAXED);
    if (job->columns > 0) /* not if only ids are checked */
        memset(job->cells + task * job->copy_bytes, 0, job->copy_bytes);
    while (block && take_chunk(job, &first, &end))
        gr_add_rows(job, block, first, end, (int)task);
    free(block);
}

static bool has_ended_badly(const gr_host_segments *job)
{
    return job->failed || job->bad_row != SIZE_MAX || gr_interrupted();
}

static bool has_ended(const gr_host_segments *job)
{
    return job->too_wide || has_ended_badly(job);
}

static void finish_task(size_t task, void *context)
{
    const gr_host_segments *job = context;
    size_t cells = job->segments * job->columns, first = task * FINISHED;
    gr_finish_cells(job, first, gr_least(cells - first, FINISHED));
}

/* Adds up the segments first_segment to first_segment + segments - 1. */
static void run_pass(gr_host_segments *job)
{
    size_t cells = job->segments * job->columns;
    for (int i = 0; i < job->copies; i++)
        job->outliers[i].count = 0;
    job->next_row = 0;
    gr_parallel(job->copies, (size_t)job->copies, add_task, job);
    if (!has_ended(job))
        gr_join_outliers(job);
    if (!has_ended(job))
        gr_parallel(job->threads, (cells + FINISHED - 1) / FINISHED, finish_task, job);
}

/* --- the plan ------------------------------------------------------------------------------ */

/* Allocates cells in huge pages, if there are any, because they are accessed in random order. */
static unsigned char *new_cells(size_t bytes)
{
    unsigned char *cells = aligned_alloc(64, bytes); /* a multiple of 64 */
#ifdef MADV_HUGEPAGE
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t skip = (page - (uintptr_t)cells % page) % page;
    if (cells && bytes >= HUGE_FROM)
        (void)madvise(cells + skip, (bytes - skip) / page * page, MADV_HUGEPAGE);
#endif
    return cells;
}

/* Chooses copies and ranges of segments, and runs a pass for each range. */
static void run_kind(gr_host_segments *job, gr_cell_kind kind, size_t cell_bytes)
{
    const gr_segments *request = job->request;
    size_t numbers = request->values.rows * job->columns, segments = job->all_segments;
    size_t bytes = numbers * gr_load_size(request->values.load);
    size_t most = (bytes > FREE_BYTES ? bytes : FREE_BYTES) / (job->columns * cell_bytes);
    job->kind = kind;
    job->cell_bytes = cell_bytes;
    job->too_wide = false;
    size_t each = gr_least(segments, most > 2 ? most - 1 : 1);
    size_t chunks = (request->values.rows + job->chunk - 1) / job->chunk;
    size_t room = (bytes > COPIED_BYTES ? bytes : COPIED_BYTES) / (job->columns * cell_bytes);
    size_t copies = gr_least(gr_least(room / (each + 1), chunks), request->values.rows / each);
    copies = gr_least(copies, (size_t)job->threads);
    job->copies = copies > 1 ? (int)copies : 1;
    job->copy_bytes = ((each + 1) * job->columns * cell_bytes + 63) / 64 * 64;
    job->most_outliers = FEW_OUTLIERS + numbers / OUTLIERS_PER / (size_t)job->copies;
    job->cells = new_cells(job->copy_bytes * (size_t)job->copies);
    job->outliers = calloc((size_t)job->copies, sizeof *job->outliers);
    job->failed = !job->cells || !job->outliers;
    for (size_t first = 0; first < segments && !has_ended(job); first += each) {
        job->first_segment = first;
        job->segments = gr_least(each, segments - first);
        run_pass(job);
    }
    for (int i = 0; job->outliers && i < job->copies; i++)
        free(job->outliers[i].list);
    free(job->outliers);
    free(job->cells);
}

/* Numbers the segments with unproven sums. Returns false without memory, or if all sums are
 * proven. */
static bool number_unproven(gr_host_segments *job)
{
    size_t segments = job->request->sums.segments, count = 0;
    for (size_t i = 0; i < segments; i++)
        count += job->unproven[i];
    if (count == 0)
        return false;
    job->number = malloc(segments * sizeof *job->number);
    job->segment_of = malloc(count * sizeof *job->segment_of);
    job->failed = !job->number || !job->segment_of;
    job->all_segments = 0;
    for (size_t i = 0; i < segments && !job->failed; i++) {
        job->number[i] = job->unproven[i] ? job->all_segments : SIZE_MAX;
        if (job->unproven[i])
            job->segment_of[job->all_segments++] = i;
    }
    return !job->failed;
}

/* For numbers of any exponents. Unrounded sums have no proof, so accumulators add up all. */
static void sum_wide(gr_host_segments *job)
{
    bool all = job->request->sums.words;
    if (!all)
        run_kind(job, GR_CELL_PROVEN, sizeof(gr_proven3) * (1 + gr_has_squares(job)));
    if (!has_ended_badly(job) && (all || number_unproven(job))) {
        job->too_wide = false;
        run_kind(job, GR_CELL_EXACT, sizeof(gr_exact));
    }
    free(job->number);
    free(job->segment_of);
}

/* For floats: levels, or short cells or pairs, if most numbers fit; otherwise cells for all
 * exponents. */
static void sum_floats(gr_host_segments *job)
{
    const gr_pair_window wide = job->window;
    if (!job->too_wide && gr_has_squares(job))
        run_kind(job, GR_CELL_LEVELS, GR_LEVELS * sizeof(int64_t));
    else if (!job->too_wide && job->narrow.most >= 0) {
        job->window = job->narrow;
        run_kind(job, GR_CELL_SHORT, sizeof(int64_t));
        job->window = wide;
        if (!job->too_wide || has_ended_badly(job))
            return;
        job->too_wide = false;
    }
    if (!job->too_wide && !gr_has_squares(job) && !has_ended_badly(job))
        run_kind(job, GR_CELL_PAIR, 2 * sizeof(int64_t));
    if (job->too_wide && !has_ended_badly(job))
        sum_wide(job);
}

/* Checks ids only. */
static void check_ids(gr_host_segments *job)
{
    job->columns = 0; /* so gr_add_rows() reads no elements */
    job->copies = 1;
    job->segments = 0;
    job->too_wide = false;
    job->next_row = 0;
    add_task(0, job);
}

/* Whether all sums are adjacent, in the order of the cells. */
static bool are_touching(const gr_segments *request)
{
    const gr_segment_sums *sums = &request->sums;
    size_t size = gr_load_size(sums->target) * (size_t)sums->parts;
    return sums->parts == request->values.parts &&
           sums->row_step == (ptrdiff_t)(request->values.columns * size) &&
           (request->values.columns == 1 || sums->column_step == (ptrdiff_t)size);
}

static void sum_all(gr_host_segments *job)
{
    const gr_segments *request = job->request;
    bool adds_alike = request->sums.is_float == job->adds_floats && !request->sums.words &&
                      request->sums.parts == request->values.parts;
    if (adds_alike) /* the code for axes then adds alike */
        gr_look_for_order(job);
    job->kind = gr_has_squares(job)      ? GR_CELL_LEVELS
                : request->sums.is_float ? GR_CELL_PAIR
                                         : GR_CELL_WORD;
    if (!job->failed && request->sums.is_float && job->adds_floats)
        job->too_wide = !(gr_has_squares(job) ? gr_choose_levels(job) : gr_choose_window(job));
    job->unproven = job->failed ? NULL : calloc(job->all_segments, 1);
    job->failed = !job->unproven;
    if (has_ended_badly(job))
        ;
    else if (job->in_order)
        gr_sum_in_order(job);
    else if (job->kind == GR_CELL_WORD)
        run_kind(job, GR_CELL_WORD, sizeof(uint64_t));
    else
        sum_floats(job);
    free(job->unproven);
}

gr_segments_status gr_sum_segments_on_host(const gr_segments *request, int threads, size_t *bad_row)
{
    gr_host_segments job = {
        .request = request,
        .watch = gr_current_watch(),
        .threads = threads > 0 ? threads : gr_thread_count(),
        .columns = request->values.columns * (size_t)request->values.parts,
        .touching = are_touching(request),
        .adds_floats = gr_is_float(request->values.load),
        .all_segments = request->sums.segments,
        .narrow = {.most = -1},
        .bad_row = SIZE_MAX,
    };
    job.chunk = CHUNK / (job.columns + !job.columns);
    job.chunk += job.chunk == 0;
    if (job.all_segments == 0 || job.columns == 0)
        check_ids(&job);
    else
        sum_all(&job);
    if (job.too_wide && job.bad_row != SIZE_MAX) /* a smaller bad row may exist */
        check_ids(&job);
    *bad_row = job.bad_row;
    return job.failed                ? GR_SEGMENTS_NO_MEMORY
           : job.bad_row == SIZE_MAX ? GR_SEGMENTS_OK
                                     : GR_SEGMENTS_BAD_ID;
}
