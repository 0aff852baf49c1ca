/* Plans sums along axes: chooses the kernel and its launch. */
#include "engine/axis_plan.h"

#include "exact/device_layout.h"
#include "exact/proven.h"

#include <stdbool.h>
#include <string.h>

enum {
    BLOCK = 256,
    LEAST_BLOCK = 64,
    TILE_BYTES = 4096,        /* bytes of rows in a warp's tile of row_tile, for short rows */
    TILE_ROW_BYTES = 512,     /* longest row of row_tile .. */
    TILE_NARROW_BYTES = 384,  /* .. that is chosen for exact sums of 16-bit floats */
    GROUP_ROW_BYTES = 2048,   /* longest row of row_group */
    WARP_ROW_BYTES = 1 << 15, /* longer rows take a block */
    SHARE_BYTES = 1 << 15,    /* the least share of a row that is worth a block */
    FEW_ROWS = 16,            /* most rows of column_packs */
    FEW_SMALL_ROWS = 7,       /* the same for elements of 1 or 2 bytes, unless the sums are exact */
    FOLD_ROWS = 64,           /* least rows, times the square of the folded rows: see fold_rows() */
    PIECE_BYTES = 256,        /* shorter pieces of a sum are left to row_lanes .. */
    LEAST_PIECE = 8,          /* .. or, of fewer elements, to any_layout */
    MOST_PIECES = 1 << 17,    /* if sums are few: the second launch takes a block for each */
    LANE_LOADS = 8,           /* loads of a lane of row_lanes in flight */
    ROW_LANES = 1024,         /* longest row for one warp of row_lanes, if there are few rows */
    THREAD_ROWS = 32,         /* enough rows for a thread of column_tiles */
    SHARE_ROWS = 64,          /* the least rows of a share of columns */
    BATCH_BYTES = 4096,       /* smaller batches of columns waste most of a block */
    WARP_TERMS = 1 << 10,     /* longest sum for a warp of any_layout .. */
    MOST_WARP_TERMS = 1 << 13, /* .. or, of sums for all warps of the card */
    SHARE_TERMS = 64,          /* the least elements per thread of a share of any_layout */
    AGAIN_TERMS = 128,         /* elements that a single thread may add up again .. */
    AGAIN_SUMS = 1024,         /* .. with fewer sums than this per multiprocessor */
    MOST_AGAIN = 1 << 29,      /* elements of a sum whose digits fit into 62 bits */
    LANE_TERMS = 4,            /* the least elements per lane of exact_levels .. */
    LEAST_LANE_SHARE = 32,     /* .. and of a warp that shares a sum */
    SHARED_RESULTS = 400,      /* most results that blocks share: their words take a megabyte */
    APART_SUMS = 16,           /* results per multiprocessor that are worth a launch */
    ALL_TERMS_BLOCKS = 16,     /* blocks of exact_terms in turn, if all results are made there */
    SM_THREADS = 2048
};

static size_t sms_of(const gr_axis_plan *p)
{
    return gr_facts_of(p->request->device)->sms;
}

size_t gr_axis_acc_size(gr_acc acc)
{
    switch (acc) {
    case GR_ACC_proven: return sizeof(gr_proven);
    case GR_ACC_proven3: return sizeof(gr_proven3);
    case GR_ACC_moments: return 2 * sizeof(gr_proven);
    case GR_ACC_moments3: return sizeof(gr_proven3) + sizeof(gr_proven);
    default: return gr_acc_size(acc);
    }
}

static bool is(const gr_axis_plan *p, const char *name)
{
    return strcmp(p->strategy->name, name) == 0;
}

/* --- sums of rows ----------------------------------------------------------------------------- */

/* Whether each row follows the one before it without a gap. */
static bool rows_touch(const gr_matrix *m)
{
    return m->outer * m->batches == 1 && m->column_step == 1 &&
           (m->rows == 1 || m->row_step == (int64_t)m->columns);
}

