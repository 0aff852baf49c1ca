/* Plans sums along axes: chooses the kernel and its launch. */
#include "engine/axis_plan.h"

#include "exact/device_layout.h"
#include "exact/finish.h"

enum {
    MOST_PIECES = 1 << 17,     /* if sums are few: the second launch takes a block for each */
    LANE_PACKS = 2,            /* the least packs of 16 bytes for a lane of a team */
    WARP_TERMS = 1 << 10,      /* longest sum for a warp of any_layout .. */
    MOST_WARP_TERMS = 1 << 13, /* .. or, of sums for all warps of the card */
    SHARE_TERMS = 64,          /* the least elements per thread of a share of any_layout */
    AGAIN_TERMS = 128,         /* elements that a single thread may add up again .. */
    AGAIN_SUMS = 1024,         /* .. with fewer sums than this per multiprocessor */
    MOST_AGAIN = 1 << 29,      /* elements of a sum whose digits fit into 62 bits */
    LANE_TERMS = 4,            /* the least elements per lane of exact_levels .. */
    LEAST_LANE_SHARE = 32,     /* .. and of a warp that shares a sum */
    SHARED_RESULTS = 400,      /* most results that blocks share: their words take a megabyte */
    APART_SUMS = 16,           /* results per multiprocessor that are worth a launch .. */
    APART_ROW = 512            /* .. if row_group adds up rows of so many bytes */
};

/* --- sums of any layout ----------------------------------------------------------------------- */

static void shape_levels(gr_axis_plan *p)
{
    size_t threads = gr_sms_of(p) * (GR_SM_THREADS / 2), most = (size_t)GR_WARP * GR_LEVELS_ROOM;
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
                       gr_sms_of(p) * (GR_SM_THREADS / p->block));
}

static void shape_terms(gr_axis_plan *p)
{
    size_t most = gr_sms_of(p) * 2, per_block = (size_t)GR_TERMS_THREADS * SHARE_TERMS;
    size_t terms = gr_axis_usual_terms(&p->request->axes);
    bool are_fine = p->request->load == GR_LOAD_f64; /* a warp makes the result of a short group */
    size_t threads = gr_ceil_div(terms && !are_fine ? terms : GR_TERMS_THREADS, GR_WARP) * GR_WARP;
    p->lanes = p->block = (unsigned)gr_least(threads, GR_TERMS_THREADS);
    /* Most results are proven, and their blocks return at once. */
    p->level_shares = p->sum_count <= SHARED_RESULTS ? gr_least(most, terms / per_block) : 1;
    p->level_shares = p->level_shares ? p->level_shares : 1;
    size_t words = GR_TERMS_SUMS * GR_LEVELS_WORDS;
    p->words = p->level_shares > 1 ? p->sum_count * words : 0;
    p->shared_bytes = words * sizeof(uint64_t) + GR_TERMS_ROOM;
    p->grid = gr_least(p->sum_count * p->level_shares, most * 2);
}

static void shape_layout(gr_axis_plan *p)
{
    if (gr_is_kernel(p, "exact_levels")) {
        shape_levels(p);
        return;
    }
    const gr_layout_dim *dim = p->layout.dim;
    int kept = p->layout.kept, dims = kept + p->layout.reduced;
    size_t terms = gr_axis_usual_terms(&p->request->axes);
    gr_range_kind ranges = p->layout.ranges.kind;
    int parts = p->request->axes.term >= GR_TERM_COMPLEX; /* dimensions of complex parts */
    bool adjacent = kept > parts && dims > kept + parts &&
                    (ranges == GR_RANGE_ALL || ranges == GR_RANGE_WINDOWS) &&
                    gr_axis_distance(dim[kept - parts - 1].in) < dim[dims - parts - 1].in;
    bool alone = adjacent || terms <= 16;
    size_t full = gr_sms_of(p) * GR_SM_THREADS;
    bool by_warp =
        terms <= WARP_TERMS || (terms <= MOST_WARP_TERMS && p->sum_count >= full / GR_WARP);
    size_t pack = 16 / gr_axis_element_bytes(p->request->load), lane = LANE_PACKS * pack;
    p->team = alone ? 1 : by_warp ? GR_WARP : p->block;
    while (by_warp && p->team > 4 && p->team > pack && terms <= lane * (p->team / 2))
        p->team /= 2;
    p->shared_bytes =
        p->team > GR_WARP ? p->block / GR_WARP * gr_axis_acc_size(p->request->acc) : 0;
    size_t threads = p->sum_count * p->team;
    if (threads <= full / 2 && p->packed) /* the second launch stores sums in order */
        p->shares = (unsigned)gr_least(full / threads, terms / SHARE_TERMS / p->team);
    p->shares = p->shares ? p->shares : 1;
    p->grid = gr_least(gr_ceil_div(p->sum_count * p->shares, p->block / p->team),
                       gr_sms_of(p) * (GR_SM_THREADS / p->block) * 8);
}

/* --- all -------------------------------------------------------------------------------------- */

