/* segment_few: a warp looks for the rows of a segment among few ids, and adds them up.
 *
 * With few rows, the launches that count them, put them in order and add them up take too long. So
 * each warp reads all ids itself, and this is the only launch. It also checks the ids.
 *
 * Still wasted: the warp of each segment reads all ids. */
#include "parts/segment_few.h"

template <typename In, typename Acc>
__global__ void __launch_bounds__(256, 3) segment_few(const __grid_constant__ gr_segment_job of)
{
    invite_next_kernel();
    wait_for_earlier_kernels();
    constexpr unsigned all = 0xffffffffu, flight = 8;
    unsigned lane = threadIdx.x % 32;
    uint64_t number = ((uint64_t)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    uint64_t c = (uint64_t)blockIdx.y * 32 + (of.columns == 1 ? 0 : lane), first = ~0ull;
    uint64_t k = number < numbers_of(of) ? segment_of(of, number) : 0;
    const char *column = static_cast<const char *>(of.values.base) + column_offset(of.values, c);
    auto value_of = [&](uint64_t row) {
        return *reinterpret_cast<const In *>(column + (int64_t)row * of.values.row_step);
    };
    bool is_wrong = false;
    Acc sum = 0;

    for (uint64_t base = 0; base < of.rows; base += 32) {
        unsigned long long id = base + lane < of.rows ? index_at(of.index, base + lane) : ~0ull;
        bool is_mine = id == k && base + lane < of.rows;
        is_wrong |= base + lane < of.rows && id >= of.segments;
        unsigned found = __ballot_sync(all, is_mine);
        if (found && first == ~0ull)
            first = base + __ffs((int)found) - 1;
        if (of.columns == 1 && is_mine)
            add_to(sum, value_of(base + lane));
        while (found && of.columns > 1) {
            In value[flight];
            for (unsigned j = 0; j < flight; j++, found &= found - 1)
                value[j] = found && c < of.columns ? value_of(base + __ffs((int)found) - 1) : In{};
            add_pieces_to<In>(sum, value);
        }
    }
    is_wrong = __any_sync(all, is_wrong);
    if (is_wrong && of.stops)
        __trap();
    if (of.columns == 1)
        sum = sum_of_lanes(sum, 32, 1);
    bool is_none = number >= numbers_of(of) || (of.by_row && first != number);
    if (is_wrong || is_none || (of.in_place && first == ~0ull))
        return;
    put_few(of, k, c, c < of.columns && (of.columns > 1 || lane == 0), sum);
}