static size_t rows_of(const gr_matrix *m)
{
    return m->outer * m->batches * m->rows;
}

static bool has_whole_packs(const gr_axis_plan *p)
{
    size_t bytes = gr_axis_element_bytes(p->request->load);
    return gr_matrix_has_packs(&p->matrix, bytes, bytes < 16 ? 16 / bytes : 1);
}

/* Whether packs consist of whole rows. */
static bool has_rows_in_packs(const gr_axis_plan *p)
{
    size_t bytes = p->matrix.columns * gr_axis_element_bytes(p->request->load);
    return p->matrix.columns > 1 && bytes < 16 && 16 % bytes == 0 && rows_touch(&p->matrix) &&
           (uintptr_t)p->matrix.base % 16 == 0;
}

static const char *choose_rows(const gr_axis_plan *p)
{
    const gr_matrix *m = &p->matrix;
    size_t bytes = m->columns * gr_axis_element_bytes(p->request->load), rows = rows_of(m);
    bool has_short_pieces =
        p->pieces > 1 && (bytes < PIECE_BYTES || (bytes < GROUP_ROW_BYTES && !has_whole_packs(p)));
    if (m->column_step != 1 || has_short_pieces)
        return p->pieces > 1 && m->columns < LEAST_PIECE ? "any_layout" : "row_lanes";
    if (bytes >= 2 * SHARE_BYTES && rows <= sms_of(p))
        return "row_split";
    if (bytes > WARP_ROW_BYTES || (bytes > 1024 && rows < sms_of(p) * 48))
        return "row_block";
    if (has_whole_packs(p))
        return bytes <= GROUP_ROW_BYTES ? "row_group" : "row_warp";
    /* Of rows of two bytes, a pack has eight sums, 64 bytes: row_tile coalesces their stores. */
    if (has_rows_in_packs(p) && bytes > 2)
        return "row_packs";
    bool is_narrow = gr_acc_is_proven(p->request->acc) && m->columns * 2 == bytes;
    size_t most = is_narrow ? TILE_NARROW_BYTES : TILE_ROW_BYTES;
    return rows_touch(m) && bytes <= most ? "row_tile" : "row_warp";
}

static gr_status shape_tiles(gr_axis_plan *p, size_t bytes, size_t most, gr_error *error)
{
    const gr_matrix *m = &p->matrix;
    if (bytes > TILE_ROW_BYTES || !rows_touch(m))
        return gr_fail(error, GR_BAD_VALUE,
                       "row_tile takes rows without gaps, of at most %d bytes; these have %zu%s",
                       TILE_ROW_BYTES, bytes, bytes > TILE_ROW_BYTES ? "" : " and gaps");
    size_t row = bytes ? bytes : 1;
    p->per_lane = (unsigned)(row * GR_WARP > TILE_BYTES ? 1 : TILE_BYTES / GR_WARP / row);
    size_t tile = p->per_lane * GR_WARP * row;
    p->tile_bytes = (unsigned)(gr_ceil_div(tile, 128) * (128 + 8));
    if (!p->request->block && p->tile_bytes > 2 * TILE_BYTES)
        p->block = BLOCK / 2;
    size_t warps = p->block / GR_WARP;
    p->grid =
        gr_least(gr_ceil_div(gr_ceil_div(p->sum_count, p->per_lane * GR_WARP), warps), most * 4);
    p->shared_bytes = warps * p->tile_bytes;
    return GR_OK;
}

static void shape_lanes(gr_axis_plan *p, size_t rows)
{
    size_t full = sms_of(p) * (SM_THREADS / GR_WARP), columns = p->matrix.columns;
    bool are_usual = p->matrix.column_step == 1 && p->pieces == 1 && columns > 1;
    p->row_team = columns > ROW_LANES && rows < full ? p->block : GR_WARP;
    if (p->row_team > GR_WARP)
        p->shared_bytes = p->block / GR_WARP * gr_axis_acc_size(p->request->acc);
    if (p->row_team > GR_WARP && !are_usual && rows * p->block < full * GR_WARP)
        p->shares = (unsigned)gr_least(full * GR_WARP / p->block / rows, columns / ROW_LANES);
    while (!are_usual && p->row_team > 1 && p->row_team <= GR_WARP &&
           columns <= p->row_team / 2 * LANE_LOADS)
        p->row_team /= 2;
    p->grid = gr_least(gr_ceil_div(rows * p->shares, p->block / p->row_team), sms_of(p) * 64);
}

