/* Describes an array that is added up along axes: as rows, as columns, or as dimensions. */
#include "engine/axis_form.h"

#include "exact/format.h"
#include "exact/proven.h"

bool gr_acc_is_proven(gr_acc acc)
{
    return acc >= GR_ACC_proven;
}

int gr_axis_load(const gr_groups_request *request)
{
    bool integers = request->acc == GR_ACC_u32 || request->acc == GR_ACC_u64;
    int load = request->load;
    if (gr_acc_is_proven(request->acc))
        return gr_is_float((gr_load)load) ? load : -1;
    if (load == GR_ELEMENTS_I64)
        load = integers ? GR_LOAD_u64 : -1;
    if (request->acc == GR_ACC_u32)
        load = load == GR_LOAD_i32 || load == GR_LOAD_u32 ? GR_LOAD_u32 : -1;
    return load;
}

size_t gr_axis_acc_size(gr_acc acc)
{
    switch (acc) {
    case GR_ACC_proven: return sizeof(gr_proven);
    case GR_ACC_proven3: return sizeof(gr_proven3);
    case GR_ACC_moments: return 2 * sizeof(gr_proven);
    default: return gr_acc_size(acc);
    }
}

size_t gr_axis_element_bytes(int load)
{
    return load == GR_ELEMENTS_I64 ? 8 : gr_load_size((gr_load)load);
}

bool gr_axis_is_packed(const gr_axes *axes, size_t bytes)
{
    ptrdiff_t step = (ptrdiff_t)bytes;
    for (int i = axes->kept.count - 1; i >= 0; i--) {
        if (axes->kept.dim[i].out != step)
            return false;
        step *= (ptrdiff_t)axes->kept.dim[i].size;
    }
    return true;
}

/* Reverses only reduced dimensions: the order of kept dimensions is the order of the sums. The
 * parts of complex numbers stay the last dimension. */
void gr_axis_simplify(gr_axes *axes, unsigned parts)
{
    gr_axis_list *kept = &axes->kept, *reduced = &axes->reduced;
    bool has_products = axes->term >= GR_TERM_COMPLEX;
    gr_axis of_products = {0};
    if (has_products)
        of_products = reduced->dim[--reduced->count];
    if (gr_axes_size(reduced) == 0)
        reduced->count = 0;
    gr_axes_sort(reduced);
    kept->count -= parts == 2;
    gr_axis last = kept->dim[kept->count];
    gr_axes_sort(kept);
    if (parts == 2)
        kept->dim[kept->count++] = last;
    if (axes->ranges.kind == GR_RANGE_ALL)
        gr_axes_flip(axes, reduced);
    gr_axes_merge(reduced);
    gr_axes_merge(kept);
    if (has_products)
        reduced->dim[reduced->count++] = of_products;
}

size_t gr_axis_usual_terms(const gr_axes *axes)
{
    const gr_ranges *ranges = &axes->ranges;
    size_t terms = gr_axes_size(&axes->reduced), size = (size_t)ranges->size;
    return ranges->kind == GR_RANGE_ALL                    ? terms
           : ranges->kind == GR_RANGE_OFFSETS && size != 0 ? gr_ceil_div(terms, size)
                                                           : gr_least(terms, size);
}

static bool steps_are_whole(const gr_axis_list *list, ptrdiff_t size)
{
    for (int i = 0; i < list->count; i++)
        if (list->dim[i].in % size)
            return false;
    return true;
}

/* Whether the other array of products has the steps of the array. */
static bool are_alike(const gr_axis_list *list)
{
    for (int i = 0; i < list->count; i++)
        if (list->dim[i].mask != list->dim[i].in)
            return false;
    return true;
}

