/* Counts of one warp instruction: wavefronts and bank conflicts in shared memory, sectors in global
 * memory, lanes of atomics. */
#ifdef GR_EMULATOR_TRACED

#include "emulator/runtime/guard.h"
#include "emulator/runtime/shared_memory.h"
#include "emulator/trace/recorder.h"

#include <string.h>

namespace gr
{

static unsigned lanes_in(uint32_t mask)
{
    return (unsigned)__builtin_popcount(mask);
}

static void count_shared(const Count &count, PlaceRecord *place, const Instruction *instruction,
                         uint32_t mask, uintptr_t base)
{
    uint32_t offset[32] = {0};
    for (uint32_t lanes = mask; lanes; lanes &= lanes - 1) {
        int lane = __builtin_ctz(lanes);
        offset[lane] = (uint32_t)(instruction->address[lane] - base);
    }
    bool load = place->place.deed == LOAD;
    unsigned ideal,
        wavefronts = gr_shared_wavefronts(offset, mask, place->place.size, !load, &ideal);
    count.add(load ? GR_COUNT_shared_load_instructions : GR_COUNT_shared_store_instructions, 1);
    count.add(load ? GR_COUNT_shared_load_wavefronts : GR_COUNT_shared_store_wavefronts,
              wavefronts);
    count.add(load ? GR_COUNT_shared_load_conflicts : GR_COUNT_shared_store_conflicts,
              wavefronts - ideal);
    count.add(load ? GR_COUNT_shared_load_lanes : GR_COUNT_shared_store_lanes, lanes_in(mask));
    Pattern *worst = &place->worst;
    if (wavefronts > worst->wavefronts) {
        *worst = {wavefronts, ideal, mask, {}};
        memcpy(worst->offset, offset, sizeof offset);
    }
}

/* The distinct 32-byte sectors of an instruction, and a mask of the distinct bytes accessed in
 * each. */
struct Sectors {
    uintptr_t sector[64];
    uint32_t bytes[64];
    unsigned count = 0, last = 0;

    void take(uintptr_t number, uint32_t wanted)
    {
        if (count && sector[last] == number) { /* usual: lanes access neighbouring addresses */
            bytes[last] |= wanted;
            return;
        }
        for (last = 0; last < count && sector[last] != number; ++last)
            ;
        if (last == count) {
            sector[count] = number;
            bytes[count++] = 0;
        }
        bytes[last] |= wanted;
    }
    void take_access(uintptr_t address, uint32_t size)
    {
        unsigned within = address % 32;
        uint64_t wanted = ((1ull << size) - 1) << within;
        take(address / 32, (uint32_t)wanted);
        if (wanted >> 32)
            take(address / 32 + 1, (uint32_t)(wanted >> 32));
    }
};

static void count_global(const Count &count, const Place &place, const Instruction *instruction,
                         uint32_t mask)
{
    Sectors sectors;
    unsigned used = 0;
    uintptr_t first = 0, bytes = 0; /* of an allocation */
    for (uint32_t lanes = mask; lanes; lanes &= lanes - 1) {
        uintptr_t address = instruction->address[__builtin_ctz(lanes)];
        if (guards_memory() && address - first >= bytes)
            bytes = device_range(reinterpret_cast<const void *>(address), &first);
        sectors.take_access(address - first % device_alignment, place.size);
    }
    for (unsigned i = 0; i < sectors.count; ++i)
        used += lanes_in(sectors.bytes[i]);
    bool load = place.deed == LOAD;
    count.add(load ? GR_COUNT_global_load_requests : GR_COUNT_global_store_requests, 1);
    count.add(load ? GR_COUNT_global_load_sectors : GR_COUNT_global_store_sectors, sectors.count);
    count.add(load ? GR_COUNT_global_load_bytes_used : GR_COUNT_global_store_bytes_used, used);
    count.add(load ? GR_COUNT_global_load_lanes : GR_COUNT_global_store_lanes, lanes_in(mask));
}

static void count_cluster(const Count &count, const Place &place, uint32_t mask)
{
    bool load = place.deed == LOAD;
    count.add(load ? GR_COUNT_cluster_load_instructions : GR_COUNT_cluster_store_instructions, 1);
    count.add(load ? GR_COUNT_cluster_load_lanes : GR_COUNT_cluster_store_lanes, lanes_in(mask));
}

/* If an instruction accesses other blocks' shared memory, all its shared memory accesses go through
 * the cluster network. */
static void count_memory(Worker *w, const Count &count, PlaceRecord *place, const Warp *warp,
                         const Instruction *instruction)
{
    size_t stride = shared_stride(w->shape);
    uintptr_t team = (uintptr_t)w->shared;
    uintptr_t own = (uintptr_t)warp->block->shared - shared_front(w->shape);
    uint32_t in_team = 0, in_block = 0;
    for (uint32_t lanes = instruction->mask; lanes; lanes &= lanes - 1) {
        int lane = __builtin_ctz(lanes);
        uintptr_t at = instruction->address[lane];
        in_team |= (uint32_t)(at - team < w->shared_bytes) << lane;
        in_block |= (uint32_t)(at - own < stride) << lane;
    }
    if (in_team != in_block)
        count_cluster(count, place->place, in_team);
    else if (in_block)
        count_shared(count, place, instruction, in_block, own);
    if (!(instruction->mask & ~in_team))
        return;
    w->recorder->warps[warp->index].requests += place->place.deed == LOAD;
    count_global(count, place->place, instruction, instruction->mask & ~in_team);
}

/* Counts an atomic by the addresses of its lanes. */
static void count_contention(Worker *w, const Instruction *instruction)
{
    gr_recorder *r = w->recorder;
    uintptr_t team = (uintptr_t)w->shared;
    unsigned turns = 0;
    bool shared = false;
    for (uint32_t lanes = instruction->mask; lanes; lanes &= lanes - 1) {
        uintptr_t at = instruction->address[__builtin_ctz(lanes)];
        unsigned same = 0;
        for (uint32_t others = instruction->mask; others; others &= others - 1)
            same += instruction->address[__builtin_ctz(others)] == at;
        turns = same > turns ? same : turns;
        shared = at - team < w->shared_bytes;
        ++(shared ? r->shared_atomics : r->global_atomics)[at];
    }
    gr_contention *of = shared ? &r->shared : &r->global;
    of->atomics += lanes_in(instruction->mask);
    of->turns += turns;
}

void count_instruction(Worker *w, unsigned number, const Warp *warp, const Instruction *instruction)
{
    gr_recorder *r = w->recorder;
    Count count = count_at(r, number, &r->warps[warp->index], instruction->step);
    PlaceRecord *place = &r->places[number];
    switch (place->place.deed) {
    case UPDATE:
        count.add(GR_COUNT_atomics, lanes_in(instruction->mask));
        count.add(GR_COUNT_atomic_instructions, 1);
        ++r->warps[warp->index].requests;
        count_contention(w, instruction);
        break;
    case FENCE: count.add(GR_COUNT_fences, 1); break;
    case END: break;
    default: count_memory(w, count, place, warp, instruction);
    }
}

} // namespace gr

#endif
