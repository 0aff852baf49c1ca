/* Plans sums by segment: which kernels may add them up, and how the work is shared. */
#include "engine/segment_launch.h"

#include "exact/format.h"

enum {
    LANE_ROWS = 48,             /* most mean rows per lane of a segment; else more lanes */
    PACK_ROWS = 16,             /* the same for segment_packs, per group of lanes that read a row */
    LONG_VALUES = 4096,         /* segments of more values are cut into tasks */
    TASK_VALUES = 16384,        /* per task */
    MANY_ROWS = 32,             /* shorter segments are not cut */
    FILLING_BLOCKS = 4,         /* of segment_rows or segment_packs, per multiprocessor */
    UNTRIED_ROWS = 1 << 16,     /* fewer ids are not tested for being sorted */
    SAMPLED_VALUES = 1 << 20,   /* least values of a sample, .. */
    SAMPLED_PARTS = 32,         /* .. which is at least 1/32 of all */
    ROOM_WORDS = 1 << 24,       /* most fixed-point words, unless more are needed */
    L2_EIGHTHS = 3,             /* of the L2 cache, for words: fastest on an H100 */
    RUN_WARPS = 16,             /* of segment_runs, per multiprocessor */
    ORDERED_BYTES = 128,        /* least bytes of a row for which rows are put in order */
    ORDERED_IN_SHARED = 4096,   /* most segments whose rows are counted in shared memory .. */
    ORDERED_ROWS = 1024,        /* .. and least rows per segment */
    CLUSTER_ROWS = 8192,        /* most rows that one cluster puts in order */
    MOST_STRIPS = 1 << 22,      /* per warp: an int counts their rows */
    MOST_PASSES = 8,            /* most passes that keep the words of a pass in the L2 cache */
    UNCHECKED_VALUES = 1 << 16, /* from this many unchecked values, two attempts win */
    FEW_SEGMENTS = 4096,        /* most segments of segment_few, unless only those with rows .. */
    FEW_VALUES = 1 << 17,       /* .. are added up, and most values: one segment may have all */
    FEW_BLOCKS = 2,             /* per multiprocessor */
    WIDE_ROWS = 8 /* rows per sum from which on GR_WIDE_PASSES needless passes cost little */
};

static const size_t most_rows = (size_t)1 << 40; /* more would leave too few bits per word */

typedef gr_segment_run run;

bool gr_adds_floats(const run *r)
{
    return gr_is_float((gr_load)r->request->load);
}

/* The words that each block keeps in shared memory, if it keeps any: up to 32 copies of each sum.
 */
static size_t shared_words(const run *r)
{
    const gr_groups_request *request = r->request;
    size_t most = r->shared_bytes / 8, words = gr_adds_floats(r) ? 3 : 1;
    if (request->segments > most / request->columns || request->rows / 64 < request->segments)
        return 0;
    return gr_least(most, request->segments * request->columns * words * GR_WARP);
}

size_t gr_most_segment_words(const run *r)
{
    const gr_groups_request *request = r->request;
    if (!gr_adds_floats(r))
        return 1;
    unsigned bits = request->load == GR_LOAD_f16 ? 40 : request->load == GR_LOAD_f64 ? 2098 : 277;
    return gr_plan_words(bits, 0, 1, 1, 1, r->job.width).words + 1;
}

/* Chooses the room for words: all sums of values with usual exponents, but at most a quarter of the
 * free memory. Other values take several passes over ranges of segments.
 *
 * Adding to words outside the L2 cache costs more than reading the ids and single values several
 * times. So each pass gets only as many words as stay in the cache, if MOST_PASSES suffice. */
