#include "shared/how.h"

const gr_dtype_row gr_dtype_rows[GR_DTYPE_COUNT] = {
#define DTYPE(name, load, acc, result) {#name, GR_LOAD_##load, GR_ACC_##acc, 1, GR_DTYPE_##result},
#define COMPLEX(name, load, acc, result)                                                           \
    {#name, GR_LOAD_##load, GR_ACC_##acc, 2, GR_DTYPE_##result},
#include "dtypes.def"
#undef DTYPE
};

static bool has_floats(const gr_dtype_row *row)
{
    return row->acc == GR_ACC_f32 || row->acc == GR_ACC_f64;
}

/* Sums of integers wrap around, so a wider accumulator has the same low bits. */
static void add_integers(gr_how *how, const gr_dtype_row *from, gr_grouping groups)
{
    const gr_dtype_row *to = &gr_dtype_rows[how->result];
    bool in_32_bits = gr_load_size(to->load) == 4 && gr_load_size(from->load) == 4;
    if (in_32_bits)
        how->load = GR_LOAD_u32;
    how->acc = in_32_bits && groups < GR_GROUPS_OFFSETS ? GR_ACC_u32 : GR_ACC_u64;
}

/* Whether reading an element as an accumulator gives what a cast to the result would. */
static bool widens(const gr_dtype_row *from, const gr_dtype_row *to)
{
    if (!has_floats(from) || from->load == to->load)
        return has_floats(from);
    if (to->acc == GR_ACC_f64)
        return from->load == GR_LOAD_f32;
    return to->load == GR_LOAD_f32 && gr_load_size(from->load) == 2;
}

static void add_floats(gr_how *how, const gr_dtype_row *from, gr_place place, gr_grouping groups)
{
    const gr_dtype_row *to = &gr_dtype_rows[how->result];
    bool integers = !has_floats(from), wide = integers && gr_load_size(from->load) == 8;
    bool is_read = widens(from, to), to_pairs = to->parts > from->parts;
    bool in_groups = groups != GR_GROUPS_ALL, by_segment = groups >= GR_GROUPS_OFFSETS;
    how->acc = to->acc;
    if (by_segment && place == GR_ON_PROCESSORS)
        return; /* they read elements of any type */
    if (place == GR_ON_GPU && to_pairs)
        how->refusal = GR_REAL_AS_PAIR;
    else if (wide && in_groups && place != GR_ON_PROCESSORS &&
             (how->exactly || (by_segment && place == GR_SENT_TO_GPU)))
        how->refusal = GR_TOO_WIDE;
    else if (place == GR_ON_GPU && !how->exactly && !is_read &&
             gr_load_size(to->load) != gr_acc_size(to->acc))
        how->refusal = GR_NO_CAST;
    else if (place == GR_ON_GPU && by_segment && integers)
        how->refusal = GR_NO_INTEGERS;
    to_pairs = to_pairs && in_groups; /* sums of all elements add up the parts by themselves */
    if (how->exactly || (by_segment && (integers || to_pairs))) {
        bool in_f64 = integers || from->load == GR_LOAD_f64;
        how->halves = wide;
        if (to_pairs)
            how->elements = in_f64 ? GR_DTYPE_complex128 : GR_DTYPE_complex64;
        else if (integers)
            how->elements = GR_DTYPE_float64;
    } else if (!is_read || to_pairs) {
        how->elements = (int)how->result;
    }
    if (how->elements >= 0)
        how->load = gr_dtype_rows[how->elements].load;
}

gr_how gr_how_of(int source, int wanted, bool exactly, int place, int groups)
{
    if (source < 0 || source >= GR_DTYPE_COUNT || wanted < -1 || wanted >= GR_DTYPE_COUNT ||
        place < 0 || place >= GR_PLACE_COUNT || groups < 0 || groups >= GR_GROUPS_COUNT)
        return (gr_how){.refusal = GR_NO_DTYPE};
    const gr_dtype_row *from = &gr_dtype_rows[source];
    gr_dtype result = wanted < 0 ? from->result : (gr_dtype)wanted;
    const gr_dtype_row *to = &gr_dtype_rows[result];
    bool always =
        groups == GR_GROUPS_IDS || (groups == GR_GROUPS_OFFSETS && place == GR_ON_PROCESSORS);
    gr_how how = {
        .result = result,
        .elements = -1,
        .load = from->load,
        .parts = from->parts,
        .sum_parts = to->parts,
        .target = to->load,
        .exactly = (exactly || always) && has_floats(to),
    };
    if (result == GR_DTYPE_bool)
        how.refusal = GR_NO_SUM;
    else if (has_floats(from) > has_floats(to) || from->parts > to->parts)
        how.refusal = GR_LOSES_PART;
    else if (has_floats(to))
        add_floats(&how, from, (gr_place)place, (gr_grouping)groups);
    else
        add_integers(&how, from, (gr_grouping)groups);
    return how;
}
