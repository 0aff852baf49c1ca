/* segment_few_packs: as segment_few, for rows that consist of packs of 16 bytes.
 *
 * The threads of a block that adds up a long segment have packs of different rows in flight.
 *
 * Still wasted: what segment_few wastes. */
#include "parts/segment_few.h"
#include "parts/segment_packs.h"

/* Adds up a long segment: its columns from piece `tile` on, one pack per thread. */
template <typename In, typename Acc>
DEVICE_FUNCTION void put_long(const FewJob &of, uint64_t k, const Bounds &rows, uint64_t tile,
                              unsigned pieces)
{
    constexpr unsigned width = Pack<In>::count, flight = sizeof(In) == 2 ? 4 : 8;
    uint64_t piece = tile + threadIdx.x % pieces, first = piece - tile;
    bool exists = (piece + 1) * width <= of.columns;
    uint64_t c = exists ? piece * width : 0;
    const char *column = static_cast<const char *>(of.values.base) + column_offset(of.values, c);
    Part part = {column, rows.begin, rows.end, threadIdx.x / pieces, blockDim.x / pieces, true};
    Target target = {place_in_out(of, k, c), c, exists && threadIdx.x < pieces, pieces, pieces};
    Columns<In, Acc> sums;
    add_rows<flight>(sums, of, part, exists ? unsigned(rows.end - rows.begin) : 0);
    for (auto &sum : sums.sum) {
        sum = block_sums(sum, shared_array<Acc>(), pieces);
        __syncthreads();
    }
    if (target.stores && of.in_place)
        sums.add(sums.load(reinterpret_cast<const In *>(target.to)));
    unsigned again = 0;
    if (target.stores)
        again = sums.template put<RowTerms>(target.sums<Acc>(of), target.number);
    for (unsigned i = 0; __syncthreads_or(again) && i < pieces * width; i++) {
        if (__syncthreads_or(first == i / width && again >> i % width & 1))
            add_segment_again_by_block(of, k, tile * width + i, rows);
    }
}

template <typename In, typename Acc>
__global__ void __launch_bounds__(256, 2)
    segment_few_packs(const __grid_constant__ gr_segment_job of)
{
    invite_next_kernel();
    wait_for_earlier_kernels();
    FewRows &few = few_rows<Acc>();
    const FewJob &own = few.job;
    if (!find_rows(of, few))
        return;
    add_by_packs<In, Acc>(own);
    __syncthreads();
    uint64_t all = of.columns / Pack<In>::count;
    unsigned pieces = column_lanes(all);
    for (unsigned i = 0; i < few.long_count; i++) {
        Segment segment = segment_numbered(own, few.longs[i]);
        for (uint64_t tile = (uint64_t)blockIdx.y * pieces; tile < all;
             tile += (uint64_t)gridDim.y * pieces)
            put_long<In, Acc>(own, segment.k, segment.rows, tile, pieces);
    }
}
