/* segment_bounds: finds where each segment of sorted ids begins, or checks the caller's offsets.
 *
 * A segment begins where an id differs from the one before it. So sorted ids become offsets, and
 * segment_rows needs no atomics. If an id is below the one before it, the ids are not sorted: all
 * blocks stop, and other kernels add up. A block looks for such ids before it stores offsets of
 * empty segments (gaps), because unsorted ids have many gaps. */
#include "parts/segment_gaps.h"

/* index(row) is the id of a row. */
template <typename Index>
__device__ __forceinline__ void find_bounds(const gr_segment_job &of, Gaps *gaps, Index index)
{
    constexpr unsigned flight = 8;
    unsigned long long *unsorted = reinterpret_cast<unsigned long long *>(&of.state->unsorted);
    size_t turn = (size_t)gridDim.x * blockDim.x * flight;
    for (size_t base = (size_t)blockIdx.x * blockDim.x * flight; base < of.rows; base += turn) {
        /* atomicMax() with 0 reads what other blocks have found, and changes nothing. */
        bool is_over = threadIdx.x == 0 && atomicMax(unsorted, 0ull) != 0, has_gaps = false;
        unsigned long long id[flight], before[flight];
        size_t at = base + threadIdx.x, first = ~(size_t)0;
        for (unsigned k = 0; k < flight; k++) {
            size_t row = at + k * blockDim.x;
            id[k] = row < of.rows ? index(row) : 0;
            before[k] = threadIdx.x % 32 == 0 && row > 0 && row < of.rows ? index(row - 1) : 0;
        }
        for (unsigned k = 0; k < flight; k++) {
            size_t row = at + k * blockDim.x;
            unsigned long long neighbour = __shfl_up_sync(0xffffffffu, id[k], 1);
            before[k] = threadIdx.x % 32 ? neighbour : before[k];
            if (row < of.rows && id[k] >= of.segments)
                note_place(&of.state->bad, row);
            else if (row > 0 && row < of.rows && id[k] < before[k] && first == ~(size_t)0)
                first = row;
        }
        note_first_place(&of.state->unsorted, first);
        is_over |= first != ~(size_t)0;
        if (__syncthreads_or(is_over))
            return;
        for (unsigned k = 0; k < flight; k++)
            if (at + k * blockDim.x < of.rows)
                has_gaps |= put_bounds(of, gaps, at + k * blockDim.x, before[k], id[k]);
        if (__syncthreads_or(has_gaps))
            fill_all(of, gaps);
    }
}

template <typename In, typename Word>
__global__ void __launch_bounds__(256, 3) segment_bounds(gr_segment_job of)
{
    invite_next_kernel();
    wait_for_earlier_kernels();
    Gaps *gaps = shared_array<Gaps>();
    auto any = [&of](size_t i) { return index_at(of.index, i); };
    auto use = [&](auto index) {
        if (of.by_offsets)
            check_offsets(of, index);
        else
            find_bounds(of, gaps, index);
    };
    if (threadIdx.x == 0)
        gaps->count = 0;
    __syncthreads();
    if (!with_usual_index(of.index, use))
        use(any);
}
