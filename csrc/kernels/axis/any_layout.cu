/* any_layout: sums along any axes of an array with any steps, element type and mask.
 *
 * One thread adds up a sum if neighbouring sums are closer in memory than the elements of a sum.
 * Otherwise, a `team` of lanes or a block does. So the lanes of a warp read elements that lie close
 * together. If there are few sums, the elements of each are cut into `shares` of one team each, and
 * a second launch, of row_lanes, adds up the sums of the shares.
 *
 * Still wasted: a division per dimension and element; and loads of one element, not of 16 bytes. */
#include "parts/layout.h"
#include "parts/matrix.h"

template <typename In, typename Acc>
__global__ void __launch_bounds__(1024, 1)
    any_layout(const __grid_constant__ gr_layout of, const __grid_constant__ Sums<Acc> out,
               size_t sums, size_t terms, unsigned team, unsigned shares)
{
    unsigned teams = blockDim.x / team, member = threadIdx.x % team;
    size_t count = sums * shares, apart = (size_t)gridDim.x * teams;
    for (size_t first = (size_t)blockIdx.x * teams; first < count; first += apart) {
        size_t number = first + threadIdx.x / team;
        bool exists = number < count, stores = exists && member == 0;
        /* Neighbouring lanes read neighbouring elements: of the same share if `team` is 1. */
        size_t k = team == 1 ? number % sums : number / shares;
        size_t share = team == 1 ? number / sums : number % shares;
        Place place(of.dim, of.kept, k);
        Acc sum = 0;
        if (exists)
            add_elements(sum, of, place,
                         {terms * share / shares, terms * (share + 1) / shares, member, team});
        void *to = static_cast<char *>(out.of.base) + place.out;
        sum = team_sum(sum, team);
        if (out.of.is_partial) {
            if (stores)
                put_partial(out.of, k * shares + share, sum);
            if (team > 32)
                __syncthreads(); /* the next sum takes the same shared memory */
        } else if (team > 32)
            out.put_by_block(to, k, sum, Scattered{of, place});
        else if (stores && !out.template is_put<Scattered>(to, k, sum))
            out.put_again(to, k, Scattered{of, place});
    }
}
