/* Chooses kernels and launches for sums of rows and of columns. */
#include "engine/axis_plan.h"

enum {
    LEAST_BLOCK = 64,
    TILE_BYTES = 4096,        /* bytes of rows in a warp's tile of row_tile, for short rows */
    TILE_ROW_BYTES = 512,     /* longest row of row_tile .. */
    TILE_NARROW_BYTES = 384,  /* .. that is chosen for exact sums of 16-bit floats */
    TINY_ROW_BYTES = 32,      /* the same for variances of float64, if there are whole packs */
    GROUP_ROW_BYTES = 2048,   /* longest row of row_group */
    WARP_ROW_BYTES = 1 << 15, /* longer rows take a block */
    SHARE_BYTES = 1 << 15,    /* the least share of a row that is worth a block */
    FEW_ROWS = 16,            /* most rows of column_packs */
    FEW_SMALL_ROWS = 7,       /* the same for elements of 1 or 2 bytes, unless the sums are exact */
    FOLD_ROWS = 64,           /* least rows, times the square of the folded rows: see fold_rows() */
    PIECE_BYTES = 256,        /* shorter pieces of a sum are left to row_lanes .. */
    LEAST_PIECE = 8,          /* .. or, of fewer elements, to any_layout */
    LANE_LOADS = 8,           /* loads of a lane of row_lanes in flight */
    ROW_LANES = 1024,         /* longest row for one warp of row_lanes, if there are few rows */
    THREAD_ROWS = 32,         /* enough rows for a thread of column_tiles */
    SHARE_ROWS = 64,          /* the least rows of a share of columns */
    BATCH_BYTES = 4096,       /* smaller batches of columns waste most of a block */
};

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

bool gr_takes_products(const gr_axis_plan *p)
{
    size_t bytes = p->matrix.columns * gr_axis_element_bytes(p->request->load);
    return p->pieces == 1 && bytes <= GROUP_ROW_BYTES && has_whole_packs(p) &&
           p->matrix.factors % 16 == 0;
}

const char *gr_choose_rows(const gr_axis_plan *p)
{
    const gr_matrix *m = &p->matrix;
    size_t bytes = m->columns * gr_axis_element_bytes(p->request->load), rows = rows_of(m);
    bool has_short_pieces =
        p->pieces > 1 && (bytes < PIECE_BYTES || (bytes < GROUP_ROW_BYTES && !has_whole_packs(p)));
    if (m->column_step != 1 || has_short_pieces)
        return p->pieces > 1 && m->columns < LEAST_PIECE ? "any_layout" : "row_lanes";
    if (bytes >= 2 * SHARE_BYTES && rows <= gr_sms_of(p))
        return "row_split";
    if (bytes > WARP_ROW_BYTES || (bytes > 1024 && rows < gr_sms_of(p) * 48))
        return "row_block";
    bool is_tiny = p->request->acc == GR_ACC_moments && p->request->load == GR_LOAD_f64 &&
                   bytes <= TINY_ROW_BYTES && rows_touch(m);
    if (has_whole_packs(p) && !is_tiny)
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
        p->block = GR_AXIS_BLOCK / 2;
    size_t warps = p->block / GR_WARP;
    p->grid =
        gr_least(gr_ceil_div(gr_ceil_div(p->sum_count, p->per_lane * GR_WARP), warps), most * 4);
    p->shared_bytes = warps * p->tile_bytes;
    return GR_OK;
}

void gr_shape_lanes(gr_axis_plan *p, size_t rows)
{
    size_t full = gr_sms_of(p) * (GR_SM_THREADS / GR_WARP), columns = p->matrix.columns;
    bool are_shares = p->kernel->load >= GR_LOAD_proven; /* which prove the rounding of their sum */
    bool are_usual = p->matrix.column_step == 1 && p->pieces == 1 && columns > 1;
    p->row_team = columns > ROW_LANES && rows < full ? p->block : GR_WARP;
    if (p->row_team > GR_WARP)
        p->shared_bytes = p->block / GR_WARP * gr_axis_acc_size(p->request->acc);
    if (p->row_team > GR_WARP && !are_usual && rows * p->block < full * GR_WARP)
        p->shares = (unsigned)gr_least(full * GR_WARP / p->block / rows, columns / ROW_LANES);
    while ((!are_usual || are_shares) && p->row_team > 1 && p->row_team <= GR_WARP &&
           columns <= p->row_team / 2 * LANE_LOADS)
        p->row_team /= 2;
    p->grid = gr_least(gr_ceil_div(rows * p->shares, p->block / p->row_team), gr_sms_of(p) * 64);
}

