/* column_thread: one thread adds up one column.
 *
 * The lanes of a warp read neighbouring columns, so every sector is used whole, without any
 * exchange between threads: along this axis the obvious kernel is a good one.
 *
 * Still wasted: with few columns most of the card is idle, and a thread has only one load in flight
 * at a time. */
#include "parts/matrix.h"

template <typename In, typename Acc>
__global__ void __launch_bounds__(1024, 1)
    column_thread(const __grid_constant__ Matrix<In> in, const __grid_constant__ Sums<Acc> out)
{
    size_t columns = in.of.columns, rows = in.of.rows, all = in.batches() * columns;
    size_t grid = (size_t)gridDim.x * blockDim.x;

    for (size_t k = (size_t)blockIdx.x * blockDim.x + threadIdx.x; k < all; k += grid) {
        size_t batch = k / columns, c = k % columns;
        Acc sum = 0;
        for (size_t r = 0; r < rows; r++)
            add_to(sum, in.row(batch * rows + r)[(int64_t)c * in.of.column_step]);
        out.put(k, sum, in.terms_of(batch, c));
    }
}
