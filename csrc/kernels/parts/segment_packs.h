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

#endif
