/* Sums of segments that are added up once more, in digits, where nothing is rounded.
 *
 * Kernels add up in float64 numbers that nearly always prove how a sum is rounded. The few sums
 * without a proof are added up here. */
#ifndef GPUREDUCE_KERNEL_SEGMENT_AGAIN_H
#define GPUREDUCE_KERNEL_SEGMENT_AGAIN_H

#include "exact_levels.h"
#include "segment_places.h"

/* The initial value of a sum of column c, which lies at `to`. */
__device__ __forceinline__ double begin_of(const gr_segment_job &of, const char *to, uint64_t c)
{
    return of.in_place ? element_at<double>(to, 0, of.load) : initial_of<double>(of.sums, c);
}

/* The elements of a column in the rows from `begin` on, which is a place as in Bounds. */
struct RowTerms {
    const gr_segment_job &of;
    const char *column;
    uint64_t begin;

    __device__ __forceinline__ int spare() const
    {
        return 0;
    }

    template <typename Use> __device__ __forceinline__ void each(const Share &part, Use use) const
    {
        bool in_order = needs_order(of);
        for (size_t i = begin + part.first; i < begin + part.end; i += part.step) {
            uint64_t row = in_order ? row_in(of, of.order[i]) : i;
            use(element_at<double>(column + (int64_t)row * of.values.row_step, 0, of.load));
        }
    }
};

template <> constexpr bool can_add_again<RowTerms> = true;

/* Adds up the marked sums of a warp's segments again, by all of its lanes. `per_warp`: the segments
 * of a turn of for_each_segment(). Warps with other columns of the same segments look for marks,
 * too: the first one takes a sum. Called after that loop, in which a call would take registers. */
template <typename Job> DEVICE_FUNCTION void add_marked_again(const Job &of, unsigned per_warp)
{
    uint64_t warps = threads_of(of) / 32, all = numbers_of(of);
    uint64_t first = thread_of(of) / 32 * per_warp;
    unsigned lane = threadIdx.x % 32;
    MOSTLY_ONCE
    for (; first < all; first += warps * per_warp) {
        uint64_t end = (first + per_warp < all ? first + per_warp : all) * of.columns;
        for (uint64_t base = first * of.columns; base < end; base += 32) {
            uint64_t i = base + lane;
            unsigned bit = 1u << i % 32;
            bool is_mine = i < end && (atomicOr(of.sums.unproven + i / 32, 0u) & bit) &&
                           (atomicAnd(of.sums.unproven + i / 32, ~bit) & bit);
            for (unsigned left = __ballot_sync(0xffffffffu, is_mine); left; left &= left - 1) {
                uint64_t number = base + (unsigned)__ffs((int)left) - 1, c = number % of.columns;
                Segment segment = segment_numbered(of, number / of.columns);
                char *to = place_in_out(of, segment.k, c);
                const char *column =
                    static_cast<const char *>(of.values.base) + column_offset(of.values, c);
                add_again(to, of.sums.type, of.sums.bytes, lane ? 0 : begin_of(of, to, c),
                          RowTerms{of, column, segment.rows.begin},
                          {lane, 32, segment.rows.end - segment.rows.begin}, 1);
            }
        }
    }
}

/* Adds up the sum of segment k and column c again by a block, whose shared memory has room for
 * GR_LEVELS_WORDS words, and for the bounds. All threads take the bounds of the first thread. */
__device__ __forceinline__ void add_segment_again_by_block(const gr_segment_job &of, uint64_t k,
                                                           uint64_t c, const Bounds &rows)
{
    unsigned long long *bounds = shared_array<unsigned long long>() + GR_LEVELS_WORDS;
    if (threadIdx.x == 0) { /* the block's loops need equal bounds, even if offsets change */
        bounds[0] = rows.begin;
        bounds[1] = rows.end > rows.begin ? rows.end - rows.begin : 0;
    }
    __syncthreads();
    const char *column = static_cast<const char *>(of.values.base) + column_offset(of.values, c);
    char *to = place_of_sum(of, k, c);
    double first = threadIdx.x == 0 ? begin_of(of, to, c) : 0;
    add_again_by_block(to, of.sums.type, of.sums.bytes, first, RowTerms{of, column, bounds[0]},
                       bounds[1]);
}

#endif
