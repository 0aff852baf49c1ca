/* Workers: the lanes, warps, blocks and stacks of an OS thread. They are laid out for a launch's
 * shape and reset for each team. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "threads/clock.h"
#include "emulator/runtime/fault.h"
#include "emulator/races/detector.h"
#include "emulator/runtime/shared_memory.h"
#include "emulator/scheduler/thread_end.h"

namespace gr
{

static void free_arrays(Worker *w)
{
    free_shared(w);
    free(w->lanes);
    free(w->warps);
    free(w->blocks);
    free(w->clusters);
    free(w->ready_warps);
    w->lanes = nullptr;
    w->warps = nullptr;
    w->blocks = nullptr;
    w->clusters = nullptr;
    w->ready_warps = nullptr;
    w->shape = Shape();
}

static void destroy(Worker *w)
{
    free_arrays(w);
    stacks_release(&w->stacks);
    free(w);
}

static void end(void *owned)
{
    destroy(static_cast<Worker *>(owned));
    worker = nullptr;
}
static const AtThreadEnd at_end(end);

void put_worker_aside(WorkerAside *aside)
{
    *aside = {worker, threadIdx, blockIdx, blockDim, gridDim, gr_shared};
    worker = nullptr;
    (void)at_end.keep(nullptr);
}

void take_worker_up(const WorkerAside *aside)
{
    if (worker)
        destroy(worker);
    worker = aside->worker;
    (void)at_end.keep(worker);
    threadIdx = aside->thread;
    blockIdx = aside->block;
    blockDim = aside->block_size;
    gridDim = aside->grid_size;
    gr_shared = aside->shared;
}

template <typename T> static T *make_array(size_t count, size_t alignment = alignof(T))
{
    if (alignment < sizeof(void *))
        alignment = sizeof(void *);
    void *array = nullptr;
    if (posix_memalign(&array, alignment, count * sizeof(T) + alignment) != 0)
        return nullptr;
    memset(array, 0, count * sizeof(T));
    return static_cast<T *>(array);
}

static bool same(const Shape &a, const Shape &b)
{
    return a.block.x == b.block.x && a.block.y == b.block.y && a.block.z == b.block.z &&
           a.cluster_blocks == b.cluster_blocks && a.team_blocks == b.team_blocks &&
           a.shared == b.shared && a.variables == b.variables;
}

static unsigned threads_of(dim3 size)
{
    return size.x * size.y * size.z;
}

static void lay_out_block(Worker *w, unsigned number, unsigned warps)
{
    const Shape *shape = &w->shape;
    unsigned threads = threads_of(shape->block), cluster = number / shape->cluster_blocks;
    Block *block = &w->blocks[number];
    block->own.warps = &w->warps[number * warps];
    block->own.warp_count = warps;
    block->barrier[GR_BLOCK] = &block->own;
    block->barrier[GR_CLUSTER] = &w->clusters[cluster];
    for (unsigned rank = 0; rank < warps * 32; ++rank) {
        Warp *warp = &block->own.warps[rank / 32];
        warp->index = number * warps + rank / 32;
        warp->block = block;
        if (rank >= threads)
            continue;
        Lane *lane = &w->lanes[warp->index * 32 + rank % 32];
        lane->warp = warp;
        lane->index = rank % 32;
        lane->thread = {rank % shape->block.x, rank / shape->block.x % shape->block.y,
                        rank / shape->block.x / shape->block.y};
    }
}

/* Returns false if out of memory. */
static bool lay_out(Worker *w, const Shape &shape)
{
    free_arrays(w);
    unsigned warps = (threads_of(shape.block) + 31) / 32;
    w->block_count = shape.team_blocks;
    w->warp_count = warps * w->block_count;
    w->lane_count = w->warp_count * 32;
    w->ready_words = (w->warp_count + 63) / 64;
    unsigned clusters = shape.team_blocks / shape.cluster_blocks;
    w->lanes = make_array<Lane>(w->lane_count);
    w->warps = make_array<Warp>(w->warp_count);
    w->blocks = make_array<Block>(w->block_count);
    w->clusters = make_array<Barrier>(clusters);
    w->ready_warps = make_array<uint64_t>(w->ready_words);
    w->shape = shape;
    if (!w->lanes || !w->warps || !w->blocks || !w->clusters || !w->ready_warps ||
        !make_shared(w) || !stacks_reserve(&w->stacks, w->lane_count)) {
        free_arrays(w);
        return false;
    }
    w->grid.warps = w->warps;
    w->grid.warp_count = w->warp_count;
    for (unsigned i = 0; i < clusters; ++i) {
        w->clusters[i].warp_count = warps * shape.cluster_blocks;
        w->clusters[i].warps = &w->warps[i * w->clusters[i].warp_count];
    }
    for (unsigned i = 0; i < w->block_count; ++i)
        lay_out_block(w, i, warps);
    return true;
}

static void find_builtins(Worker *w)
{
    uintptr_t at[] = {(uintptr_t)&threadIdx, (uintptr_t)&blockIdx, (uintptr_t)&blockDim,
                      (uintptr_t)&gridDim, (uintptr_t)&gr_shared};
    uintptr_t low = at[0], high = at[0];
    for (uintptr_t address : at) {
        low = address < low ? address : low;
        high = address > high ? address : high;
    }
    w->builtins = low;
    w->builtins_bytes = high + sizeof(dim3) - low;
}

