/* running_tiles: running sums in one pass over memory, by decoupled look-back.
 *
 * Each block takes a tile of some lines: many elements of one line, or some of each of 32 columns.
 * It adds them up and publishes the sum in global memory. GR_RUNNING_STRETCH tiles make a stretch,
 * whose last block also publishes the sum of all elements up to its end. So each block adds up few
 * sums to know the sum before its tile. A ticket numbers the tiles in the order in which blocks
 * start. So a block waits only for blocks that already run.
 *
 * The order of all additions is fixed, so that sums in plain floats are the same in every run. With
 * plain floats, a block first makes the entries from its own elements, and adds the sum before the
 * tile when it is known. Entries whose rounding is not proven are left to running_again.
 *
 * Still wasted: each element is added twice, once for the tile's sum and once for its entry. */
#include "parts/running_tile.h"

template <typename In, typename Acc>
__global__ void __launch_bounds__(GR_RUNNING_BLOCK, is_proven<Acc> ? 4 : 5)
    running_tiles(gr_running_lines of, const __grid_constant__ Sums<Acc> out,
                  gr_running_memory memory)
{
    Run<Acc> *of_warps = shared_array<Run<Acc>>(), *before = of_warps + 2 * GR_RUNNING_BLOCK;
    unsigned *drawn = reinterpret_cast<unsigned *>(before + 32);
    In *elements = reinterpret_cast<In *>(drawn + 4);
    char *entries = reinterpret_cast<char *>(elements);
    if (out.of.bytes != sizeof(In))
        entries += of.in_tile / 32 * 33 * sizeof(In);
    if (threadIdx.x == 0)
        *drawn = atomicAdd(memory.ticket, 1u);
    __syncthreads();
    RunningTile<In, Acc> tile(of, memory, out.of.base, *drawn);
    tile.load(elements);
    __syncthreads();
    uint64_t begins = tile.beginnings();
    Run<Acc> total, run = {Acc(0), begins != 0};
    bool is_exact = tile.add_own(elements, begins, &run.sum);
    run = tile.scan(run, true, of_warps, &total);
    if (of.has_zero && tile.tile == 0 && tile.part == 0)
        store_zero(tile.line, out.of);
    if (of.looks_back)
        tile.tell(total);
    if constexpr (std::is_same<In, Acc>::value && std::is_floating_point<In>::value)
        if (of.looks_back && out.of.type == load_of<In>()) {
            tile.put_own(elements, entries, out.of, begins, is_exact, run.sum);
            tile.look_back(total, of_warps + GR_RUNNING_BLOCK, before);
            tile.store_after(elements, before[tile.column].sum);
            return;
        }
    if (of.looks_back) {
        tile.look_back(total, of_warps + GR_RUNNING_BLOCK, before);
        run = joined(before[tile.column], run);
    }
    bool is_done = tile.put_own(elements, entries, out.of, begins, is_exact, run.sum);
    if (!__syncthreads_and(is_done) && threadIdx.x == 0) {
        atomicExch(&memory.again[size_t(tile.tile) * of.strips + tile.strip], 1u);
        atomicMax(&memory.again_end[tile.strip], unsigned(tile.tile) + 1);
        atomicExch(memory.any_again, 1u);
    }
    tile.store(entries, out.of.bytes);
}