gr_status gr_shape_rows(gr_axis_plan *p, gr_error *error)
{
    size_t rows = rows_of(&p->matrix), bytes = p->matrix.columns * gr_load_size(p->kernel->load);
    size_t most = gr_sms_of(p) * (GR_SM_THREADS / p->block);
    if (gr_is_kernel(p, "row_tile"))
        return shape_tiles(p, bytes, most, error);
    if (gr_is_kernel(p, "row_group") && !has_whole_packs(p))
        return gr_fail(error, GR_BAD_VALUE,
                       "row_group needs rows that begin at a multiple of 16 bytes and have a "
                       "multiple of 16, unlike these rows of %zu bytes: use fast",
                       bytes);
    if (gr_is_kernel(p, "row_packs") && !has_rows_in_packs(p))
        return gr_fail(error, GR_BAD_VALUE,
                       "row_packs needs rows of 2, 4 or 8 bytes without gaps, from a multiple of "
                       "16 bytes on, unlike these rows of %zu bytes: use fast",
                       bytes);
    if (gr_is_kernel(p, "row_packs")) {
        p->grid = gr_least(gr_ceil_div(gr_ceil_div(rows * bytes, 16), p->block), most * 4);
    } else if (gr_is_kernel(p, "row_group") || gr_is_kernel(p, "row_products")) {
        size_t packs = bytes / 16, lanes = 1, per_lane = p->request->acc == GR_ACC_proven3 ? 4 : 1;
        while (lanes * per_lane < packs && lanes < GR_WARP)
            lanes *= 2;
        size_t warp_rows = GR_WARP / lanes * 4;
        p->grid = gr_least(gr_ceil_div(rows, p->block / GR_WARP * warp_rows), most * 8);
    } else if (gr_is_kernel(p, "row_thread")) {
        p->grid = gr_least(gr_ceil_div(rows, p->block), most * 4);
    } else if (gr_is_kernel(p, "row_warp")) {
        p->grid = gr_least(gr_ceil_div(rows, p->block / GR_WARP), most * 8);
    } else if (gr_is_kernel(p, "row_lanes")) {
        gr_shape_lanes(p, rows);
    } else {
        size_t wide = gr_acc_is_proven(p->request->acc) ? 1 << 20 : 1 << 16;
        if (!p->request->block)
            p->block = bytes >= wide ? 512 : bytes >= 1 << 13 ? 256 : 128;
        p->shared_bytes = p->block / GR_WARP * gr_axis_acc_size(p->request->acc);
        p->grid = gr_least(rows, most * 8);
        if (gr_is_kernel(p, "row_split")) {
            size_t full = gr_sms_of(p) * 2, worth = gr_ceil_div(bytes, SHARE_BYTES);
            p->shares = (unsigned)gr_least(full > rows ? full / rows : 1, worth ? worth : 1);
            p->grid = rows * p->shares;
        }
    }
    return GR_OK;
}

/* --- sums of columns -------------------------------------------------------------------------- */

const char *gr_choose_columns(const gr_axis_plan *p)
{
    const gr_matrix *m = &p->matrix;
    size_t bytes = gr_axis_element_bytes(p->request->load), batch = m->rows * m->columns * bytes;
    size_t row_bytes = m->columns * bytes;
    if (p->pieces > 1 || m->column_step != 1)
        return m->rows < THREAD_ROWS || (p->pieces > 1 && m->rows >= GR_SHORT_F16) ? "any_layout"
                                                                                   : "column_tiles";
    if (m->batches > 1 && batch < BATCH_BYTES)
        return row_bytes % 16 ? "any_layout" : "column_packs";
    size_t least = gr_sms_of(p) * GR_SM_THREADS * 16; /* bytes that give each thread a pack */
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

gr_status gr_shape_columns(gr_axis_plan *p, gr_error *error)
{
    gr_matrix *m = &p->matrix;
    size_t pack = 16 / gr_load_size(p->kernel->load), most = gr_sms_of(p);
    most *= gr_acc_is_proven(p->request->acc) ? 2 : 3; /* blocks that a multiprocessor holds */
    if (gr_is_kernel(p, "column_thread")) {
        p->teams = 1;
        p->grid = gr_least(gr_ceil_div(p->sum_count, p->block), most * 4);
        return GR_OK;
    }
    if (gr_is_kernel(p, "column_packs") && m->rows > 1 << 16)
        return gr_fail(error, GR_BAD_VALUE,
                       "column_packs takes at most 65536 rows, not %zu: use fast", m->rows);
    if (gr_is_kernel(p, "column_packs")) {
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