Worker *worker_for(Launch *launch)
{
    Worker *w = worker;
    if (!w) {
        w = static_cast<Worker *>(calloc(1, sizeof *w));
        if (!w)
            return nullptr;
        if (!at_end.keep(w)) {
            free(w);
            return nullptr;
        }
        find_builtins(w);
        worker = w;
    }
    if (!same(w->shape, launch->shape) && !lay_out(w, launch->shape))
        return nullptr;
    w->launch = launch;
    w->until_look = w->look_every = 16;
    w->looked_ns = gr_now_ns();
    w->descending = launch->schedule == GR_SCHEDULE_REVERSE ||
                    (launch->schedule == GR_SCHEDULE_LOCKSTEP && launch->seed != 1);
    w->watch = thread_watch();
    gr_shared_name = nullptr;
    blockDim = launch->shape.block;
    gridDim = launch->grid;
    for (unsigned i = 0; i < w->block_count; ++i)
        w->blocks[i].barrier[GR_GRID] = launch->cooperative ? &w->grid : nullptr;
    return w;
}

static void reset_barrier(Barrier *barrier, unsigned live)
{
    barrier->live = live;
    barrier->arrived = 0;
    barrier->phase = 0;
    barrier->yes = 0;
}

/* Sets the index of the block at this position of the team. */
static void place_block(const Launch *launch, Block *block, uint64_t team, unsigned number)
{
    unsigned cluster_blocks = launch->shape.cluster_blocks;
    uint64_t cluster =
        team * (launch->shape.team_blocks / cluster_blocks) + number / cluster_blocks;
    unsigned rank = number % cluster_blocks;
    dim3 size = launch->cluster;
    uint64_t across = launch->grid.x / size.x, down = launch->grid.y / size.y;
    block->cluster_rank = rank;
    block->index.x = (unsigned)(cluster % across) * size.x + rank % size.x;
    block->index.y = (unsigned)(cluster / across % down) * size.y + rank / size.x % size.y;
    block->index.z = (unsigned)(cluster / across / down) * size.z + rank / size.x / size.y;
    const uint3 &at = block->index;
    block->rank = at.x + launch->grid.x * (at.y + launch->grid.y * at.z);
}

static void reset_team(Worker *w, uint64_t team)
{
    const Launch *launch = w->launch;
    unsigned threads = threads_of(w->shape.block);
    for (unsigned i = 0; i < w->warp_count; ++i) {
        Warp *warp = &w->warps[i];
        unsigned first = (i * 32) % (w->blocks[0].own.warp_count * 32), left = threads - first;
        warp->live = warp->ready = left >= 32 ? 0xffffffff : (1u << left) - 1;
        memset(warp->at, 0, sizeof warp->at);
        warp->meetings = 0;
        warp->gathering = 0;
        w->ready_warps[i / 64] |= 1ull << (i % 64);
    }
    for (unsigned i = 0; i < w->block_count; ++i) {
        reset_barrier(&w->blocks[i].own, threads);
        place_block(launch, &w->blocks[i], team, i);
        poison_shared(w, &w->blocks[i]);
    }
    for (unsigned i = 0; i < w->shape.team_blocks / w->shape.cluster_blocks; ++i)
        reset_barrier(&w->clusters[i], threads * w->shape.cluster_blocks);
    reset_barrier(&w->grid, threads * w->block_count);
    w->live = threads * w->block_count;
    w->schedule = launch->schedule;
    w->block = nullptr;
    w->faulted = false;
    w->vain = 0;
    w->wide_arrivals = 0;
    w->turns = 0;
    w->random = (launch->seed ^ (team + 1) * 0x9e3779b97f4a7c15) | 1;
    for (int i = 0; i < 4; ++i)
        random_next(&w->random); /* similar seeds start with similar numbers */
}

/* Prepares the worker for its next team; the fibers of a faulted team are never resumed. */
static void abandon_team(Worker *w)
{
    for (unsigned i = 0; i < w->lane_count; ++i) {
        w->lanes[i].saved = nullptr;
        w->lanes[i].ticket = 0;
    }
    memset(w->ready_warps, 0, w->ready_words * sizeof *w->ready_warps);
    stacks_abandon(&w->stacks);
}

void run_team(Worker *w, uint64_t team)
{
    reset_team(w, team);
    if (watched(w))
        watch_team(w);
    start_team(w, first_lane(w, &w->grid));
    if (w->faulted)
        abandon_team(w);
    else
        check_gaps(w);
}

} // namespace gr

gr_position gr_where(void)
{
    const gr::Worker *w = gr::worker;
    const gr::Launch *launch = w->launch;
    gr_position at;
    at.blocks = gridDim.x * gridDim.y * gridDim.z;
    at.block_rank = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    at.cluster_rank = w->block->cluster_rank;
    at.cluster_size = launch->shape.cluster_blocks;
    at.shared_stride = gr::shared_stride(launch->shape);
    at.cooperative = launch->cooperative;
    return at;
}
