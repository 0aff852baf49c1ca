/* any_layout: sums along any axes of an array with any steps, element type and mask.
 *
 * One thread adds up a sum if neighbouring sums are closer in memory than the elements of a sum.
 * Otherwise, a block does. So the lanes of a warp read elements that lie close together. If there
 * are few sums, the elements of each are cut into `shares` of one thread or block each, and a
 * second launch, of row_lanes, adds up the sums of the shares.
 *
 * Still wasted: a division per dimension and element; and loads of one element, not of 16 bytes. */
#include "parts/layout.h"
#include "parts/matrix.h"

template <typename In, typename Acc>
__global__ void __launch_bounds__(1024, 1)
    any_layout(const __grid_constant__ gr_layout of, Sums<Acc> out, size_t sums, size_t terms,
               unsigned team, unsigned shares)
{
    size_t teams = (size_t)gridDim.x * (blockDim.x / team);
    size_t number = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) / team;
    for (; number < sums * shares; number += teams) {
        size_t k = number / shares, share = number % shares, member = threadIdx.x % team;
        Place place(of.dim, of.kept, k);
        Acc sum = 0;
        add_elements(
            sum, of, place,
            {terms * share / shares, terms * (share + 1) / shares, (unsigned)member, team});
        void *to = static_cast<char *>(out.of.base) + place.out;
        if (team > 1)
            sum = block_sum(sum);
        if (out.of.is_partial) {
            if (member == 0)
                put_partial(out.of, number, sum);
            if (team > 1)
                __syncthreads(); /* the next sum takes the same shared memory */
        } else if (team > 1)
            out.put_by_block(to, k, sum, Scattered{of, place});
        else if (!out.template is_put<Scattered>(to, k, sum))
            out.put_again(to, k, Scattered{of, place});
    }
}
