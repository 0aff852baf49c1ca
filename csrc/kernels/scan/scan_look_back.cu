/* scan_look_back: one launch. Each element is read once and written once, as a copy does.
 *
 * Each warp makes running sums of its part of the block's tile, 32 elements at a time. Then the
 * block publishes the sum of its tile in `work`. And it looks back: one warp adds the sums of the
 * 32 tiles before its own, and of 32 more, until it finds a tile that has published the sum of all
 * elements up to its end. Then the block publishes the same sum for its own tile.
 *
 * A block waits only for tiles with lower numbers. Tiles are numbered by a ticket that is drawn
 * when a block starts, so those blocks have started, too, and no order of blocks causes a deadlock.
 * `__threadfence` makes a sum visible before the mark that announces it.
 *
 * Still wasted: the other warps wait while one looks back. And how far it must look depends on the
 * other blocks, so floats are added in an order that changes from run to run. */
#include "parts/scan.h"

enum { UNKNOWN, OF_TILE, UP_TO_TILE }; /* which sum of a tile is published */

template <typename In, typename Acc>
__global__ void scan_look_back(In in, Acc *out, size_t n, Acc *work, unsigned *ticket)
{
    constexpr unsigned each = 8; /* elements of a thread */
    Acc *before = shared_array<Acc>() + 32;
    unsigned tid = threadIdx.x, lane = tid % 32, *known = ticket + 1, *drawn = known + gridDim.x;
    Acc *of_tile = work, *up_to_tile = work + gridDim.x;

    if (tid == 0)
        drawn[blockIdx.x] = atomicAdd(ticket, 1u);
    __syncthreads();
    unsigned tile = drawn[blockIdx.x];
    size_t first = ((size_t)tile * blockDim.x + tid - lane) * each + lane;

    Acc entry[each], of_warp = 0, sum;
    for (unsigned k = 0; k < each; k++) {
        size_t i = first + k * 32;
        entry[k] = of_warp + warp_scan(i < n ? Acc(in[i]) : Acc(0));
        of_warp = __shfl_sync(0xffffffffu, entry[k], 31);
    }
    Acc earlier = block_scan(lane == 31 ? of_warp : Acc(0), &sum); /* lane 0: of earlier warps */
    earlier = __shfl_sync(0xffffffffu, earlier, 0);

    if (tid < 32) {
        if (lane == 0)
            of_tile[tile] = sum;
        __threadfence();
        if (lane == 0)
            atomicExch(&known[tile], OF_TILE);
        Acc all = 0;
        for (unsigned end = tile, ends = 0; end > 0 && !ends; end = end > 32 ? end - 32 : 0) {
            unsigned k = end - 1 - lane, found = lane < end ? UNKNOWN : OF_TILE;
            while (found == UNKNOWN && (found = load_current(&known[k])) == UNKNOWN)
                __nanosleep(20);
            __threadfence();
            ends = __ballot_sync(0xffffffffu, found == UP_TO_TILE);
            bool is_near = lane < end && (ends & ((1u << lane) - 1)) == 0;
            Acc *of = found == UP_TO_TILE ? up_to_tile : of_tile;
            all = warp_sum(is_near ? of[k] : Acc(0)) + all;
        }
        if (lane == 0) {
            *before = all;
            up_to_tile[tile] = all + sum;
        }
        __threadfence();
        if (lane == 0)
            atomicExch(&known[tile], UP_TO_TILE);
    }
    __syncthreads();
    for (unsigned k = 0; k < each; k++)
        if (first + k * 32 < n)
            out[first + k * 32] = *before + earlier + entry[k];
}
