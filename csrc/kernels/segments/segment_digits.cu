/* segment_digits: a block adds up one sum in digits, where nothing is rounded.
 *
 * Other kernels (segment_rows, segment_tasks, segment_join, ...) add up in float64 numbers that
 * nearly always prove how a sum is rounded. They mark the few sums without a proof, and those are
 * added up again here. For sums along an axis, exact_levels does so.
 *
 * Still wasted: the elements are read twice, or more often if their sizes differ widely. */
#include "parts/exact_levels.h"
#include "parts/segment_rows.h"

/* The elements of a segment in one column. */
struct SegmentTerms {
    const gr_segment_job &of;
    const char *column;
    uint64_t begin;

    __device__ __forceinline__ int spare() const
    {
        return 0;
    }

    template <typename Use> __device__ __forceinline__ void each(const Share &part, Use use) const
    {
        for (size_t i = begin + part.first; i < begin + part.end; i += part.step) {
            uint64_t row = needs_order(of) ? row_in(of, of.order[i]) : i;
            use(element_at<double>(column + (int64_t)row * of.values.row_step, 0, of.load));
        }
    }
};

template <typename In, typename Word>
__global__ void segment_digits(const __grid_constant__ gr_segment_job of)
{
    const unsigned *bits = of.sums.unproven;
    uint64_t sums = numbers_of(of) * of.columns;

    stop_if_wrong(of);
    if (!adds_rows(of) || !of.state->any_unproven)
        return;
    for (uint64_t i = blockIdx.x; i < sums; i += gridDim.x) {
        if (!(bits[i / 32] >> i % 32 & 1))
            continue;
        uint64_t k = segment_of(of, i / of.columns), c = i % of.columns;
        unsigned long long *bounds = shared_array<unsigned long long>() + GR_LEVELS_WORDS;
        if (threadIdx.x < 32) { /* the block's loops need equal bounds, even if offsets change */
            Bounds rows = rows_of(of, k);
            if (threadIdx.x == 0) {
                bounds[0] = rows.begin;
                bounds[1] = rows.end > rows.begin ? rows.end - rows.begin : 0;
            }
        }
        __syncthreads();
        const char *values = static_cast<const char *>(of.values.base);
        SegmentTerms terms = {of, values + column_offset(of.values, c), bounds[0]};
        char *to = place_of_sum(of, k, c);
        double first = 0;
        if (threadIdx.x == 0)
            first =
                of.in_place ? element_at<double>(to, 0, of.load) : initial_of<double>(of.sums, c);
        add_again_by_block(to, of.sums.type, of.sums.bytes, first, terms, bounds[1]);
    }
}
