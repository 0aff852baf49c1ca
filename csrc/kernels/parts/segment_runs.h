/* Runs of equal ids: rows of sorted ids, as a warp adds them up. */
#ifndef GPUREDUCE_KERNEL_SEGMENT_RUNS_H
#define GPUREDUCE_KERNEL_SEGMENT_RUNS_H

#include "segment_rows.h"

/* Neighbouring rows, eight per lane of a warp. */
template <typename In> struct Strip {
    static constexpr unsigned rows = GR_STRIP_ROWS, each = rows / 32;
    unsigned long long id[each];
    In value[each];
};

/* Loads neighbours in memory by loads of up to 16 bytes. */
template <typename T, unsigned count>
__device__ __forceinline__ void load_neighbours(const T *at, T (&some)[count])
{
    using Bits = std::conditional_t<sizeof some >= 16, ulonglong2, unsigned long long>;
    constexpr unsigned loads = count * sizeof(T) / sizeof(Bits);
    Bits bits[loads];
    for (unsigned k = 0; k < loads; k++)
        bits[k] = __ldcs(reinterpret_cast<const Bits *>(at) + k);
    memcpy(some, bits, sizeof bits);
}

/* How ids and values lie in memory. */
enum Layout { ANY, WIDE_IDS, NARROW_IDS }; /* any; neighbours, with ids of 64 or of 32 bits */

template <typename In> __device__ __forceinline__ Layout layout_of(const gr_segment_job &of)
{
    bool is_packed = of.values.row_step == (int64_t)sizeof(In) &&
                     ((uintptr_t)of.values.base | (uintptr_t)of.index.base) % 16 == 0;
    if (is_packed && of.index.load == GR_LOAD_u64 && of.index.step == 8)
        return WIDE_IDS;
    return is_packed && of.index.load == GR_LOAD_i32 && of.index.step == 4 ? NARROW_IDS : ANY;
}

/* Loads this lane's rows: from number `row` on. If fewer than a lane's rows are left, the others
 * get the id of the last one, and the value 0. */
template <typename In>
__device__ __forceinline__ void load_strip(const gr_segment_job &of, Layout layout, uint64_t row,
                                           int left, Strip<In> &strip)
{
    const In *values = static_cast<const In *>(of.values.base);
    if (layout != ANY && left >= (int)strip.each) {
        if (layout == WIDE_IDS) {
            load_neighbours(static_cast<const unsigned long long *>(of.index.base) + row, strip.id);
        } else {
            int narrow[strip.each];
            load_neighbours(static_cast<const int *>(of.index.base) + row, narrow);
            for (unsigned k = 0; k < strip.each; k++)
                strip.id[k] = (unsigned long long)(long long)narrow[k];
        }
        load_neighbours(values + row, strip.value);
        return;
    }
    MOSTLY_ONCE
    for (int k = 0; k < (int)strip.each; k++) {
        const char *at =
            reinterpret_cast<const char *>(values) + (int64_t)(row + k) * of.values.row_step;
        unsigned long long id = index_at(of.index, k < left ? row + k : row + left - 1);
        In value = k < left ? *reinterpret_cast<const In *>(at) : In{};
        UNROLLED
        for (unsigned j = 0; j + 1 < strip.each; j++) { /* an index would need local memory */
            strip.id[j] = strip.id[j + 1];
            strip.value[j] = strip.value[j + 1];
        }
        strip.id[strip.each - 1] = id;
        strip.value[strip.each - 1] = value;
    }
}

/* Whether all rows of a strip have an id. */
template <typename In>
__device__ __forceinline__ bool is_all(const Strip<In> &strip, unsigned long long id)
{
    unsigned long long other = 0;
    for (unsigned k = 0; k < strip.each; k++)
        other |= strip.id[k] ^ id;
    return __all_sync(0xffffffffu, other == 0);
}

/* Notes the first id out of range, and the first one below the one before it. Returns whether there
 * is either, in all lanes. `before` is the id before this lane's first row. */
