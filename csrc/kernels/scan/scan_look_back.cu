/* scan_look_back: one launch. Each element is read once and written once, as a copy does.
 *
 * A block tells the sum of its tile to the blocks behind it. Then it looks back, tile by tile: it
 * adds the sums of the tiles before its own, until it comes to one that knows the sum of everything
 * up to its end. Now this block knows that sum, too, and tells it.
 *
 * A block waits only for tiles with lower numbers. Tiles are numbered by a ticket that is drawn
 * when a block starts, so those blocks have started, too, and no order of blocks can hang.
 * `__threadfence` keeps a sum from arriving after the mark that says it is there.
 *
 * Still wasted: one thread looks back while its block waits. And how far it must look depends on
 * the other blocks, so floats are added in an order that changes from run to run. */
#include "parts/scan.h"

enum { UNKNOWN, OF_TILE, UP_TO_TILE }; /* what is known of a tile */

template <typename In, typename Acc>
__global__ void scan_look_back(In in, Acc *out, size_t n, Acc *work, unsigned *ticket)
{
    constexpr unsigned each = 8; /* elements of a thread */
    Acc *before = shared_array<Acc>() + 32;
    unsigned tid = threadIdx.x, *known = ticket + 1, *drawn = known + gridDim.x;
    Acc *of_tile = work, *up_to_tile = work + gridDim.x;

    if (tid == 0)
        drawn[blockIdx.x] = atomicAdd(ticket, 1u);
    __syncthreads();
    unsigned tile = drawn[blockIdx.x];
    size_t first = (size_t)tile * each * blockDim.x + tid;

    Acc entry[each], sum = 0;
    for (unsigned k = 0; k < each; k++) {
        size_t i = first + k * blockDim.x;
        Acc own = i < n ? Acc(in[i]) : Acc(0);
        entry[k] = block_scan(tid == 0 ? sum + own : own, &sum);
    }

    if (tid == 0) {
        Acc earlier = 0;
        of_tile[tile] = sum;
        __threadfence();
        atomicExch(&known[tile], OF_TILE);
        for (unsigned k = tile, found = UNKNOWN; k > 0 && found != UP_TO_TILE; k--) {
            while ((found = load_current(&known[k - 1])) == UNKNOWN)
                __nanosleep(20);
            __threadfence();
            earlier = (found == UP_TO_TILE ? up_to_tile : of_tile)[k - 1] + earlier;
        }
        up_to_tile[tile] = earlier + sum;
        __threadfence();
        atomicExch(&known[tile], UP_TO_TILE);
        *before = earlier;
    }
    __syncthreads();

    for (unsigned k = 0; k < each; k++)
        if (first + k * blockDim.x < n)
            out[first + k * blockDim.x] = *before + entry[k];
}