static gr_status shape_rows(gr_axis_plan *p, gr_error *error)
{
    size_t rows = rows_of(&p->matrix), bytes = p->matrix.columns * gr_load_size(p->kernel->load);
    size_t most = sms_of(p) * (SM_THREADS / p->block);
    if (is(p, "row_tile"))
        return shape_tiles(p, bytes, most, error);
    if (is(p, "row_group") && !has_whole_packs(p))
        return gr_fail(error, GR_BAD_VALUE,
                       "row_group needs rows that begin at a multiple of 16 bytes and have a "
                       "multiple of 16, unlike these rows of %zu bytes: use fast",
                       bytes);
    if (is(p, "row_packs") && !has_rows_in_packs(p))
        return gr_fail(error, GR_BAD_VALUE,
                       "row_packs needs rows of 2, 4 or 8 bytes without gaps, from a multiple of "
                       "16 bytes on, unlike these rows of %zu bytes: use fast",
                       bytes);
    if (is(p, "row_packs")) {
        p->grid = gr_least(gr_ceil_div(gr_ceil_div(rows * bytes, 16), p->block), most * 4);
    } else if (is(p, "row_group")) {
        size_t packs = bytes / 16, lanes = 1, per_lane = p->request->acc == GR_ACC_proven3 ? 4 : 1;
        while (lanes * per_lane < packs && lanes < GR_WARP)
            lanes *= 2;
        size_t warp_rows = GR_WARP / lanes * 4;
        p->grid = gr_least(gr_ceil_div(rows, p->block / GR_WARP * warp_rows), most * 8);
    } else if (is(p, "row_thread")) {
        p->grid = gr_least(gr_ceil_div(rows, p->block), most * 4);
    } else if (is(p, "row_warp")) {
        p->grid = gr_least(gr_ceil_div(rows, p->block / GR_WARP), most * 8);
    } else if (is(p, "row_lanes")) {
        shape_lanes(p, rows);
    } else {
        size_t wide = gr_acc_is_proven(p->request->acc) ? 1 << 20 : 1 << 16;
        if (!p->request->block)
            p->block = bytes >= wide ? 512 : bytes >= 1 << 13 ? 256 : 128;
        p->shared_bytes = p->block / GR_WARP * gr_axis_acc_size(p->request->acc);
        p->grid = gr_least(rows, most * 8);
        if (is(p, "row_split")) {
            size_t full = sms_of(p) * 2, worth = gr_ceil_div(bytes, SHARE_BYTES);
            p->shares = (unsigned)gr_least(full > rows ? full / rows : 1, worth ? worth : 1);
            p->grid = rows * p->shares;
        }
    }
    return GR_OK;
}

/* --- sums of columns -------------------------------------------------------------------------- */

static const char *choose_columns(const gr_axis_plan *p)
{
    const gr_matrix *m = &p->matrix;
    size_t bytes = gr_axis_element_bytes(p->request->load), batch = m->rows * m->columns * bytes;
    size_t row_bytes = m->columns * bytes;
    if (p->pieces > 1 || m->column_step != 1)
        return m->rows < THREAD_ROWS || (p->pieces > 1 && m->rows >= GR_SHORT_F16) ? "any_layout"
                                                                                   : "column_tiles";
    if (m->batches > 1 && batch < BATCH_BYTES)
        return row_bytes % 16 ? "any_layout" : "column_packs";
    size_t least = sms_of(p) * SM_THREADS * 16; /* bytes that give each thread a pack */
    bool is_small = bytes < 4 && !gr_acc_is_proven(p->request->acc);
    size_t few = is_small ? FEW_SMALL_ROWS : FEW_ROWS;
    return m->rows <= few && row_bytes >= least ? "column_packs" : "column_tiles";
}

