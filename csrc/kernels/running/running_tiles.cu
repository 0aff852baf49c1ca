/* running_tiles: running sums in one pass over memory, by decoupled look-back.
 *
 * Each block takes a tile of some lines: many elements of one line, or some of each of 32 columns.
 * It adds them up and tells the other blocks that sum. Then it looks at the sums of the tiles
 * before it, until it finds one that has the sum of everything before itself. Tiles are numbered by
 * an atomic ticket: what a block waits for is done by blocks that already run.
 *
 * Tiles come in groups, and groups are added in their order, so that sums in plain floats are the
 * same in every run. Entries whose rounding is not proven are left to running_again.
 *
 * Still wasted: each element is added twice, once for the tile's sum and once for its entry. */
#include "parts/running.h"

template <typename In, typename Acc>
__global__ void __launch_bounds__(GR_RUNNING_BLOCK, is_proven<Acc> ? 2 : 4)
    running_tiles(gr_running_lines of, Sums<Acc> out, gr_running_memory memory)
{
    Run<Acc> *of_warps = shared_array<Run<Acc>>(), *totals = of_warps + GR_RUNNING_BLOCK;
    Run<Acc> *before = totals + 32;
    unsigned *drawn = reinterpret_cast<unsigned *>(before + 32);
    char *entries = reinterpret_cast<char *>(drawn + 4);
    In *staged = reinterpret_cast<In *>(entries);
    if (threadIdx.x == 0)
        *drawn = atomicAdd(memory.ticket, 1u);
    __syncthreads();
    RunningTile<In, Acc> tile(of, memory, *drawn);
    tile.each(out.of.base, [&](unsigned k, const Line<In> &line, size_t i) {
        staged[tile.padded(k)] = line.element(i);
    });
    __syncthreads();
    In x[GR_RUNNING_ITEMS];
    UNROLLED
    for (unsigned j = 0; j < GR_RUNNING_ITEMS; j++)
        if (j < tile.count())
            x[j] = staged[tile.own(j)];
    Run<Acc> total, run = tile.scan(tile.sum_of(x), of_warps, &total);

    if (of.looks_back)
        tile.look_back(total, totals, before);
    if (until_next(of, tile.begin)) {
        Run<Acc> all = before[tile.column];
        all.append(run);
        run = all;
    }
    if (of.has_zero && tile.tile == 0 && tile.part == 0)
        store_zero(Line<In>(of, out.of.base, tile.strip, tile.column), out.of);
    bool is_again = false;
    tile.each_own(x, [&](In element, unsigned j, bool begins) {
        if (begins)
            run.sum = Acc(0);
        add_to(run.sum, element);
        is_again |= !put_entry<In>(entries + tile.own(j) * out.of.bytes, out.of, run.sum);
    });
    is_again = __syncthreads_or(is_again);
    if (is_again && threadIdx.x == 0) {
        atomicExch(&memory.again[tile.tile / of.width * of.strips + tile.strip], 1u);
        atomicExch(memory.any_again, 1u);
    }
    tile.each(out.of.base, [&](unsigned k, const Line<In> &line, size_t i) {
        copy_bytes(line.entry(i), entries + tile.padded(k) * out.of.bytes, out.of.bytes);
    });
}
