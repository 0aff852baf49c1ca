/* row_thread: one thread adds up one row.
 *
 * The obvious kernel. Neighbouring lanes read elements a whole row apart, so each lane fetches a
 * 32-byte sector of its own, and uses one element of it. The next turns of the loop use the other
 * elements of the sector, if it is still in the cache.
 *
 * Still wasted: sectors that are fetched again after they have left the cache. */
#include "parts/matrix.h"

template <typename In, typename Acc>
__global__ void __launch_bounds__(1024, 1)
    row_thread(const __grid_constant__ Matrix<In> in, const __grid_constant__ Sums<Acc> out)
{
    size_t grid = (size_t)gridDim.x * blockDim.x,
           first = (size_t)blockIdx.x * blockDim.x + threadIdx.x;

    for (size_t r = first; r < in.rows(); r += grid) {
        const In *row = in.row(r);
        Acc sum = 0;
        for (size_t c = 0; c < in.of.columns; c++)
            add_to(sum, row[c]);
        out.put(r, sum, in.terms_of(r));
    }
}