/* How many of eight lanes load a pack of a row, in teams of a power of two lanes. */
static size_t busy_of_eight(size_t packs)
{
    size_t team = GR_WARP;
    while (team < packs)
        team *= 2;
    return 8 * packs / team;
}

/* Joins several short rows to one, which consists of whole packs and fills a load of the whole
 * warp. Joins more rows if that keeps more lanes busy and columns are long: in the end, a thread
 * adds up one sum for each joined row. */
static void fold_rows(gr_axis_plan *p, size_t pack)
{
    gr_matrix *m = &p->matrix;
    size_t fold = 1, narrow = (size_t)GR_WARP * pack;
    if (m->row_step != (int64_t)m->columns || m->column_step != 1 || m->columns >= narrow * 2)
        return;
    while (fold * m->columns % pack || fold * m->columns < narrow)
        fold++;
    for (size_t more = fold;
         more * m->columns <= p->block * pack && m->rows >= FOLD_ROWS * more * more; more++)
        if (more * m->columns % pack == 0 &&
            busy_of_eight(more * m->columns / pack) > busy_of_eight(fold * m->columns / pack))
            fold = more;
    bool fits = fold * m->columns <= p->block * pack && m->rows / fold >= 1;
    if (fold == 1 || !fits || (m->batches > 1 && m->batch_step % (int64_t)pack) ||
        m->outer_step % (int64_t)pack)
        return;
    p->fold = (unsigned)fold;
    p->tail = (unsigned)(m->rows % fold * m->columns);
    m->rows /= fold;
    m->columns *= fold;
    m->row_step *= (int64_t)fold;
}

static gr_status shape_columns(gr_axis_plan *p, gr_error *error)
{
    gr_matrix *m = &p->matrix;
    size_t pack = 16 / gr_load_size(p->kernel->load), most = sms_of(p);
    most *= gr_acc_is_proven(p->request->acc) ? 2 : 3; /* blocks that a multiprocessor holds */
    if (is(p, "column_thread")) {
        p->teams = 1;
        p->grid = gr_least(gr_ceil_div(p->sum_count, p->block), most * 4);
        return GR_OK;
    }
    if (is(p, "column_packs") && m->rows > 1 << 16)
        return gr_fail(error, GR_BAD_VALUE,
                       "column_packs takes at most 65536 rows, not %zu: use fast", m->rows);
    if (is(p, "column_packs")) {
        size_t packs = gr_ceil_div(p->sum_count, m->columns % pack ? 1 : pack);
        p->teams = 1;
        p->grid = gr_least(gr_ceil_div(packs, p->block), most * 4);
        return GR_OK;
    }
    size_t team = p->block;
    fold_rows(p, pack);
    while (team > GR_WARP && team / 2 * pack >= m->columns)
        team /= 2;
    size_t tiles = gr_ceil_div(m->columns, team * pack) * m->outer * m->batches;
    while (team > GR_WARP && p->fold == 1 && m->rows >= p->block / team * THREAD_ROWS &&
           tiles < most) {
        team /= 2;
        tiles = gr_ceil_div(m->columns, team * pack) * m->outer * m->batches;
    }
    /* Small batches: more blocks can load while others add up their teams' sums. */
    bool may_halve = !p->request->block && tiles >= most;
    while (may_halve && p->block > LEAST_BLOCK && p->block > team &&
           m->rows < p->block / team * THREAD_ROWS)
        p->block /= 2;
    p->teams = (unsigned)(p->block / team);
    if (2 * tiles <= most && m->rows >= 2 * SHARE_ROWS && p->pieces == 1)
        p->shares = (unsigned)gr_least(most / tiles, m->rows / SHARE_ROWS);
    /* Small integers are summed in 32 bits and float16 in float64. One row may be a tail. */
    bool is_short = p->kernel->load == GR_LOAD_f16 && gr_acc_is_proven(p->request->acc);
    size_t thread_rows = (size_t)p->teams * ((is_short ? GR_SHORT_F16 : 1 << 16) - 1);
    if (m->rows > thread_rows && p->shares < gr_ceil_div(m->rows, thread_rows))
        p->shares = (unsigned)gr_ceil_div(m->rows, thread_rows);
    p->grid = tiles * p->shares;
    if (p->teams > 1 || p->fold > 1)
        p->shared_bytes = p->block * pack * gr_axis_acc_size(p->request->acc);
    return GR_OK;
}