static gr_status find_room(run *r)
{
    const gr_groups_request *request = r->request;
    gr_error *error = r->error;
    size_t sums = request->segments * request->columns, most = gr_most_segment_words(r);
    size_t usual = !gr_adds_floats(r) ? 1 : request->load == GR_LOAD_f64 ? 3 : 2;
    size_t cached = gr_facts_of(request->device)->l2_bytes / 8 * L2_EIGHTHS / sizeof *r->job.words;
    size_t room = sums * gr_least(usual, most), free_bytes, total;
    if (gr_adds_floats(r) && request->load != GR_LOAD_f64 && !r->job.shared_words && sums <= cached)
        r->job.overlap = gr_overlap_width(request->rows);
    if (room < ROOM_WORDS)
        room = gr_least(sums * most, ROOM_WORDS);
    error->status = GR_OK;
    if (room > 2 * (size_t)ROOM_WORDS) {
        TRY(cudaMemGetInfo(&free_bytes, &total));
        if (room > free_bytes / 4 / 8)
            room = free_bytes / 4 / 8 > ROOM_WORDS ? free_bytes / 4 / 8 : ROOM_WORDS;
    }
    if (room < request->columns * most)
        room = request->columns * most;
    r->job.room = room;
    r->passes = (unsigned)gr_ceil_div(request->segments, room / (request->columns * most));
    r->fewest_passes = r->passes;
    r->job.cached_words = SIZE_MAX;
    if (request->columns == 1) {
        r->job.cached_words = cached;
        size_t wanted = gr_least(gr_ceil_div(sums * usual, cached), MOST_PASSES);
        size_t wide = gr_least(gr_ceil_div(sums * most, cached), GR_WIDE_PASSES);
        if (wanted < wide && request->rows / WIDE_ROWS >= sums)
            wanted = wide;
        r->passes = (unsigned)(r->passes > wanted ? r->passes : wanted);
    }
    r->job.passes = r->passes;
    r->in_one_attempt = !request->check && r->job.sampled == 1 && room / most >= sums &&
                        request->rows * request->columns < UNCHECKED_VALUES;
done:
    return error->status;
}

/* Whether the values of a row, or the sums of a segment, are adjacent in memory. */
static bool are_neighbours(const gr_rows *rows, size_t bytes)
{
    return rows->number_step == (int64_t)(rows->parts * bytes) &&
           (rows->parts == 1 || rows->part_step == (int64_t)bytes);
}

/* Whether a kernel is compiled for these elements and this accumulator. */
static bool is_there(const gr_groups_request *request, const char *kernel)
{
    int number = gr_strategy_named(kernel);
    return number >= 0 && gr_find_kernel(number, (gr_load)request->load, request->acc, 0);
}

/* Whether segment_packs can run: rows consist of aligned packs, and all sums are adjacent. */
static bool has_packs(const gr_groups_request *request)
{
    const gr_rows *values = &request->values, *out = &request->out;
    size_t bytes = gr_load_size((gr_load)request->load), sum_bytes = request->sums.bytes;
    uint64_t places = (uintptr_t)values->base | (uint64_t)values->row_step |
                      (request->in_place ? (uintptr_t)out->base : 0);
    return (places | request->columns * bytes) % 16 == 0 && are_neighbours(values, bytes) &&
           are_neighbours(out, sum_bytes) &&
           out->row_step == (int64_t)(request->columns * sum_bytes) &&
           is_there(request, "segment_packs");
}

/* Chooses the kernel that sums rows, the lanes of a segment, and the length from which on segments
 * are cut into tasks. */
static void share_rows(run *r)
{
    const gr_groups_request *request = r->request;
    gr_segment_job *job = &r->job;
    size_t columns = request->columns, lanes = 1, lane_rows = LANE_ROWS;
    while (lanes < columns && lanes < GR_WARP)
        lanes *= 2;
    r->tiles = (unsigned)gr_least(gr_ceil_div(columns, lanes), 65535);
    job->long_rows = LONG_VALUES / lanes;
    job->task_rows = TASK_VALUES / lanes;
    r->in_packs = columns > 1 && has_packs(request);
    if (r->in_packs) {
        size_t packs = columns * gr_load_size((gr_load)request->load) / 16;
        for (lanes = 1; lanes < packs && lanes < GR_WARP;)
            lanes *= 2;
        r->pack_tiles = (unsigned)gr_least(gr_ceil_div(packs, lanes), 65535);
        lane_rows = PACK_ROWS / lanes;
    }
    while (lanes < GR_WARP && lanes * lane_rows * request->segments < request->rows)
        lanes *= 2;
    job->lanes = (unsigned)lanes;
    r->in_lanes = columns == 1 && lanes == 1 && is_there(request, "segment_lanes") &&
                  request->values.row_step == (int64_t)gr_load_size((gr_load)request->load);
    /* A warp finds the rows of a segment once for all tiles of columns that it adds up. So it gets
     * several tiles, if there are enough segments to fill the device. */
    size_t blocks = gr_ceil_div(gr_numbered_segments(r), GR_DEFAULT_BLOCK / lanes);
    size_t tiles = r->in_packs ? r->pack_tiles : r->tiles;
    size_t apart = gr_ceil_div(r->sms * FILLING_BLOCKS, blocks ? blocks : 1);
    r->row_blocks = gr_least(blocks, r->sms * 32);
    r->row_tiles = (unsigned)gr_least(tiles, apart);
    /* Only segments far above the mean are cut. */
    size_t mean = request->segments ? request->rows / request->segments : 0;
    size_t least = gr_least(job->long_rows, MANY_ROWS + 4 * mean);
    job->long_rows /= gr_ceil_div(tiles, r->row_tiles);
    if (job->long_rows < least)
        job->long_rows = least;
    if (request->segments * lanes >= gr_blocks_to_fill(request->device, 1))
        job->long_rows += 2 * mean;
    size_t turn = GR_DEFAULT_BLOCK / lanes;
    size_t turns = gr_ceil_div(gr_numbered_segments(r), turn * r->sms * FEW_BLOCKS);
    job->few = (unsigned)gr_least(turn * (turns ? turns : 1), GR_FEW_SEGMENTS);
}