template <typename In>
__device__ __forceinline__ bool is_wrong(const gr_segment_job &of, uint64_t row,
                                         const Strip<In> &strip, unsigned long long before)
{
    bool falls = strip.id[0] < before, is_bad = strip.id[strip.each - 1] >= of.segments;
    uint64_t first = ~(uint64_t)0, bad = first;
    for (unsigned k = 1; k < strip.each; k++)
        falls |= strip.id[k] < strip.id[k - 1];
    if (!__any_sync(0xffffffffu, falls || is_bad))
        return false;
    for (unsigned k = strip.each; k-- > 0;) {
        first = strip.id[k] < (k ? strip.id[k - 1] : before) ? row + k : first;
        bad = strip.id[k] >= of.segments ? row + k : bad;
    }
    note_first_place(&of.state->unsorted, first);
    note_first_place(&of.state->bad, bad);
    return true;
}

/* Whether another warp has found an unsorted id in front of this row. */
__device__ __forceinline__ bool is_unsorted_before(const gr_segment_job &of, uint64_t row)
{
    unsigned long long *unsorted = reinterpret_cast<unsigned long long *>(&of.state->unsorted);
    bool found = threadIdx.x % 32 == 0 && ~atomicMax(unsorted, 0ull) < row;
    return __any_sync(0xffffffffu, found);
}

/* The sum over the lanes from the last of `heads` up to this one. `heads` has a bit for each lane
 * that begins a group. */
template <typename Sum> __device__ __forceinline__ Sum sum_since_head(Sum sum, unsigned heads)
{
    unsigned lane = threadIdx.x % 32, upto = heads & 0xffffffffu >> (31 - lane);
    unsigned head = upto ? 31 - (unsigned)__clz((int)upto) : 0;
    for (unsigned offset = 1; offset < 32; offset *= 2) {
        Sum other = __shfl_up_sync(0xffffffffu, sum, offset);
        if (lane >= head + offset)
            sum += other;
    }
    return sum;
}

/* A warp's run that has not ended yet. */
template <typename In, typename Acc> struct OpenRun {
    using Short = ShortSum<Acc, In>;
    unsigned long long id;
    bool is_first;   /* of this warp's rows: it may have begun before them */
    bool is_in_part; /* the sum is lane 31's `part`, of elements of these sizes. .. */
    Short part;
    Sizes<In> sizes;
    Acc sum; /* .. Otherwise it is that of `sum` over all lanes */

    __device__ __forceinline__ void add(const Strip<In> &strip)
    {
        if (is_in_part)
            sum = threadIdx.x % 32 == 31 ? Acc(part) : Acc(0);
        is_in_part = false;
        add_pieces_to<In>(sum, strip.value);
    }

    /* Begins with the sum of lane 31. */
    template <typename Sum>
    __device__ __forceinline__ void begin(unsigned long long new_id, Sum since)
    {
        id = __shfl_sync(0xffffffffu, new_id, 31);
        is_first = false;
        is_in_part = std::is_same<Sum, Short>::value;
        if constexpr (std::is_same<Sum, Short>::value)
            part = since;
        else
            sum = threadIdx.x % 32 == 31 ? since : Acc(0);
    }

    /* The sum, in all lanes. */
    __device__ __forceinline__ Acc total() const
    {
        if (is_in_part)
            return Acc(__shfl_sync(0xffffffffu, part, 31));
        return __shfl_sync(0xffffffffu, warp_sum(sum), 0);
    }
};

/* Stores a sum that may go on in other warps' rows: segment_join adds these up. `which`: 0 for the
 * first run of a warp's rows, 1 for the last. */
template <typename Acc>
__device__ __forceinline__ void put_end_of_rows(const gr_segment_job &of, uint64_t warp,
                                                unsigned which, unsigned long long id, Acc sum)
{
    of.task[2 * warp + which].segment = id;
    static_cast<Acc *>(of.partial)[2 * warp + which] = sum;
}

/* Stores a sum with a proof. Takes no job: its address would make threads copy the parameters. */
template <typename Acc>
DEVICE_FUNCTION void put_proven(char *to, gr_load type, double additions, unsigned *unproven,
                                unsigned *any_unproven, uint64_t k, Acc sum)
{
    gr_sums of;
    memset(&of, 0, sizeof of);
    of.type = type;
    of.additions = additions;
    of.unproven = unproven;
    of.any_unproven = any_unproven;
    finish_sum(to, of, k, sum);
}