static bool may_be_matrix(const gr_groups_request *request, const gr_axes *axes)
{
    ptrdiff_t size = (ptrdiff_t)gr_axis_element_bytes(request->load);
    bool has_factors = axes->mask && axes->term == GR_TERM_PRODUCT;
    bool is_alone =
        !axes->mask || (has_factors && are_alike(&axes->kept) && are_alike(&axes->reduced));
    return is_alone && !axes->ranges.kind && axes->kept.count <= 2 && gr_axis_load(request) >= 0 &&
           gr_axis_is_packed(axes, request->sums.bytes) && steps_are_whole(&axes->kept, size) &&
           steps_are_whole(&axes->reduced, size);
}

static const gr_axis one = {1, 0, 0, 0};

gr_axis_form gr_axis_find_matrix(const gr_groups_request *request, const gr_axes *axes,
                                 const gr_strategy *named, gr_matrix *m, size_t *pieces)
{
    const gr_axis_list *kept = &axes->kept, *reduced = &axes->reduced;
    ptrdiff_t size = (ptrdiff_t)gr_axis_element_bytes(request->load);
    unsigned traits = named ? named->traits : 0;
    if (reduced->count > 2 || !may_be_matrix(request, axes))
        return AS_LAYOUT;
    const gr_axis *inner = kept->count ? &kept->dim[kept->count - 1] : &one;
    const gr_axis *outer = kept->count > 1 ? &kept->dim[0] : &one;
    const gr_axis *terms = reduced->count ? &reduced->dim[reduced->count - 1] : &one;
    const gr_axis *piece = reduced->count > 1 ? &reduced->dim[0] : &one;
    bool rows = reduced->count ? terms->in == size : (traits & ROWS) != 0;
    bool columns = kept->count ? inner->in == size : (traits & COLUMNS) != 0;
    bool is_plain = reduced->count < 2 && (rows || columns);
    if (!is_plain && (named || !reduced->count))
        return AS_LAYOUT;
    bool are_rows = is_plain ? rows && !(columns && traits & COLUMNS)
                             : !kept->count || terms->in < gr_axis_distance(inner->in);
    if (!are_rows && piece->size > terms->size) { /* the longer of the two is the column */
        terms = &reduced->dim[0];
        piece = &reduced->dim[1];
    }
    const gr_axis *of_columns[] = {piece, outer, terms, inner},
                  *of_rows[] = {&one, outer, inner, terms},
                  *of_pieces[] = {outer, inner, piece, terms};
    const gr_axis **order = !are_rows ? of_columns : piece->size > 1 ? of_pieces : of_rows;
    *m = (gr_matrix){axes->in,
                     order[0]->size,
                     order[1]->size,
                     order[2]->size,
                     order[3]->size,
                     order[0]->in / size,
                     order[1]->in / size,
                     order[2]->in / size,
                     order[3]->in / size,
                     axes->mask ? (const char *)axes->mask - (const char *)axes->in : 0};
    if (is_plain)
        m->column_step = 1;
    *pieces = piece->size;
    return are_rows ? AS_ROWS : AS_COLUMNS;
}

gr_status gr_axis_describe_layout(const gr_groups_request *request, const gr_axes *axes,
                                  gr_layout *layout, gr_error *error)
{
    const gr_axis_list *lists[] = {&axes->kept, &axes->reduced};
    int at = 0;
    *layout = (gr_layout){
        .base = axes->in,
        .mask = axes->mask,
        .load = request->load,
        .term = axes->term,
        .imaginary = axes->components == 2 ? (int64_t)gr_axis_element_bytes(request->load) : 0,
        .ranges = axes->ranges,
        .kept = axes->kept.count,
        .reduced = axes->reduced.count};
    int dims = axes->kept.count + axes->reduced.count;
    if (dims > GR_LAYOUT_DIMS)
        return gr_fail(
            error, GR_BAD_VALUE,
            "the array's %d dimensions cannot be merged; kernels read at most %d: copy it", dims,
            GR_LAYOUT_DIMS);
    for (int l = 0; l < 2; l++)
        for (int i = 0; i < lists[l]->count; i++) {
            const gr_axis *dim = &lists[l]->dim[i];
            layout->dim[at++] = (gr_layout_dim){dim->size, dim->in, dim->mask, dim->out};
        }
    return error->status = GR_OK;
}