/* The sample that segment_range reads is one of this many parts of the values; 1: no sample. Words
 * of long sums have few bits to spare. */
static unsigned sampled(const run *r)
{
    size_t parts = r->request->rows * r->request->columns / SAMPLED_VALUES;
    if (!gr_adds_floats(r) || r->job.shared_words || parts < 2)
        return 1;
    return (unsigned)gr_least(parts, SAMPLED_PARTS);
}

gr_status gr_plan_segments(run *r)
{
    const gr_groups_request *request = r->request;
    gr_segment_job *job = &r->job;
    size_t columns = request->columns;
    if (request->rows > most_rows || request->segments > SIZE_MAX / 64 / columns)
        return gr_fail(r->error, request->rows > most_rows ? GR_BAD_VALUE : GR_NO_MEMORY,
                       request->rows > most_rows ? "values may have at most 2^40 rows"
                                                 : "there is no memory for all sums");
    *job = (gr_segment_job){.values = request->values,
                            .out = request->out,
                            .index = request->index,
                            .rows = request->rows,
                            .columns = columns,
                            .segments = request->segments,
                            .sums = request->sums,
                            .by_offsets = request->by_offsets,
                            .in_place = request->in_place,
                            .stops = request->in_place && !request->check,
                            .load = request->load};
    job->width = gr_word_width(request->rows);
    job->sums.has_initial = gr_has_initial(&request->sums);
    job->sums.additions = 4.0 * (double)request->rows + 1e5;
    bool as_digits = request->sums.as_digits != 0; /* digits are made of words */
    job->try_sorted = !as_digits && !request->by_offsets && request->rows &&
                      (request->sorted == GR_SORTED ||
                       (request->sorted == GR_SORTED_UNKNOWN && request->rows >= UNTRIED_ROWS));
    bool has_order = request->by_offsets || (job->try_sorted && request->sorted == GR_SORTED);
    r->in_order = !as_digits && !has_order && request->rows && request->rows <= UINT32_MAX &&
                  columns * gr_load_size((gr_load)request->load) >= ORDERED_BYTES;
    const gr_facts *facts = gr_facts_of(request->device);
    r->by_cluster = request->rows <= CLUSTER_ROWS && facts->capability >= 90;
    job->orders_in_shared = !r->by_cluster && request->segments <= ORDERED_IN_SHARED &&
                            request->segments <= request->rows / ORDERED_ROWS;
    r->in_rows = !as_digits && (request->by_offsets || job->try_sorted || r->in_order);
    r->in_words = as_digits || !(has_order || r->in_order);
    r->are_few = !request->check && !request->by_offsets && !as_digits &&
                 request->rows <= GR_FEW_ROWS && request->rows * columns <= FEW_VALUES &&
                 (request->in_place || request->segments <= FEW_SEGMENTS);
    job->by_row =
        request->in_place && (r->in_rows || r->are_few) && request->rows < request->segments;
    r->sms = facts->sms;
    r->shared_bytes = facts->shared_bytes;
    share_rows(r);
    bool has_initial =
        gr_adds_floats(r) ? job->sums.has_initial : request->sums.initial[0].u64 != 0;
    r->in_runs = job->try_sorted && columns == 1 && !has_initial && !request->in_place &&
                 request->acc != GR_ACC_proven3;
    size_t strips = gr_ceil_div(request->rows, r->sms * RUN_WARPS * GR_STRIP_ROWS);
    if (r->in_runs) /* every warp gets the same whole number of strips */
        job->task_rows = gr_least(strips, MOST_STRIPS) * GR_STRIP_ROWS;
    job->shared_words = shared_words(r);
    job->sampled = sampled(r);
    return r->in_words ? find_room(r) : GR_OK;
}
