/* Recording: reconstructs warp instructions from the accesses of single lanes. */
#ifdef GR_EMULATOR_TRACED

#include "emulator/trace/recorder.h"

#include <algorithm>
#include <new>
#include <string.h>

#include "threads/interrupts.h"
#include "threads/pool.h"

namespace gr
{

static thread_local gr_recorder *recorder_of_thread;

gr_recorder *thread_recorder()
{
    return recorder_of_thread;
}

gr_recorder *exchange_recorder(gr_recorder *recorder)
{
    gr_recorder *before = recorder_of_thread;
    recorder_of_thread = recorder;
    return before;
}

/* --- places in the code, and steps between barriers ----------------------------------------- */

static __attribute__((noinline)) unsigned find_place(gr_recorder *r, const Place &place)
{
    auto found = r->number_of.emplace(std::make_pair(place.at, place.rest()), r->places.size());
    if (found.second)
        r->places.push_back({place, {}, {}, {}});
    return found.first->second;
}

static inline unsigned place_number(gr_recorder *r, const Place &place)
{
    uint64_t rest = place.rest();
    auto *recent = &r->recent[(place.at ^ rest * 0xff51afd7ed558ccd) * 0x9e3779b97f4a7c15 >> 56];
    if (recent->at != place.at || recent->rest != rest)
        *recent = {place.at, rest, find_place(r, place)};
    return recent->number;
}

static_assert(sizeof(Instruction) == GR_RECORDER_INSTRUCTION_BYTES, "as counters.h says");

/* Accounts for memory before its allocation; to be called inside with_memory(). */
static void charge(gr_recorder *r, size_t bytes)
{
    r->bytes += bytes;
    if (r->bytes > GR_RECORDER_MOST_BYTES)
        throw std::bad_alloc();
}

static StepRecord *step_at(gr_recorder *r, unsigned barrier, unsigned sync)
{
    auto found = r->steps.emplace(std::make_pair(barrier, sync), StepRecord());
    if (found.second)
        charge(r, sizeof(StepRecord));
    return &found.first->second;
}

/* --- a warp's pending instructions --------------------------------------------------------- */

static inline __attribute__((always_inline)) Instruction *come_to(gr_recorder *r, const Lane *lane,
                                                                  Place place, uintptr_t address)
{
    WarpRecord *warp = &r->warps[lane->warp->index];
    unsigned index = lane->index;
    place.interval = warp->interval[index];
    unsigned number = place_number(r, place);
    if (number >= warp->columns.size())
        warp->columns.resize(number + 8);
    Column *column = &warp->columns[number];
    unsigned time = column->times[index]++;
    if (time >= column->used) {
        if (!column->used)
            warp->touched.push_back(number);
        if (time >= column->instructions.size()) {
            charge(r, (time + 1) * sizeof(Instruction));
            column->instructions.resize(2 * time + 1);
        }
        column->instructions[time].mask = 0;
        column->used = time + 1;
    }
    Instruction *instruction = &column->instructions[time];
    if (r->replay) {
        if (!instruction->mask ||
            !joins(r->replay.get(), instruction->step, lane, address, place.size))
            instruction->step = keep_step(r, lane->warp, number, 0);
        r->replay->steps[instruction->step].mask |= 1u << index;
    }
    instruction->mask |= 1u << index;
    instruction->address[index] = address;
    return instruction;
}

/* Called when the warp has reached a barrier: its pending instructions are complete, and are
 * counted. */
static void flush(Worker *w, const Warp *warp)
{
    gr_recorder *r = w->recorder;
    WarpRecord *record = &r->warps[warp->index];
    for (unsigned number : record->touched) {
        Column *column = &record->columns[number];
        for (unsigned i = 0; i < column->used; ++i) {
            count_instruction(w, number, warp, &column->instructions[i]);
            if (r->places[number].place.deed != FENCE)
                record->active |= column->instructions[i].mask;
        }
        column->used = 0;
        memset(column->times, 0, sizeof column->times);
    }
    record->touched.clear();
    memset(record->interval, 0, sizeof record->interval);
    if (r->first_team && warp->block == w->blocks) {
        std::vector<uint32_t> *lanes = &record->step->lanes;
        if (lanes->size() <= warp->index)
            lanes->resize(warp->block->own.warp_count);
        (*lanes)[warp->index] |= record->active;
    }
    record->active = 0;
}

static void next_step(gr_recorder *r, WarpRecord *warp, bool barrier)
{
    warp->sync = barrier ? 0 : warp->sync + 1;
    warp->barrier += barrier;
    warp->step = step_at(r, warp->barrier, warp->sync);
}

static Place site(const char *file, int line, Deed deed)
{
    return {(uintptr_t)file, line, 0, 0, deed};
}

/* Runs `record`. If it runs out of memory, the recording fails and the launch ends. */
template <typename Record> static void with_memory(Worker *w, gr_recorder *r, Record record)
{
    if (r->failed)
        return;
    try {
        record();
    } catch (const std::bad_alloc &) {
        r->failed = true;
        launch_failed(w->launch, cudaErrorMemoryAllocation, "");
    }
}

/* --- hooks for accesses and for the scheduler ----------------------------------------------- */

void count_access(Worker *w, const void *address, size_t size, Access kind, const void *place)
{
    static const Deed deeds[] = {LOAD, STORE, UPDATE};
    gr_recorder *r = w->recorder;
    with_memory(w, r, [&] {
        uintptr_t at = (uintptr_t)address;
        settle(w);
        for (size_t left = size; left; left -= left < 16 ? left : 16, at += 16) {
            uint8_t part = left < 16 ? (uint8_t)left : 16; /* the most per instruction */
            Place here = {(uintptr_t)place, 0, 0, part, deeds[kind]};
            const Instruction *instruction = come_to(r, w->lane, here, at);
            if (r->replay)
                keep_access(w, instruction->step, at);
        }
    });
}

void count_fence(Worker *w, const char *file, int line)
{
    gr_recorder *r = w->recorder;
    with_memory(w, r, [&] { come_to(r, w->lane, site(file, line, FENCE), 0); });
}

void count_copy(Worker *w, const void *shared, const void *global, size_t bytes, const char *file,
                int line)
{
    gr_recorder *r = w->recorder;
    with_memory(w, r, [&] {
        unsigned number = place_number(r, site(file, line, COPY));
        settle(w);
        const Warp *warp = w->lane->warp;
        uint32_t step = keep_step(r, warp, number, 1u << w->lane->index);
        if (r->replay)
            keep_copy(w, step, (uintptr_t)shared, (uintptr_t)global, bytes);
        Count count = count_at(r, number, &r->warps[warp->index], step);
        count.add(GR_COUNT_bulk_copies, 1);
        count.add(GR_COUNT_bulk_copy_bytes, bytes);
    });
}

void count_barrier(Worker *w, const Barrier *barrier, gr_scope scope)
{
    static const unsigned counters[] = {GR_COUNT_block_barriers, GR_COUNT_cluster_barriers,
                                        GR_COUNT_grid_barriers};
    gr_recorder *r = w->recorder;
    with_memory(w, r, [&] {
        bool counted = false;
        for (unsigned i = 0; i < barrier->warp_count; ++i) {
            const Warp *warp = &barrier->warps[i];
            if (!warp->at[scope])
                continue;
            const Lane *lane = lane_of(w, warp, (unsigned)__builtin_ctz(warp->at[scope]));
            Deed deed = Deed(MEETING + WAIT_BARRIER + scope);
            unsigned number = place_number(r, site(lane->file, lane->line, deed));
            uint32_t step = keep_step(r, warp, number, warp->at[scope]);
            Count count = count_at(r, number, &r->warps[warp->index], step);
            if (!counted)
                count.add(counters[scope], 1);
            counted = true;
            if (scope == GR_BLOCK)
                count.add(GR_COUNT_block_barrier_instructions, 1);
            flush(w, warp);
            next_step(r, &r->warps[warp->index], true);
        }
    });
}

static unsigned counter_of(gr_collective op)
{
    if (op == GR_SYNCWARP)
        return GR_COUNT_warp_barriers;
    if (op <= GR_SHUFFLE_XOR)
        return GR_COUNT_shuffles;
    return op <= GR_ALL ? GR_COUNT_votes : GR_COUNT_warp_reductions;
}

void count_meeting(Worker *w, Warp *warp, const Meeting *meeting)
{
    gr_recorder *r = w->recorder;
    with_memory(w, r, [&] {
        WarpRecord *record = &r->warps[warp->index];
        const Lane *lane = lane_of(w, warp, (unsigned)__builtin_ctz(meeting->arrived));
        Deed deed = Deed(MEETING + meeting->op);
        unsigned number = place_number(r, site(lane->file, lane->line, deed));
        unsigned counter = counter_of(meeting->op);
        bool begins = meeting->op != GR_SYNCWARP;
        uint32_t step = keep_step(r, warp, number, meeting->arrived);
        if (r->replay)
            keep_meeting(r, step, warp, meeting);
        if (!begins)
            count_at(r, number, record, step).add(counter, 1);
        if (meeting->arrived == warp->live) {
            flush(w, warp);
            next_step(r, record, false);
        } else { /* the warp's other lanes stay in the current step */
            for (uint32_t lanes = meeting->arrived; lanes; lanes &= lanes - 1)
                ++record->interval[__builtin_ctz(lanes)];
        }
        if (begins) {
            count_at(r, number, record, step).add(counter, 1);
            record->active |= meeting->arrived;
        }
    });
}

void count_end(Worker *w, const Lane *lane)
{
    gr_recorder *r = w->recorder;
    if (r->replay)
        with_memory(w, r, [&] { come_to(r, lane, site(nullptr, 0, END), 0); });
}

/* --- a launch ------------------------------------------------------------------------------ */

static void begin_team(Worker *w, gr_recorder *r)
{
    if (r->warps.size() < w->warp_count)
        r->warps.resize(w->warp_count);
    StepRecord *first = step_at(r, 0, 0);
    for (unsigned i = 0; i < w->warp_count; ++i) {
        WarpRecord *warp = &r->warps[i];
        warp->barrier = warp->sync = 0;
        warp->step = first;
        warp->requests = 0;
    }
}

static void end_team(Worker *w, gr_recorder *r)
{
    for (unsigned i = 0; i < w->warp_count; ++i) {
        flush(w, &w->warps[i]);
        r->most_requests = std::max(r->most_requests, r->warps[i].requests);
    }
    r->blocks += w->block_count;
    r->shared.addresses += r->shared_atomics.size();
    for (const auto &at : r->shared_atomics)
        r->shared.most = std::max(r->shared.most, at.second);
    r->shared_atomics.clear();
    r->first_team = false;
}

/* Presets the launch's arrival counters as if this many blocks had arrived before. The last block
 * to arrive then finds a mark in every slot. */
static void preset_arrivals(const gr_arrivals &arrivals, unsigned come)
{
    if (arrivals.ticket)
        *arrivals.ticket = come;
    if (arrivals.marked)
        memset(arrivals.marked, come ? 0xff : 0, arrivals.marked_bytes);
    for (unsigned i = 0; i < arrivals.words; ++i)
        arrivals.word[i] = uint64_t(come) << arrivals.shift;
}

static void run_one(Worker *w, gr_recorder *r, uint64_t team)
{
    with_memory(w, r, [&] { begin_team(w, r); });
    w->recorder = r->failed ? nullptr : r;
    run_team(w, team);
    if (w->recorder && (!w->faulted || r->replay)) {
        settle(w);
        with_memory(w, r, [&] { end_team(w, r); });
    }
    w->recorder = nullptr;
}

static void take_over(gr_counters *total, gr_counters *now, uint64_t weight, gr_counters *sample)
{
    for (unsigned c = 0; c < GR_COUNTER_COUNT; ++c) {
        total->count[c] += weight * now->count[c];
        if (sample)
            sample->count[c] += now->count[c];
        now->count[c] = 0;
    }
}

/* The user can interrupt between batches. */
enum : uint64_t { BATCH = 64 };

struct Batches {
    Launch *launch;
    Worker *worker;
    gr_recorder *recorder;
    const gr_sample *sample;
    uint64_t count; /* teams */
};

static void run_batch(size_t batch, void *context)
{
    const Batches *all = static_cast<const Batches *>(context);
    const gr_sample *sample = all->sample;
    gr_recorder *r = all->recorder;
    uint64_t i = batch * BATCH, end = std::min(i + BATCH, all->count);
    if (batch == 0) /* later teams continue with the same arrival counters */
        preset_arrivals(r->arrivals, sample->ticket);
    for (; i < end && !is_stopped(all->launch); ++i)
        run_one(all->worker, r, team_at(all->launch, sample->first + i));
}

void run_samples(Launch *launch)
{
    gr_recorder *r = recorder_of_thread;
    if (!r->replay)
        launch->schedule = GR_SCHEDULE_FORWARD;
    Worker *w = worker_for(launch);
    if (!w) {
        launch_failed(launch, cudaErrorMemoryAllocation, "");
        return;
    }
    if (Replay *replay = r->replay.get())
        with_memory(w, r, [&] {
            const dim3 &grid = launch->grid, &block = launch->shape.block;
            uint32_t number = (uint32_t)replay->launches.size();
            for (const gr_memory &one : named_memory(launch, w->shape, number))
                replay->arrays.push_back(one);
            replay->launches.push_back({grid.x * grid.y * grid.z, block.x * block.y * block.z});
        });
    for (size_t i = 0; i < r->samples.size() && !is_stopped(launch); ++i) {
        const gr_sample *sample = &r->samples[i];
        uint64_t count = std::min(sample->count, launch->teams - sample->first);
        Batches all = {launch, w, r, sample, count};
        gr_parallel(1, (count + BATCH - 1) / BATCH, run_batch, &all);
        for (PlaceRecord &place : r->places)
            take_over(&place.total, &place.now, sample->weight, &r->sample_counts[i]);
        for (auto &step : r->steps)
            take_over(&step.second.total, &step.second.now, sample->weight, nullptr);
    }
}

} // namespace gr

extern "C" void gr_record(gr_recorder *recorder)
{
    gr::exchange_recorder(recorder);
}

#endif