/* --- sums of any layout ----------------------------------------------------------------------- */

static void shape_levels(gr_axis_plan *p)
{
    size_t threads = sms_of(p) * (SM_THREADS / 2), most = (size_t)GR_WARP * GR_LEVELS_ROOM;
    p->lanes = 1;
    while (p->lanes < GR_WARP &&
           (p->terms > (size_t)p->lanes * GR_LEVELS_ROOM ||
            (p->sum_count * p->lanes < threads && p->terms > (size_t)p->lanes * LANE_TERMS)))
        p->lanes *= 2;
    size_t idle = p->sum_count ? threads / GR_WARP / p->sum_count : 0;
    p->level_shares = gr_least(idle, p->terms / GR_WARP / LEAST_LANE_SHARE);
    if (p->level_shares * most < p->terms)
        p->level_shares = gr_ceil_div(p->terms, most);
    p->level_shares = p->level_shares ? p->level_shares : 1;
    p->words = p->level_shares > 1 ? p->sum_count * GR_LEVELS_WORDS : 0;
    p->shared_bytes = 0;
    /* Usually all sums are proven and all blocks return at once: one wave of blocks is enough. */
    p->grid = gr_least(gr_ceil_div(gr_ceil_div(p->sum_count, GR_WARP / p->lanes) * p->level_shares,
                                   p->block / GR_WARP),
                       sms_of(p) * (SM_THREADS / p->block));
}

static void shape_terms(gr_axis_plan *p)
{
    size_t most = sms_of(p) * 2, per_block = (size_t)GR_TERMS_THREADS * SHARE_TERMS;
    size_t terms = gr_axis_usual_terms(&p->request->axes);
    p->lanes = p->block =
        (unsigned)gr_least(gr_ceil_div(terms ? terms : 1, GR_WARP) * GR_WARP, GR_TERMS_THREADS);
    /* Most results are proven, and their blocks return at once. */
    p->level_shares = p->sum_count <= SHARED_RESULTS ? gr_least(most, terms / per_block) : 1;
    p->level_shares = p->level_shares ? p->level_shares : 1;
    size_t words = GR_TERMS_SUMS * GR_LEVELS_WORDS;
    p->words = p->level_shares > 1 ? p->sum_count * words : 0;
    p->shared_bytes = words * sizeof(uint64_t) + GR_TERMS_ROOM;
    p->grid = gr_least(p->sum_count * p->level_shares,
                       most * (gr_needs_digits(p->request) ? ALL_TERMS_BLOCKS : 2));
}

