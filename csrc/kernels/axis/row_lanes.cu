/* row_lanes: a `team` of lanes, or a block, adds up one row, an element per lane and step.
 *
 * The lanes read neighbouring elements, eight of them each before they add, and shuffles add up the
 * lanes' sums. A team is as small as a row needs. Rows may have gaps between their elements. If
 * there are few rows, they are cut into `shares`. A second launch of this kernel adds up the sums
 * of the shares, which may have any type. Other kernels that cut sums into shares launch it, too.
 *
 * Still wasted: loads of one element each. */
#include "parts/matrix.h"

template <typename In, typename Acc>
__global__ void __launch_bounds__(1024, 1)
    row_lanes(const __grid_constant__ Matrix<In> in, const __grid_constant__ Sums<Acc> out,
              unsigned team, unsigned shares)
{
    constexpr unsigned flight = sizeof(In) <= 8 ? 8 : 4;
    unsigned teams = blockDim.x / team, member = threadIdx.x % team;
    size_t count = in.rows() * shares, apart = (size_t)gridDim.x * teams;

    for (size_t first = (size_t)blockIdx.x * teams; first < count; first += apart) {
        size_t number = first + threadIdx.x / team, columns = in.of.columns;
        bool exists = number < count;
        size_t row = shares > 1 ? number / shares : number, share = number - row * shares;
        size_t begin = shares > 1 ? columns * share / shares : 0;
        size_t end = shares > 1 ? columns * (share + 1) / shares : columns;
        Strided<In> terms = in.terms_of(exists ? row : 0);
        Acc sum = 0;
        for (size_t c = begin + member; exists && c < end; c += flight * team) {
            In element[flight];
            for (unsigned k = 0; k < flight; k++)
                element[k] =
                    c + k * team < end ? terms.first[int64_t(c + k * team) * terms.step] : In{};
            for (unsigned k = 0; k < flight; k++)
                add_to(sum, element[k]);
        }
        sum = team_sum(sum, team);
        if (team > 32) {
            out.put_by_block(out.place(number), number, sum, terms);
            continue;
        }
        bool is_done =
            member || !exists || out.template is_put<Strided<In>>(out.place(number), number, sum);
        out.put_again_by_warp(!is_done, number, 1, [&](size_t k) { return in.terms_of(k); });
    }
}
