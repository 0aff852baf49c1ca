/* segment_few: a block looks for the rows of some segments among few ids, and adds them up.
 *
 * With few rows, the launches that count them, put them in order and add them up take too long. So
 * each block reads all ids, and puts the rows of its own segments in order in shared memory. This
 * is the only launch. It also checks the ids. A block adds up a long segment by all of its threads.
 *
 * Still wasted: every block reads all ids, and one block alone adds up a long segment. */
#include "parts/segment_few.h"

template <typename In, typename Acc>
__global__ void __launch_bounds__(256, 2) segment_few(const __grid_constant__ gr_segment_job of)
{
    invite_next_kernel();
    wait_for_earlier_kernels();
    FewRows &few = few_rows<Acc>();
    const FewJob &own = few.job;
    if (!find_rows(of, few))
        return;
    for_each_segment<Acc>(
        own, of.lanes, of.columns, 1, PutNoWhole(), [&](const Part &part, const Target &target) {
            return put_sums<In, Acc>(own, part, target, [&](auto &sum, Sizes<In> &sizes) {
                sum = sum_of_rows<std::decay_t<decltype(sum)>, Acc>(own, part, sizes);
            });
        });
    __syncthreads();
    unsigned columns = column_lanes(of.columns);
    for (unsigned i = 0; i < few.long_count; i++) {
        Segment segment = segment_numbered(own, few.longs[i]);
        for (uint64_t tile = (uint64_t)blockIdx.y * columns; tile < of.columns;
             tile += (uint64_t)gridDim.y * columns) {
            uint64_t c = tile + threadIdx.x % columns;
            put_by_block<In>(own, segment.k, segment.rows, columns, c,
                             sum_by_block<In, Acc>(own, segment.rows, columns, c));
        }
    }
}