static void shape_layout(gr_axis_plan *p)
{
    if (is(p, "exact_levels")) {
        shape_levels(p);
        return;
    }
    const gr_layout_dim *dim = p->layout.dim;
    int kept = p->layout.kept, dims = kept + p->layout.reduced;
    size_t terms = gr_axis_usual_terms(&p->request->axes);
    gr_range_kind ranges = p->layout.ranges.kind;
    bool adjacent = kept > 0 && dims > kept &&
                    (ranges == GR_RANGE_ALL || ranges == GR_RANGE_WINDOWS) &&
                    gr_axis_distance(dim[kept - 1].in) < dim[dims - 1].in;
    bool alone = adjacent || terms <= 16;
    size_t full = sms_of(p) * SM_THREADS;
    bool by_warp =
        terms <= WARP_TERMS || (terms <= MOST_WARP_TERMS && p->sum_count >= full / GR_WARP);
    if (!alone && !p->request->block)
        p->block = by_warp ? GR_WARP : BLOCK;
    p->team = alone ? 1 : p->block;
    p->shared_bytes = alone ? 0 : p->block / GR_WARP * gr_axis_acc_size(p->request->acc);
    size_t threads = p->sum_count * p->team;
    if (threads <= full / 2 && p->packed) /* the second launch stores sums in order */
        p->shares = (unsigned)gr_least(full / threads, terms / SHARE_TERMS / p->team);
    p->shares = p->shares ? p->shares : 1;
    p->grid = gr_least(gr_ceil_div(p->sum_count * p->shares, p->block / p->team),
                       sms_of(p) * (SM_THREADS / p->block) * 8);
}

/* --- all -------------------------------------------------------------------------------------- */

