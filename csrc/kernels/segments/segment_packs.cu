/* segment_packs: as segment_rows, for rows that consist of packs of 16 bytes.
 *
 * A lane loads a pack at once, and adds up its columns. So a lane finds out where a segment's rows
 * are once for all these columns. A few lanes load a whole row, and the other lanes of the warp
 * load other rows.
 *
 * Still wasted: registers, for the sums of a pack's columns. */
#include "parts/columns.h"
#include "parts/segment_rows.h"

/* Adds this lane's packs. Rows lie one after another in memory, or their numbers do in `order`. */
template <typename In, typename Acc, typename Sum>
__device__ __forceinline__ void add_rows(Columns<In, Acc, Sum> &sums, const gr_segment_job &of,
                                         const Part &part)
{
    constexpr unsigned flight = sizeof(In) == 2 ? 4 : 8;
    uint64_t i = part.begin + part.member;
    unsigned next[flight]; /* numbers of rows, loaded before they are needed */
    auto look_up = [&] {
        for (unsigned k = 0; part.in_order && k < flight; k++)
            next[k] = i + k * part.members < part.end ? of.order[i + k * part.members] : 0;
    };
    look_up();
    while (i < part.end) {
        Pack<unsigned> pack[flight];
        for (unsigned k = 0; k < flight; k++) {
            uint64_t at = i + k * part.members;
            uint64_t row = part.in_order ? row_in(of, next[k]) : at;
            pack[k] = {{0, 0, 0, 0}};
            if (at < part.end)
                pack[k] = sums.load(
                    reinterpret_cast<const In *>(part.column + (int64_t)row * of.values.row_step));
        }
        i += flight * part.members;
        look_up();
        sums.add(pack);
    }
}

/* Adds up and stores the segments of a warp. If Sum might round one of them, stores nothing and
 * returns false in all lanes. */
template <typename Sum, typename In, typename Acc>
__device__ __forceinline__ bool put_packs(const gr_segment_job &of, const Part &part,
                                          const Target &target)
{
    Columns<In, Acc, Sum> sums;
    unsigned most = largest_in_warp((unsigned)(part.end - part.begin)) + (of.in_place != 0);
    if (is_short<Acc, Sum> && most > sums.sizes.few)
        return false;
    add_rows(sums, of, part);
    if (of.in_place && target.stores)
        sums.add(sums.load(reinterpret_cast<const In *>(target.to)));
    if (is_short<Acc, Sum> && !sums.sizes.allow_in_warp(most))
        return false;
    for (auto &sum : sums.sum)
        sum = sum_of_lanes(sum, target.lanes, target.with_own);
    if (target.stores)
        sums.template put<NoTerms>(target.sums<Acc>(of), target.number);
    return true;
}

template <typename In, typename Acc>
__global__ void __launch_bounds__(256, 2) segment_packs(gr_segment_job of)
{
    constexpr unsigned width = Pack<In>::count;
    using Short = ShortSum<Acc, In>;
    if (!adds_rows(of))
        return;
    for_each_segment(of, of.lanes, of.columns / width, width,
                     [&](const Part &part, const Target &target) {
                         if (!is_short<Acc, Short> || !put_packs<Short, In, Acc>(of, part, target))
                             put_packs<Acc, In, Acc>(of, part, target);
                     });
}
