/* The steps of a replay. */
#ifdef GR_EMULATOR_TRACED

#include "emulator/trace/steps.h"

#include <new>
#include <string.h>

#include "emulator/runtime/fault.h"
#include "emulator/runtime/guard.h"
#include "emulator/runtime/shared_memory.h"
#include "emulator/trace/lines.h"
#include "emulator/trace/recorder.h"

namespace gr
{

static_assert((int)LOAD == GR_STEP_LOAD && (int)STORE == GR_STEP_STORE &&
                  (int)UPDATE == GR_STEP_ATOMIC && (int)FENCE == GR_STEP_FENCE,
              "a place's deed is the kind of its steps");
static_assert((int)GR_STEP_KINDS == GR_STEP_COLLECTIVE + (int)GR_ACTIVE_MASK, "as steps.h says");

/* --- arrays --------------------------------------------------------------------------------- */

static void add_array(Replay *replay, const char *name, bool is_shared, uint64_t base,
                      uint64_t bytes, uint32_t element)
{
    uint32_t launch = (uint32_t)replay->launches.size() - 1;
    replay->arrays.push_back({name, is_shared, launch, base, bytes, element});
}

void keep_launch(gr_recorder *r, const Launch *launch)
{
    const Kernel *kernel = launch->kernel;
    Replay *replay = r->replay.get();
    const dim3 &block = launch->shape.block;
    replay->launches.push_back(
        {launch->grid.x * launch->grid.y * launch->grid.z, block.x * block.y * block.z});
    for (unsigned i = 0; i < kernel->parameters && i < 5; ++i) {
        uintptr_t first, at = 0;
        if (kernel->pointees[i])
            memcpy(&at, launch->args[i], sizeof at);
        size_t bytes = at ? device_range(reinterpret_cast<const void *>(at), &first) : 0;
        if (at)
            add_array(replay, kernel->names[i], false, at,
                      bytes ? first + bytes - at : kernel->pointees[i], kernel->pointees[i]);
    }
}

/* Returns the number of the array of this launch that has the address, or a byte `beyond` its end:
 * of several in one allocation, the one that begins last before it. */
static uint32_t find_array(const Replay *replay, bool is_shared, uint64_t at, const char *name,
                           uint64_t beyond = 0)
{
    uint32_t found = UINT32_MAX;
    for (size_t i = replay->arrays.size(); i-- > 0;) {
        const gr_step_array *array = &replay->arrays[i];
        if (array->launch + 1 != replay->launches.size())
            break;
        if (!array->is_shared == is_shared || at < array->base ||
            at - array->base >= array->bytes + beyond || (name && array->name != name))
            continue;
        if (found == UINT32_MAX || array->base > replay->arrays[found].base)
            found = (uint32_t)i;
    }
    return found;
}

static void find_shared(const Worker *w, Replay *replay, gr_step_lane *lane, uintptr_t address,
                        size_t bytes)
{
    size_t in_team = address - (uintptr_t)w->shared, stride = shared_stride(w->shape);
    SharedPlace place = shared_place(w, address, bytes);
    uint64_t at = in_team % stride;
    lane->array = find_array(replay, true, at, place.name);
    lane->owner = w->blocks[place.block].rank;
    if (lane->array == UINT32_MAX) {
        lane->array = (uint32_t)replay->arrays.size();
        uint64_t base = at - (uint64_t)place.index * place.element;
        base -= base % (place.element < 4 ? place.element : 4);
        add_array(replay, place.name, true, base, place.count * place.element,
                  (uint32_t)place.element);
    }
    lane->offset = at - replay->arrays[lane->array].base;
}

static void find_global(Replay *replay, gr_step_lane *lane, uintptr_t address, size_t bytes)
{
    uintptr_t first = 0;
    size_t size = device_range(reinterpret_cast<const void *>(address), &first);
    lane->array = find_array(replay, false, address, nullptr, size ? 0 : guard_bytes);
    if (lane->array == UINT32_MAX) {
        if (!size) { /* a __device__ variable: an array for each page of such memory */
            size = 4096;
            first = address - address % size;
        }
        lane->array = (uint32_t)replay->arrays.size();
        add_array(replay, nullptr, false, first, size, 0);
    }
    gr_step_array *array = &replay->arrays[lane->array];
    lane->offset = address - array->base;
    if (!size && !device_range(reinterpret_cast<const void *>(array->base), &first) &&
        lane->offset + bytes > array->bytes)
        array->bytes = lane->offset + bytes; /* memory of the host, whose size is not known */
}

static void find(const Worker *w, gr_step_lane *lane, uintptr_t address, size_t bytes)
{
    Replay *replay = w->recorder->replay.get();
    if (in_shared(w, address))
        find_shared(w, replay, lane, address, bytes);
    else
        find_global(replay, lane, address, bytes);
}

/* --- steps ---------------------------------------------------------------------------------- */

uint32_t keep_step(gr_recorder *r, const Warp *warp, unsigned kind, uint32_t place, size_t bytes)
{
    Replay *replay = r->replay.get();
    replay->has_more = replay->steps.size() >= replay->most;
    if (replay->has_more)
        throw std::bad_alloc();
    replay->steps.push_back({});
    gr_step *step = &replay->steps.back();
    step->launch = (uint32_t)replay->launches.size() - 1;
    step->block = warp->block->rank;
    step->warp = warp->index % warp->block->own.warp_count;
    step->kind = kind;
    step->bytes = (uint32_t)bytes;
    step->place = place;
    return (uint32_t)replay->steps.size() - 1;
}

/* Whether an access must stay behind an earlier step: both access a byte, not both of them by
 * loads. `lanes`: of that step. */
static bool depends(const gr_step *step, uint32_t lanes, unsigned kind, uintptr_t address,
                    size_t bytes)
{
    if (step->kind > GR_STEP_ATOMIC || kind > GR_STEP_ATOMIC ||
        (step->kind == GR_STEP_LOAD && kind == GR_STEP_LOAD))
        return step->kind == GR_STEP_COPY;
    for (; lanes; lanes &= lanes - 1) {
        uintptr_t at = step->lane[__builtin_ctz(lanes)].address;
        if (at < address + bytes && address < at + step->bytes)
            return true;
    }
    return false;
}

bool joins(const Replay *replay, uint32_t number, const Lane *lane, uintptr_t address, size_t bytes)
{
    enum { MOST_BETWEEN = 32 };
    const std::vector<gr_step> &steps = replay->steps;
    const gr_step *own = &steps[number];
    if (steps.size() - number > MOST_BETWEEN)
        return false;
    for (size_t i = number + 1; i < steps.size(); ++i) {
        bool is_own_warp = steps[i].warp == own->warp && steps[i].block == own->block;
        if ((is_own_warp && steps[i].mask >> lane->index & 1) ||
            depends(&steps[i], steps[i].mask, own->kind, address, bytes))
            return false;
    }
    /* a step's lanes are shown in ascending order */
    return !depends(own, own->mask >> lane->index << lane->index, own->kind, address, bytes);
}

void keep_access(Worker *w, uint32_t number, uintptr_t address, size_t bytes, unsigned kind)
{
    Replay *replay = w->recorder->replay.get();
    gr_step *step = &replay->steps[number];
    gr_step_lane *lane = &step->lane[w->lane->index];
    step->mask |= 1u << w->lane->index;
    lane->address = address;
    find(w, lane, address, bytes);
    if (kind != STORE)
        memcpy(lane->value, reinterpret_cast<const void *>(address), bytes);
    if (kind != LOAD)
        replay->pending.push_back({number, w->lane->index, address, bytes});
}

void settle_step(Replay *replay)
{
    for (const Replay::Pending &one : replay->pending) {
        gr_step *step = &replay->steps[one.step];
        gr_step_lane *lane = &step->lane[one.lane];
        bool is_atomic = step->kind == GR_STEP_ATOMIC;
        memcpy(is_atomic ? &lane->result : lane->value, reinterpret_cast<const void *>(one.address),
               is_atomic && one.bytes > sizeof lane->result ? sizeof lane->result : one.bytes);
    }
    replay->pending.clear();
}

void keep_copy(Worker *w, uint32_t number, uintptr_t shared, uintptr_t global)
{
    gr_step *step = &w->recorder->replay->steps[number];
    gr_step_lane *lane = &step->lane[w->lane->index], from = {};
    step->mask |= 1u << w->lane->index;
    find(w, &from, global, 1);
    find(w, lane, shared, 1);
    lane->value[0] = from.offset;
    lane->value[1] = from.array;
}

void keep_meeting(gr_recorder *r, uint32_t number, const Warp *warp, const Meeting *meeting)
{
    gr_step *step = &r->replay->steps[number];
    step->mask = meeting->arrived;
    for (uint32_t lanes = meeting->arrived; lanes; lanes &= lanes - 1) {
        int lane = __builtin_ctz(lanes), from = lane;
        if (meeting->op >= GR_SHUFFLE_INDEX && meeting->op <= GR_SHUFFLE_XOR)
            from = shuffle_source(meeting->op, lane, warp->argument[lane], warp->width[lane]);
        step->lane[lane].value[0] = warp->value[lane];
        step->lane[lane].value[1] = (uint64_t)from;
        step->lane[lane].result = warp->result[lane];
    }
}

} // namespace gr

extern "C" {

int gr_keep_steps(gr_recorder *recorder, size_t most)
{
    recorder->replay.reset(new (std::nothrow) gr::Replay());
    if (recorder->replay)
        recorder->replay->most = most;
    return recorder->replay != nullptr;
}

gr_kept_steps gr_recorded_replay(const gr_recorder *recorder)
{
    const gr::Replay *r = recorder->replay.get();
    return {r->has_more,     r->steps.data(),  r->arrays.data(),   r->launches.data(),
            r->steps.size(), r->arrays.size(), r->launches.size(), recorder->places.size()};
}

const char *gr_step_name(unsigned kind)
{
    static const char *const names[] = {"load", "store", "atomic", "fence", "copy", "end"};
    if (kind < GR_STEP_BLOCK_BARRIER)
        return names[kind];
    unsigned waits = kind < GR_STEP_COLLECTIVE ? gr::WAIT_BARRIER + kind - GR_STEP_BLOCK_BARRIER
                                               : kind - GR_STEP_COLLECTIVE;
    return gr::name_wait(waits);
}
}

#endif