/* The most threads per block of the kernels with a __launch_bounds__ of less than 1024. */
static unsigned most_threads(const gr_axis_plan *p)
{
    static const char *const names[] = {"row_warp",     "row_group",    "row_packs",
                                        "row_tile",     "column_packs", "column_tiles",
                                        "exact_levels", "any_ranges"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (is(p, names[i]))
            return 256;
    return 1024;
}

static gr_status check(const gr_axis_plan *p, gr_axis_form found, gr_error *error)
{
    unsigned traits = p->strategy->traits;
    bool fits = (traits & ANY_ELEMENTS) || (found == AS_ROWS && traits & ROWS) ||
                (found == AS_COLUMNS && traits & COLUMNS);
    if (p->strategy->kind != GR_KIND_AXIS && p->request->strategy >= 0)
        return gr_fail(error, GR_BAD_VALUE, "%s cannot sum along an axis", p->strategy->name);
    if (!fits)
        return gr_fail(error, GR_BAD_VALUE,
                       "%s sums %s, which this array does not have along these axes%s: use fast",
                       p->strategy->name,
                       traits & ROWS ? "rows whose elements are adjacent in memory"
                                     : "columns that are adjacent in memory",
                       p->request->axes.mask ? " and with this mask" : "");
    if (p->request->block > most_threads(p))
        return gr_fail(error, GR_BAD_VALUE, "%s takes blocks of at most %u threads, not of %u",
                       p->strategy->name, most_threads(p), p->request->block);
    if (p->request->grid && (is(p, "row_split") || is(p, "column_tiles")))
        return gr_fail(error, GR_BAD_VALUE, "%s chooses its own grid: leave grid out",
                       p->strategy->name);
    if (!p->kernel)
        return gr_fail(error, GR_BAD_DTYPE,
                       "%s cannot sum this dtype in the dtype of the result: use fast",
                       p->strategy->name);
    return error->status = GR_OK;
}

/* Whether this launch adds up its unproven sums again: a row by as many threads as before, another
 * sum by one thread. A few long sums are left to a launch in which several threads share each. */
static void decide_on_adding_again(gr_axis_plan *p, gr_axis_form found)
{
    bool by_block = is(p, "row_block") || p->team > 1 || p->row_team > GR_WARP;
    bool is_shared = found == AS_ROWS || by_block || p->terms <= AGAIN_TERMS ||
                     p->sum_count >= sms_of(p) * AGAIN_SUMS;
    bool leaves_all = is(p, "row_split") || (is(p, "row_tile") && p->kernel->load == GR_LOAD_f64);
    p->adds_again = !p->sums.made.is_made && p->shares * p->pieces == 1 && is_shared &&
                    !leaves_all && p->terms <= MOST_AGAIN;
    if (by_block && p->adds_again && p->shared_bytes < GR_LEVELS_WORDS * sizeof(uint64_t))
        p->shared_bytes = GR_LEVELS_WORDS * sizeof(uint64_t);
}

/* Whether another launch finishes the results with all lanes, because they are many. In this
 * launch, one lane of a warp or block would finish each, in the time of some hundred additions. */
static bool makes_apart(const gr_axis_plan *p)
{
    return p->sums.made.is_made && p->sum_count >= sms_of(p) * APART_SUMS &&
           (is(p, "row_warp") || is(p, "row_group") || is(p, "row_block") ||
            (is(p, "any_layout") && p->team > 1 && p->packed));
}

static gr_status shape(gr_axis_plan *p, gr_axis_form found, gr_error *error)
{
    gr_load load = found == AS_LAYOUT ? GR_LOAD_any : (gr_load)gr_axis_load(p->request);
    gr_acc acc = is(p, "exact_levels") ? GR_ACC_f64 : p->request->acc;
    p->kernel = gr_find_kernel((int)(p->strategy - gr_strategy_at(0)), load, acc, 0);
    if (check(p, found, error) != GR_OK)
        return error->status;
    if (found == AS_LAYOUT)
        shape_layout(p);
    else if ((found == AS_COLUMNS ? shape_columns(p, error) : shape_rows(p, error)) != GR_OK)
        return error->status;
    p->is_apart = makes_apart(p);
    if (gr_acc_is_proven(p->request->acc) && !p->lanes)
        decide_on_adding_again(p, found);
    if (p->request->grid)
        p->grid = p->request->grid;
    if (p->grid > 0x7fffffff)
        return gr_fail(error, GR_BAD_VALUE, "%s would take more than 2^31 - 1 blocks: use fast",
                       p->strategy->name);
    return error->status = GR_OK;
}

void gr_start_axis_plan(const gr_groups_request *request, gr_axis_plan *p)
{
    *p = (gr_axis_plan){.request = request,
                        .sums = request->sums,
                        .block = request->block ? request->block : BLOCK,
                        .shares = 1,
                        .pieces = 1,
                        .fold = 1,
                        .sum_count = gr_axes_size(&request->axes.kept),
                        .terms = gr_axes_size(&request->axes.reduced)};
    p->sums.base = request->axes.out;
    p->sums.count = p->terms;
    p->sums.made.n = request->sums.made.over == GR_OVER_COUNT ? (double)p->terms : 1;
    p->sums.has_initial = gr_has_initial(&request->sums);
    double each = gr_is_wide_integer(request->load) ? 12 : 4; /* its square has six numbers */
    each *= request->axes.components == 2 ? 2 : 1;
    p->sums.additions = each * (double)p->terms + 1e5; /* merges of threads and shares included */
}

bool gr_needs_digits(const gr_groups_request *request)
{
    if (request->sums.made.is_made)
        return request->axes.components == 2 &&
               gr_axis_usual_terms(&request->axes) > gr_backend_elements_at_once();
    return request->sums.as_digits || request->strategy == gr_strategy_named("exact_levels");
}

gr_status gr_plan_axis(const gr_groups_request *request, gr_axis_plan *p, gr_error *error)
{
    gr_axes axes = request->axes;
    gr_start_axis_plan(request, p);
    if (request->sums.made.is_made && gr_needs_digits(request))
        return gr_plan_levels(p, p, error);
    gr_axis_simplify(&axes, request->sums.parts);
    p->packed = gr_axis_is_packed(&axes, request->sums.bytes);
    int number = request->sums.as_digits ? gr_strategy_named("exact_levels") : request->strategy;
    unsigned traits = number < 0 ? 0 : gr_strategy_at(number)->traits;
    gr_axis_form found =
        p->terms ? gr_axis_find_matrix(request, &axes, traits, &p->matrix) : AS_LAYOUT;
    if (found == AS_LAYOUT && number < 0 && p->terms)
        found = gr_axis_find_pieces(request, &axes, &p->matrix, &p->pieces);
    if (p->pieces > MOST_PIECES && p->sum_count < sms_of(p))
        found = AS_LAYOUT;
    if (number < 0)
        number = gr_strategy_named(axes.ranges.kind ? "any_ranges"
                                   : axes.term == GR_TERM_MAGNITUDE || axes.term >= GR_TERM_PRODUCT
                                       ? "any_layout"
                                   : found == AS_ROWS    ? choose_rows(p)
                                   : found == AS_COLUMNS ? choose_columns(p)
                                                         : "any_layout");
    p->strategy = gr_strategy_at(number);
    bool compiled = found == AS_LAYOUT || p->strategy->traits & ANY_ELEMENTS ||
                    gr_find_kernel(number, (gr_load)gr_axis_load(request), request->acc, 0);
    if (request->strategy < 0 && !compiled) /* the kernel would have to cast */
        p->strategy = gr_strategy_at(gr_strategy_named("any_layout"));
    if (p->strategy->traits & ANY_ELEMENTS) {
        found = AS_LAYOUT;
        p->pieces = 1;
        if (gr_axis_describe_layout(request, &axes, &p->layout, error) != GR_OK)
            return error->status;
    }
    return shape(p, found, error);
}

/* The second launch of a sum whose first one left shares in memory. */
gr_status gr_plan_shares(const gr_axis_plan *first, const void *partial, gr_axis_plan *p,
                         gr_error *error)
{
    gr_acc acc = first->request->acc;
    gr_load load = gr_acc_is_proven(acc) ? (gr_load)(GR_LOAD_proven + (acc - GR_ACC_proven))
                                         : gr_load_of_acc(acc);
    int number = gr_strategy_named("row_lanes");
    size_t shares = first->shares * first->pieces;
    bool are_apart = first->matrix.outer > 1 && first->teams; /* pieces of columns */
    int64_t step = are_apart ? 1 : (int64_t)shares,
            next = are_apart ? (int64_t)first->sum_count : 1;
    *p = (gr_axis_plan){.request = first->request,
                        .strategy = gr_strategy_at(number),
                        .matrix = {partial, 1, 1, first->sum_count, shares, 0, 0, step, next},
                        .sums = first->sums,
                        .block = BLOCK,
                        .shares = 1,
                        .pieces = 1,
                        .fold = 1,
                        .sum_count = first->sum_count,
                        .terms = shares};
    p->kernel = gr_find_kernel(number, load, acc, 0);
    shape_lanes(p, p->sum_count);
    return error->status = GR_OK;
}

gr_status gr_plan_join(const gr_groups_request *request, const void *parts, gr_axis_plan *p,
                       gr_error *error)
{
    gr_axes axes = request->axes;
    int number = gr_strategy_named("join_parts");
    gr_start_axis_plan(request, p);
    p->strategy = gr_strategy_at(number);
    p->kernel = gr_find_kernel(number, (gr_load)request->load, request->acc, 0);
    p->team = 1;
    p->grid = gr_least(gr_ceil_div(p->sum_count, p->block), sms_of(p) * (SM_THREADS / p->block));
    gr_axis_simplify(&axes, request->sums.parts);
    gr_axis_describe_layout(request, &axes, &p->layout, error);
    p->layout.base = parts;
    return error->status;
}

gr_status gr_plan_levels(const gr_axis_plan *first, gr_axis_plan *p, gr_error *error)
{
    gr_axes axes = first->request->axes;
    bool is_made = first->sums.made.is_made;
    int number = gr_strategy_named(is_made ? "exact_terms" : "exact_levels");
    *p = *first;
    p->strategy = gr_strategy_at(number);
    p->kernel = gr_find_kernel(number, GR_LOAD_any, GR_ACC_f64, 0);
    p->block = BLOCK;
    gr_axis_simplify(&axes, first->request->sums.parts);
    if (gr_axis_describe_layout(first->request, &axes, &p->layout, error) == GR_OK)
        (is_made ? shape_terms : shape_levels)(p);
    return error->status;
}
