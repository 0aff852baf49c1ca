/* segment_digits: a block adds up one sum in digits, where nothing is rounded.
 *
 * Other kernels (segment_rows, segment_merge, segment_join, ...) add up in float64 numbers that
 * nearly always prove how a sum is rounded. They mark the few sums without a proof, and those are
 * added up again here. For sums along an axis, exact_levels does so.
 *
 * Still wasted: three atomic additions per element. */
#include "parts/exact_words.h"
#include "parts/segment_rows.h"

template <typename In, typename Word> __global__ void segment_digits(gr_segment_job of)
{
    constexpr uint64_t room = (uint64_t)1 << 29; /* elements whose digits fit into 62 bits */
    const unsigned *bits = of.sums.unproven;
    uint64_t sums = of.segments * of.columns;

    if (!adds_rows(of) || !of.state->any_unproven)
        return;
    for (uint64_t i = blockIdx.x; i < sums; i += gridDim.x) {
        if (!(bits[i / 32] >> i % 32 & 1))
            continue;
        uint64_t k = i / of.columns, c = i % of.columns;
        const char *column =
            static_cast<const char *>(of.values.base) + column_offset(of.values, c);
        long long *shared = gathering()->value;
        if (threadIdx.x < 32) { /* the block's loops need equal bounds, even if offsets change */
            Bounds rows = rows_of(of, k);
            if (threadIdx.x == 0) {
                shared[0] = (long long)rows.begin;
                shared[1] = (long long)rows.end;
            }
        }
        clear_words();
        __syncthreads();
        uint64_t last = (uint64_t)shared[1];
        for (uint64_t begin = (uint64_t)shared[0]; begin < last; begin += room) {
            uint64_t end = begin + room < last ? begin + room : last;
            for (uint64_t i = begin + threadIdx.x; i < end; i += blockDim.x) {
                uint64_t row = needs_order(of) ? row_in(of, of.order[i]) : i;
                deposit(element_at<double>(column + (int64_t)row * of.values.row_step, 0, of.load));
            }
            __syncthreads();
            if (threadIdx.x == 0)
                carry_digits(gathering()->word);
            __syncthreads();
        }
        if (threadIdx.x == 0) {
            deposit(initial_of<double>(of.sums, c));
            store_bits(place_of_sum(of, k, c), round_words(of.sums.type), of.sums.bytes);
        }
        __syncthreads();
    }
}
