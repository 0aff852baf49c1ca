/* Sums of segments whose rows may be any of a few rows: kernels/segments/segment_few.cu. */
#ifndef GPUREDUCE_KERNEL_SEGMENT_FEW_H
#define GPUREDUCE_KERNEL_SEGMENT_FEW_H

#include "segment_rows.h"

/* The elements of one column as terms: 0 in place of those of other segments than k. */
struct FewTerms {
    const gr_segment_job &of;
    const char *column;
    uint64_t k;

    __device__ __forceinline__ int spare() const
    {
        return 0;
    }

    template <typename Use> __device__ __forceinline__ void each(const Share &part, Use use) const
    {
        for (size_t row = part.first; row < part.end; row += part.step) {
            const char *at = column + (int64_t)row * of.values.row_step;
            use(index_at(of.index, row) == k ? element_at<double>(at, 0, of.load) : 0.0);
        }
    }
};

/* Rounds and stores the sum of segment k and column c in each lane that `stores` one. Sums that are
 * not proven are added up again by the warp, all of whose lanes call this function. */
template <typename Acc>
__device__ __forceinline__ void put_few(const gr_segment_job &of, uint64_t k, uint64_t c,
                                        bool stores, Acc sum)
{
    char *to = place_of_sum(of, k, c);
    if constexpr (!is_proven<Acc>) {
        if (stores)
            finish_sum(to, of.sums, c, sum);
    } else {
        if (of.in_place && stores)
            add_to(sum, begin_of(of, to, c));
        bool is_done = !stores || store_proven(to, of.sums, c, sum);
        const char *values = static_cast<const char *>(of.values.base);
        for (unsigned left = __ballot_sync(0xffffffffu, !is_done); left; left &= left - 1) {
            unsigned lane = threadIdx.x % 32;
            uint64_t again = __shfl_sync(0xffffffffu, (unsigned long long)c, __ffs((int)left) - 1);
            char *there = place_of_sum(of, k, again);
            add_again(there, of.sums.type, of.sums.bytes, lane ? 0 : begin_of(of, there, again),
                      FewTerms{of, values + column_offset(of.values, again), k},
                      {lane, 32, of.rows}, 1);
        }
    }
}

#endif
