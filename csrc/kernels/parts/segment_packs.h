/* Sums of segments whose rows consist of packs: kernels/segments/segment_packs.cu. */
#ifndef GPUREDUCE_KERNEL_SEGMENT_PACKS_H
#define GPUREDUCE_KERNEL_SEGMENT_PACKS_H

#include "columns.h"
#include "segment_rows.h"

/* Adds this lane's packs of `count` rows, `flight` packs at once. Rows lie one after another in
 * memory, or their numbers do in `order`. */
template <unsigned flight, typename In, typename Acc, typename Sum>
__device__ __forceinline__ void add_rows(Columns<In, Acc, Sum> &sums, const gr_segment_job &of,
                                         const Part &part, unsigned count)
{
    unsigned i = part.member, next[flight]; /* numbers of rows, loaded before they are needed */
    const unsigned *order = part.in_order ? of.order + part.begin : NULL;
    const char *first = part.column + (order ? 0 : (int64_t)part.begin * of.values.row_step);
    auto look_up = [&] {
        for (unsigned k = 0; order && k < flight; k++)
            next[k] = i + k * part.members < count ? order[i + k * part.members] : 0;
    };
    look_up();
    while (i < count) {
        unsigned here = i;
        Pack<unsigned> pack[flight];
        for (unsigned k = 0; k < flight; k++) {
            unsigned at = i + k * part.members;
            uint64_t row = order ? row_in(of, next[k]) : at;
            pack[k] = {{0, 0, 0, 0}};
            if (at < count)
                pack[k] = sums.load(
                    reinterpret_cast<const In *>(first + (int64_t)row * of.values.row_step));
        }
        i += flight * part.members;
        if (i < count)
            look_up();
        if constexpr (is_short<Acc, Sum>) {
            for (unsigned k = 0; k < flight; k++)
                if (here + k * part.members < count)
                    sums.add(pack[k]);
        } else {
            sums.add(pack);
        }
    }
}

/* Adds up and stores the segments of a warp. If Sum might round one of them, stores nothing and
 * returns false in all lanes. Sets *is_put to false if this lane has marked a sum as unproven. */
template <typename Sum, typename In, typename Acc>
__device__ __forceinline__ bool put_packs(const gr_segment_job &of, const Part &part,
                                          const Target &target, bool *is_put)
{
    Columns<In, Acc, Sum> sums;
    constexpr unsigned few = 2, flight = sizeof(In) == 2 ? 4 : 8;
    unsigned count = (unsigned)(part.end - part.begin), longest = largest_in_warp(count);
    unsigned most = longest + (of.in_place != 0);
    if (is_short<Acc, Sum> && most > sums.sizes.few)
        return false;
    Pack<unsigned> held = {{0, 0, 0, 0}};
    if (of.in_place && target.stores)
        held = sums.load(reinterpret_cast<const In *>(target.to));
    if (is_short<Acc, Sum> && longest <= few * part.members) /* fewer instructions */
        add_rows<few>(sums, of, part, count);
    else
        add_rows<flight>(sums, of, part, count);
    if (of.in_place && target.stores)
        sums.add(held);
    if (is_short<Acc, Sum> && !sums.sizes.allow_in_warp(most))
        return false;
    for (auto &sum : sums.sum)
        sum = sum_of_lanes(sum, target.lanes, target.with_own);
    unsigned again = 0;
    if (target.stores)
        again = sums.template put<RowTerms>(target.sums<Acc>(of), target.number);
    *is_put = again == 0;
    MOSTLY_ONCE
    for (; again; again &= again - 1)
        mark_unproven(of.sums, target.number + (unsigned)__ffs((int)again) - 1);
    return true;
}

/* The sum of two floats, correctly rounded. A sum of 16-bit floats is rounded to 24 bits first.
 * This does no harm: 24 bits are at least twice the bits of the elements, and two more. */
template <typename T> __device__ __forceinline__ T sum_of_two(T a, T b)
{
    using Wide = std::conditional_t<sizeof(T) == 2, float, T>;
    return converted<T>(Wide(a) + Wide(b));
}

/* Stores the sums of segments that have at most two terms each: their rows, and what `out` holds.
 * A lane adds several packs at once, without the registers that a proof takes. Returns false in all
 * lanes of a warp if one of its segments has more terms, or if sums have another form. */
template <typename In, typename Acc>
__device__ __forceinline__ bool put_pairs(const gr_segment_job &of, uint64_t k, const Bounds &rows,
                                          bool stores)
{
    constexpr unsigned width = Pack<In>::count, flight = 4;
    uint64_t count = stores ? rows.end - rows.begin : 0, pieces = of.columns / width;
    char *out = place_in_out(of, k, 0);
    bool has_form = is_proven<Acc> && of.sums.type == load_of<In>() && !of.sums.has_initial &&
                    (uintptr_t)out % 16 == 0;
    if (__any_sync(0xffffffffu, count + (of.in_place != 0) > 2) || !has_form)
        return false;
    bool in_order = needs_order(of);
    auto row = [&](uint64_t i) {
        uint64_t number = in_order ? row_in(of, of.order[rows.begin + i]) : rows.begin + i;
        return (const char *)of.values.base + (int64_t)number * of.values.row_step;
    };
    const char *first = count > 0 ? row(0) : NULL;
    const char *second = of.in_place ? out : count > 1 ? row(1) : NULL;
    uint64_t p = (uint64_t)blockIdx.y * of.lanes + threadIdx.x % of.lanes;
    uint64_t turn = (uint64_t)gridDim.y * of.lanes;
    for (; stores && p < pieces; p += flight * turn) {
        Pack<In> a[flight] = {}, b[flight] = {};
        for (unsigned j = 0; j < flight; j++) {
            uint64_t at = (p + j * turn) * 16;
            if (p + j * turn < pieces && first)
                a[j] = *reinterpret_cast<const Pack<In> *>(first + at);
            if (p + j * turn < pieces && second)
                b[j] = *reinterpret_cast<const Pack<In> *>(second + at);
        }
        for (unsigned j = 0; j < flight; j++) {
            In one[width], other[width];
            memcpy(one, &a[j], sizeof one);
            memcpy(other, &b[j], sizeof other);
            for (unsigned i = 0; i < width; i++)
                one[i] = alone(sum_of_two(one[i], other[i]));
            memcpy(&a[j], one, sizeof one);
            if (p + j * turn < pieces)
                *reinterpret_cast<Pack<In> *>(out + (p + j * turn) * 16) = a[j];
        }
    }
    return true;
}

/* Adds up all segments of a job by packs. */
template <typename In, typename Acc, typename Job>
__device__ __forceinline__ void add_by_packs(const Job &of)
{
    constexpr unsigned width = Pack<In>::count;
    using Short = ShortSum<Acc, In>;
    auto put_whole = [&](uint64_t k, const Bounds &rows, bool stores) {
        return put_pairs<In, Acc>(of, k, rows, stores);
    };
    auto add = [&](const Part &part, const Target &target) {
        bool is_put;
        if (!is_short<Acc, Short> || !put_packs<Short, In, Acc>(of, part, target, &is_put))
            put_packs<Acc, In, Acc>(of, part, target, &is_put);
        return is_put;
    };
    for_each_segment<Acc>(of, of.lanes, of.columns / width, width, put_whole, add);
}

#endif
