/* The steps of a replay. */
#ifdef GR_EMULATOR_TRACED

#include "emulator/trace/steps.h"

#include <algorithm>

#include "emulator/runtime/fault.h"
#include "emulator/runtime/shared_memory.h"
#include "emulator/trace/recorder.h"

namespace gr
{

/* Names the memory of a lane's access. Memory without a name grows with its accesses. */
static void find_array(Worker *w, gr_step_lane *lane, uintptr_t address, size_t bytes)
{
    Replay *replay = w->recorder->replay.get();
    uint32_t launch = (uint32_t)replay->launches.size() - 1;
    MemoryPlace place = memory_place(w, address);
    gr_memory *found = find_memory(replay->arrays, launch, place);
    if (!found) {
        uint64_t page = address / 4096 * 4096;
        replay->arrays.push_back({"memory", launch, 0, 1, page, 0, page, 0});
        found = &replay->arrays.back();
    }
    if (!found->element)
        found->element = (uint32_t)bytes;
    lane->owner = place.owner;
    lane->array = (uint32_t)(found - replay->arrays.data());
    lane->offset = (int64_t)(place.at - found->first);
    if (found->is_open && place.at - found->first + bytes > found->bytes)
        found->bytes = place.at - found->first + bytes;
}

uint32_t keep_step(gr_recorder *r, const Warp *warp, uint32_t place, uint32_t lanes)
{
    Replay *replay = r->replay.get();
    if (!replay)
        return 0;
    if (replay->steps.size() > GR_MOST_STEPS)
        fault(worker, "more steps than are kept");
    uint32_t launch = (uint32_t)replay->launches.size() - 1;
    uint32_t own = warp->index % warp->block->own.warp_count;
    const Place &at = r->places[place].place;
    replay->steps.push_back(
        {launch, warp->block->rank, own, at.deed, lanes, at.size, place, {}, {}, {}, {}, {}});
    return (uint32_t)replay->steps.size() - 1;
}

bool joins(const Replay *replay, uint32_t number, const Lane *lane, uintptr_t address, size_t bytes)
{
    enum { MOST_BETWEEN = 32 };
    const gr_step *own = &replay->steps[number], *end = own + (replay->steps.size() - number);
    if (end - own > MOST_BETWEEN)
        return false;
    for (const gr_step *step = own; step < end; ++step) {
        bool is_own_warp = step->warp == own->warp && step->block == own->block;
        if (step->kind == COPY || (is_own_warp && step->mask >> lane->index & 1))
            return false;
        if (step->kind == LOAD && own->kind == LOAD)
            continue;
        /* of its own step, later lanes only: a step's lanes are shown in ascending order */
        uint32_t lanes = step->mask & (step == own ? ~0u << lane->index : ~0u);
        for (; lanes; lanes &= lanes - 1) {
            uintptr_t at = step->lane[__builtin_ctz(lanes)].address;
            if (at < address + bytes && address < at + step->bytes)
                return false;
        }
    }
    return true;
}

/* Reads the bytes of a failing access, too, for which AddressSanitizer would end the process. */
__attribute__((no_sanitize_address)) static void read_bytes(void *to, uintptr_t from, size_t bytes)
{
    for (size_t i = 0; i < bytes; ++i)
        static_cast<volatile char *>(to)[i] = reinterpret_cast<const volatile char *>(from)[i];
}

void keep_access(Worker *w, uint32_t number, uintptr_t address)
{
    Replay *replay = w->recorder->replay.get();
    gr_step *step = &replay->steps[number];
    gr_step_lane *lane = &step->lane[w->lane->index];
    lane->address = address;
    find_array(w, lane, address, step->bytes);
    if (step->kind != STORE)
        read_bytes(lane->value, address, step->bytes);
    if (step->kind != LOAD)
        replay->pending.emplace_back(number, w->lane->index);
}

void settle(Worker *w)
{
    Replay *replay = w->recorder->replay.get();
    if (!replay)
        return;
    for (const auto &one : replay->pending) {
        gr_step *step = &replay->steps[one.first];
        gr_step_lane *lane = &step->lane[one.second];
        uintptr_t first;
        if (w->faulted && !in_shared(w, lane->address) &&
            !device_range(reinterpret_cast<const void *>(lane->address), &first))
            continue; /* this access may have caused the fault */
        bool is_atomic = step->kind == UPDATE;
        read_bytes(is_atomic ? &lane->result : lane->value, lane->address,
                   is_atomic ? std::min(step->bytes, 8u) : step->bytes);
    }
    replay->pending.clear();
}

void keep_copy(Worker *w, uint32_t number, uintptr_t shared, uintptr_t global, size_t bytes)
{
    gr_step *step = &w->recorder->replay->steps[number];
    gr_step_lane *lane = &step->lane[w->lane->index], from = {};
    step->bytes = (uint32_t)bytes;
    find_array(w, &from, global, 1);
    find_array(w, lane, shared, 1);
    lane->value[0] = (uint64_t)from.offset;
    lane->value[1] = from.array;
}

void keep_meeting(gr_recorder *r, uint32_t number, const Warp *warp, const Meeting *meeting)
{
    gr_step *step = &r->replay->steps[number];
    for (uint32_t lanes = meeting->arrived; lanes; lanes &= lanes - 1) {
        int lane = __builtin_ctz(lanes);
        int from = shuffle_source(meeting->op, lane, warp->argument[lane], warp->width[lane]);
        step->lane[lane].value[0] = warp->value[lane];
        step->lane[lane].value[1] = (uint64_t)from; /* of a shuffle */
        step->lane[lane].result = warp->result[lane];
    }
}

} // namespace gr

extern "C" gr_kept_steps gr_recorded_replay(gr_recorder *recorder)
{
    static const char *const names[] = {"load", "store", "atomic", "fence", "copy", "end"};
    gr::Replay *r = recorder->replay.get();
    for (gr_step &step : r->steps) {
        gr::find_line(recorder->places[step.place].place, &step.file, &step.line);
        unsigned waits = step.kind - gr::MEETING;
        step.name = step.kind < gr::MEETING ? names[step.kind] : gr::name_wait(waits);
    }
    auto launches = reinterpret_cast<const uint32_t(*)[2]>(r->launches.data());
    return {r->steps.data(), r->arrays.data(), launches,
            r->steps.size(), r->arrays.size(), r->launches.size()};
}

#endif