/* The most threads per block of the kernels with a __launch_bounds__ of less than 1024. */
static unsigned most_threads(const gr_axis_plan *p)
{
    static const char *const names[] = {"row_warp",     "row_group",    "row_packs",
                                        "row_products", "row_tile",     "column_packs",
                                        "column_tiles", "exact_levels", "any_ranges"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (gr_is_kernel(p, names[i]))
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
    if (p->request->grid && (gr_is_kernel(p, "row_split") || gr_is_kernel(p, "column_tiles")))
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
    bool by_block = gr_is_kernel(p, "row_block") || p->team > GR_WARP || p->row_team > GR_WARP;
    bool is_shared = found == AS_ROWS || by_block || p->terms <= AGAIN_TERMS ||
                     p->sum_count >= gr_sms_of(p) * AGAIN_SUMS;
    bool leaves_all = gr_is_kernel(p, "row_split") ||
                      (gr_is_kernel(p, "row_tile") && p->kernel->load == GR_LOAD_f64);
    p->adds_again = !p->sums.made.is_made && p->shares * p->pieces == 1 && is_shared &&
                    !leaves_all && p->terms <= MOST_AGAIN;
    if (by_block && p->adds_again && p->shared_bytes < GR_LEVELS_WORDS * sizeof(uint64_t))
        p->shared_bytes = GR_LEVELS_WORDS * sizeof(uint64_t);
}

/* Whether another launch finishes the results with all lanes, because they are many. In this
 * launch, one lane of a warp or block would finish each, in the time of some hundred additions. */
static bool makes_apart(const gr_axis_plan *p)
{
    const gr_sums *sums = &p->sums;
    size_t row = p->terms * gr_load_size(p->kernel->load);
    bool by_group = gr_is_kernel(p, "row_group") || gr_is_kernel(p, "row_products");
    bool is_mean = sums->made.kind == GR_FINISH_RATIO && sums->made.over == GR_OVER_COUNT;
    if (!sums->made.is_made || (is_mean && !sums->made.root && sums->type != GR_LOAD_f64))
        return false;
    return p->sum_count >= gr_sms_of(p) * APART_SUMS &&
           (gr_is_kernel(p, "row_warp") || gr_is_kernel(p, "row_block") ||
            (by_group && row >= APART_ROW) ||
            (gr_is_kernel(p, "any_layout") && p->team > 1 && p->packed));
}

static gr_status shape(gr_axis_plan *p, gr_axis_form found, gr_error *error)
{
    gr_load load = found == AS_LAYOUT ? GR_LOAD_any : (gr_load)gr_axis_load(p->request);
    gr_acc acc = gr_is_kernel(p, "exact_levels") ? GR_ACC_f64 : p->request->acc;
    p->kernel = gr_find_kernel((int)(p->strategy - gr_strategy_at(0)), load, acc, 0);
    if (check(p, found, error) != GR_OK)
        return error->status;
    if (found == AS_LAYOUT)
        shape_layout(p);
    else if ((found == AS_COLUMNS ? gr_shape_columns(p, error) : gr_shape_rows(p, error)) != GR_OK)
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
                        .block = request->block ? request->block : GR_AXIS_BLOCK,
                        .shares = 1,
                        .pieces = 1,
                        .fold = 1,
                        .sum_count = gr_axes_size(&request->axes.kept),
                        .terms = gr_axes_size(&request->axes.reduced)};
    p->sums.base = request->axes.out;
    p->sums.count = p->terms;
    p->sums.made.n = request->sums.made.over == GR_OVER_COUNT ? (double)p->terms : 1;
    p->sums.made.inverse = 1 / p->sums.made.n;
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
    gr_axis_form found = AS_LAYOUT;
    if (p->terms)
        found = gr_axis_find_matrix(request, &axes, number < 0 ? NULL : gr_strategy_at(number),
                                    &p->matrix, &p->pieces);
    if (p->pieces > MOST_PIECES && p->sum_count < gr_sms_of(p))
        found = AS_LAYOUT;
    bool by_rows = axes.term == GR_TERM_PRODUCT && found == AS_ROWS && gr_takes_products(p);
    if (number < 0)
        number = gr_strategy_named(axes.ranges.kind ? "any_ranges"
                                   : by_rows        ? "row_products"
                                   : axes.term == GR_TERM_MAGNITUDE || axes.term >= GR_TERM_PRODUCT
                                       ? "any_layout"
                                   : found == AS_ROWS    ? gr_choose_rows(p)
                                   : found == AS_COLUMNS ? gr_choose_columns(p)
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
                        .matrix = {partial, 1, 1, first->sum_count, shares, 0, 0, step, next, 0},
                        .sums = first->sums,
                        .block = GR_AXIS_BLOCK,
                        .shares = 1,
                        .pieces = 1,
                        .fold = 1,
                        .sum_count = first->sum_count,
                        .terms = shares};
    p->kernel = gr_find_kernel(number, load, acc, 0);
    gr_shape_lanes(p, p->sum_count);
    return error->status = GR_OK;
}

gr_status gr_plan_join(const gr_groups_request *request, const void *parts, gr_axis_plan *p,
                       gr_error *error)
{
    gr_axes axes = request->axes;
    int number = gr_strategy_named("join_parts");
    gr_start_axis_plan(request, p);
    p->strategy = gr_strategy_at(number);
    p->kernel = gr_find_kernel(number, GR_LOAD_f64, request->acc, 0); /* it reads no elements */
    p->team = 1;
    p->grid =
        gr_least(gr_ceil_div(p->sum_count, p->block), gr_sms_of(p) * (GR_SM_THREADS / p->block));
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
    p->block = GR_AXIS_BLOCK;
    gr_axis_simplify(&axes, first->request->sums.parts);
    if (gr_axis_describe_layout(first->request, &axes, &p->layout, error) == GR_OK)
        (is_made ? shape_terms : shape_levels)(p);
    return error->status;
}
