/* segment_bounds: finds where each segment of sorted ids begins, or checks the caller's offsets.
 *
 * If an id differs from the one before it, a segment begins. So sorted ids become offsets, and
 * segment_rows needs no atomics. At an id below the one before it all blocks stop, before they fill
 * in gaps, of which unsorted ids have many; and segment_atomics adds up. */
#include "parts/segment_gaps.h"

__device__ __forceinline__ void check_offsets(const gr_segment_job &of)
{
    size_t first = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (size_t k = first; k <= of.segments; k += (size_t)gridDim.x * blockDim.x) {
        unsigned long long here = index_at(of.index, k);
        bool is_wrong = (k == 0 && here != 0) || (k == of.segments && here != of.rows) ||
                        (k < of.segments && index_at(of.index, k + 1) < here);
        if (is_wrong)
            note_place(&of.state->bad, k);
    }
}

template <typename In, typename Word>
__global__ void __launch_bounds__(256, 4) segment_bounds(gr_segment_job of)
{
    constexpr unsigned flight = 8;
    Gaps *gaps = shared_array<Gaps>();
    gr_segment_state *state = of.state;
    unsigned long long *unsorted = reinterpret_cast<unsigned long long *>(&state->unsorted);

    if (of.by_offsets)
        return check_offsets(of);
    if (threadIdx.x == 0)
        gaps->count = 0;
    __syncthreads();
    size_t turn = (size_t)gridDim.x * blockDim.x * flight;
    for (size_t base = (size_t)blockIdx.x * blockDim.x * flight; base < of.rows; base += turn) {
        bool is_over = threadIdx.x == 0 && atomicMax(unsorted, 0ull) != 0, has_gaps = false;
        unsigned long long id[flight], before[flight];
        for (unsigned k = 0; k < flight; k++) {
            size_t row = base + k * blockDim.x + threadIdx.x;
            id[k] = row < of.rows ? index_at(of.index, row) : 0;
            before[k] = row < of.rows && row > 0 ? index_at(of.index, row - 1) : 0;
        }
        size_t first = ~(size_t)0;
        for (unsigned k = 0; k < flight; k++) {
            size_t row = base + k * blockDim.x + threadIdx.x;
            if (row < of.rows && id[k] >= of.segments)
                note_place(&state->bad, row);
            else if (row > 0 && row < of.rows && id[k] < before[k] && first == ~(size_t)0)
                first = row;
        }
        note_first_place(&state->unsorted, first);
        is_over |= first != ~(size_t)0;
        if (__syncthreads_or(is_over))
            return;
        for (unsigned k = 0; k < flight; k++) {
            size_t row = base + k * blockDim.x + threadIdx.x;
            if (row >= of.rows || id[k] >= of.segments)
                continue;
            if (row == 0 || id[k] > before[k])
                has_gaps |= put_offsets(gaps, of.offsets, row ? before[k] + 1 : 0, id[k] + 1, row);
            if (row == of.rows - 1)
                has_gaps |= put_offsets(gaps, of.offsets, id[k] + 1, of.segments + 1, of.rows);
        }
        if (!__syncthreads_or(has_gaps))
            continue;
        unsigned count = gaps->count < Gaps::most ? gaps->count : Gaps::most;
        for (unsigned i = 0; i < count; i++)
            fill(of.offsets, gaps->begin[i], gaps->end[i], gaps->value[i], threadIdx.x, blockDim.x);
        __syncthreads();
        if (threadIdx.x == 0)
            gaps->count = 0;
        __syncthreads();
    }
}