/* Stores the sum of a run. */
template <typename Acc, typename Sum>
__device__ __forceinline__ void put_run(const gr_segment_job &of, uint64_t k, Sum sum)
{
    const gr_sums &sums = of.sums;
    char *to = of.staged + k * sums.bytes;
    if constexpr (is_short<Acc, Sum>) {
        double rounded;
        if (sums.type == GR_LOAD_f32 && fabs(sum) < INFINITY) {
            reinterpret_cast<float *>(of.staged)[k] = float(sum);
            return;
        }
        if (round_short(sums, sum, &rounded))
            return store_sum(to, sums, rounded);
    }
    if constexpr (is_proven<Acc>)
        put_proven(to, sums.type, sums.additions, sums.unproven, sums.any_unproven, k, Acc(sum));
    else
        store_sum(to, sums, sum);
}

/* Adds up a strip in which runs end. Sum: what adds up the strip's rows. `before` is the id before
 * this lane's first row. `opened`, in all lanes, is the sum of the open run before the strip, if
 * `is_known`: otherwise that run is not stored. Returns its sum in this strip, in the one lane for
 * which `*closes` is set. */
template <typename Sum, typename In, typename Acc>
__device__ __forceinline__ Sum add_ends(const gr_segment_job &of, const Strip<In> &strip,
                                        unsigned long long before, Sum opened, bool is_known,
                                        OpenRun<In, Acc> &open, bool *closes)
{
    bool ends[Strip<In>::each], any = false;
    Sum tail = 0, closed = 0;
    for (unsigned k = 0; k < strip.each; k++) {
        ends[k] = strip.id[k] != (k ? strip.id[k - 1] : before);
        if (ends[k])
            tail = 0;
        any |= ends[k];
        add_short<Acc>(tail, strip.value[k]);
    }
    unsigned heads = __ballot_sync(0xffffffffu, any), lane = threadIdx.x % 32;
    bool is_first = (heads & 0xffffffffu >> (31 - lane)) == 1u << lane;
    Sum since = sum_since_head(tail, heads), sum = __shfl_up_sync(0xffffffffu, since, 1);
    if (lane == 0)
        sum = 0;
    *closes = is_first && !is_known;
    if (is_first && is_known)
        sum += opened;
    for (unsigned k = 0; k < strip.each; k++) {
        if (ends[k]) {
            if (is_first && !is_known)
                closed = sum;
            else
                put_run<Acc>(of, k ? strip.id[k - 1] : before, sum);
            is_first = false;
            sum = 0;
        }
        add_short<Acc>(sum, strip.value[k]);
    }
    open.begin(strip.id[strip.each - 1], since);
    return closed;
}

/* Adds up a strip in which runs end: by short sums, if these are exact. The open run ends here. Its
 * sum is stored here if it is not short, or if the run may have begun before the warp's rows. */
template <typename In, typename Acc>
__device__ __forceinline__ void add_strip(const gr_segment_job &of, uint64_t warp,
                                          const Strip<In> &strip, unsigned long long before,
                                          OpenRun<In, Acc> &open)
{
    using Short = ShortSum<Acc, In>;
    unsigned long long id = open.id;
    Sizes<In> both = open.sizes, sizes;
    bool is_first = open.is_first, is_known = !is_first && open.is_in_part, closes;
    Short part = __shfl_sync(0xffffffffu, open.part, 31);
    Acc opened = 0;
    if constexpr (is_short<Acc, Short>)
        for (unsigned k = 0; k < strip.each; k++)
            sizes.take(strip.value[k]);
    bool fits = !is_short<Acc, Short> || sizes.allow_in_warp(strip.rows);
    open.sizes = sizes;
    both.take(sizes);
    is_known = is_known && fits && (!is_short<Acc, Short> || both.allow(2 * strip.rows));
    if (!is_known)
        opened = open.total();
    if (fits)
        opened += Acc(add_ends(of, strip, before, part, is_known, open, &closes));
    else
        opened += Acc(add_ends(of, strip, before, Acc(0), false, open, &closes));
    if (closes && is_first)
        put_end_of_rows(of, warp, 0, id, opened);
    else if (closes)
        put_run<Acc>(of, id, opened);
}

#endif
