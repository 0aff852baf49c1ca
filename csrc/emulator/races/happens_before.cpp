/* The happens-before relation, from barriers, fences, atomics and bulk copies. */
#ifdef GR_EMULATOR_TRACED

#include "emulator/races/races.h"

#include <stdlib.h>
#include <string.h>

#include <algorithm>

#include "emulator/runtime/fault.h"
#include "emulator/runtime/shared_memory.h"
#include "emulator/races/detector.h"
#include "emulator/scheduler/thread_end.h"

namespace gr
{

static __thread Watch *watch_of_thread;

static void drop(void *watch)
{
    delete static_cast<Watch *>(watch);
}
static const AtThreadEnd at_end(drop);

Watch *thread_watch()
{
    return watch_of_thread;
}

Watch *exchange_watch(Watch *watch)
{
    Watch *before = watch_of_thread;
    watch_of_thread = watch;
    (void)at_end.keep(watch);
    return before;
}

/* --- launches, and blocks that run side by side ---------------------------------------------- */

void watch_launch(Watch *watch, Launch *launch)
{
    dim3 size = launch->shape.block;
    watch->launch = launch;
    watch->threads = (size.x * size.y * size.z + 31) / 32 * 32;
    watch->slots = watch->threads + COPY_SLOTS;
    watch->range_bytes = 0;
    watch->event_count = 0;
    watch->atomic_places.clear();
    watch->publishes = false;
    watch->stopped = Stopped();
}

static Event event_beside(const std::vector<Event> &events, size_t at, int step)
{
    for (; at < events.size(); at += (size_t)(ptrdiff_t)step)
        if (events[at].what)
            return events[at];
    return {nullptr, nullptr, 0, 0};
}

/* Records for both sides of each race the nearest barriers or fences before and after it. */
static void find_events(Watch *watch)
{
    for (Race &race : watch->races)
        for (Side &side : race.side) {
            if (side.known_events || side.slot >= watch->threads)
                continue;
            const std::vector<Event> &events =
                watch->events[(uint64_t)side.block * watch->threads + side.slot];
            side.before = event_beside(events, (size_t)side.time - 1, -1);
            side.after = event_beside(events, side.time, 1);
            side.known_events = true;
        }
}

void watch_launch_end(Watch *watch)
{
    end_overwriting(watch);
    guarded(watch, [&] { find_events(watch); });
    if (watch->publishes)
        watch->atomics = std::max(watch->atomics, watch->atomic_places.size());
    watch->events.clear();
    watch->variables.clear();
    watch->own_variables.clear();
    watch->device.clear();
    watch->own.clear();
    watch->launch = nullptr;
}

void watch_team(Worker *w)
{
    Watch *watch = w->watch;
    guarded(watch, [&] {
        if (in_shared(w, watch->overwriting.address)) /* which is poisoned already */
            watch->overwriting.size = 0;
        end_overwriting(watch);
        watch->lanes.assign(w->lane_count, LaneWatch());
        watch->own.clear();
        watch->own_variables.clear();
        watch->copies.clear();
    });
}

/* --- barriers -------------------------------------------------------------------------------- */

VectorClock joined(const Watch *watch, const VectorClock &a, const VectorClock &b)
{
    if (!a || !b || a == b)
        return a ? a : b;
    Join join(watch->slots);
    join.add(a);
    join.add(b);
    return join.result();
}

VectorClock everything(const Watch *watch, const Self &self, const VectorClock &known)
{
    Join join(watch->slots);
    join.add(known);
    join.add(self.block, self.slot, self.lane->time);
    return join.result();
}

/* The clocks that one lane brings to a barrier. */
struct Brought {
    Self self;
    const LaneClocks *clocks;
    uint32_t time;
};

static LaneClocks gather(const Watch *watch, const std::vector<Brought> &all)
{
    LaneClocks clocks;
    for (unsigned strand = 0; strand < STRANDS; ++strand) {
        Join join(watch->slots);
        for (const Brought &one : all) {
            join.add(one.clocks->strand[strand]);
            if (strand <= KNOWN_IF_FENCED)
                join.add(one.self.block, one.self.slot, one.time);
        }
        clocks.strand[strand] = join.result();
    }
    return clocks;
}

/* The threads of the block that have ended, in warps of which other threads wait. PTX lets whole
 * warps end before a barrier, but the threads of a warp execute a barrier together. After threads
 * have waited at different lines, some end early as a consequence, which is not reported again. */
static std::vector<unsigned> ended_beside(const Watch *watch, const Barrier *barrier)
{
    dim3 size = watch->launch->shape.block;
    unsigned threads = size.x * size.y * size.z;
    std::vector<unsigned> ended;
    for (const Divergence &known : watch->divergences)
        if (known.places.size() > 1)
            return ended;
    for (unsigned i = 0; i < barrier->warp_count; ++i) {
        const Warp *warp = &barrier->warps[i];
        for (uint32_t gone = warp->live ? ~warp->live : 0; gone; gone &= gone - 1) {
            unsigned thread = i * 32 + (unsigned)__builtin_ctz(gone);
            if (thread < threads)
                ended.push_back(thread);
        }
    }
    return ended;
}

/* Records that threads of a block wait for one barrier at different lines, or end without reaching
 * it, which CUDA does not allow. */
static void note_divergence(Watch *watch, const Worker *w, const Barrier *barrier,
                            const std::vector<Brought> &all)
{
    Divergence found;
    found.ended = ended_beside(watch, barrier);
    std::vector<int> lines;
    const Lane *first = w->lanes + (all[0].self.lane - watch->lanes.data());
    bool same = true;
    for (const Brought &one : all) {
        const Lane *lane = w->lanes + (one.self.lane - watch->lanes.data());
        same = same && lane->line == first->line && lane->place == first->place &&
               !strcmp(lane->file, first->file);
    }
    if (same && found.ended.empty())
        return;
    for (const Brought &one : all) {
        const Lane *lane = w->lanes + (one.self.lane - watch->lanes.data());
        found.places[{lane->file, lane->line, name_wait(lane->waits), lane->place}].push_back(
            one.self.slot);
    }
    for (const auto &place : found.places)
        lines.push_back(std::get<1>(place.first));
    if (!found.ended.empty())
        lines.push_back(-1);
    found.block = all[0].self.block;
    if (watch->divergent_lines.insert(lines).second)
        watch->divergences.push_back(found);
}

/* The same of the blocks that wait for a barrier of the grid. */
static void note_divergences(Watch *watch, const Worker *w, const std::vector<Brought> &all)
{
    for (unsigned i = 0; i < w->block_count; ++i) {
        std::vector<Brought> own;
        for (const Brought &one : all)
            if (one.self.block == w->blocks[i].rank)
                own.push_back(one);
        if (!own.empty())
            note_divergence(watch, w, &w->blocks[i].own, own);
    }
}

/* The lanes at a barrier: those that wait, and those that arrived at a cluster barrier without
 * waiting yet. */
static std::vector<Brought> all_at(Worker *w, const Barrier *barrier, gr_scope scope)
{
    std::vector<Brought> all;
    for (unsigned i = 0; i < barrier->warp_count; ++i) {
        const Warp *warp = &barrier->warps[i];
        unsigned lanes = scope == GR_CLUSTER ? warp->live : warp->at[scope];
        for (; lanes; lanes &= lanes - 1) {
            unsigned index = (unsigned)__builtin_ctz(lanes);
            Self self = self_of(w, lane_of(w, warp, index));
            if (scope == GR_CLUSTER && self.lane->arrived)
                all.push_back({self, &self.lane->carried, self.lane->arrived_time});
            else if (warp->at[scope] >> index & 1)
                all.push_back({self, &self.lane->clocks, self.lane->time});
        }
    }
    return all;
}

static Event event_of(const Watch *watch, const Lane *lane)
{
    return {name_wait(lane->waits), lane->file, lane->line, watch->meetings};
}

void watch_barrier(Worker *w, const Barrier *barrier, gr_scope scope)
{
    Watch *watch = w->watch;
    guarded(watch, [&] {
        std::vector<Brought> all = all_at(w, barrier, scope);
        if (all.empty())
            return;
        if (scope == GR_BLOCK)
            note_divergence(watch, w, barrier, all);
        else if (scope == GR_GRID)
            note_divergences(watch, w, all);
        LaneClocks clocks = gather(watch, all);
        ++watch->meetings;
        for (const Brought &one : all) {
            LaneWatch *lane = one.self.lane;
            const Lane *waiting = w->lanes + (lane - watch->lanes.data());
            bool waits = waiting->warp->at[scope] >> waiting->index & 1;
            if (waits) {
                lane->clocks = clocks;
                lane->stores.clear();
                advance(watch, one.self, event_of(watch, waiting));
            } else {
                lane->carried = clocks;
                lane->passed = true;
            }
            lane->arrived = false;
        }
    });
}

void watch_meeting(Worker *w, const Warp *warp, const Meeting *meeting)
{
    if (meeting->op != GR_SYNCWARP)
        return;
    Watch *watch = w->watch;
    guarded(watch, [&] {
        std::vector<Brought> all;
        for (unsigned lanes = meeting->arrived; lanes; lanes &= lanes - 1) {
            const Lane *lane = lane_of(w, warp, (unsigned)__builtin_ctz(lanes));
            Self self = self_of(w, lane);
            all.push_back({self, &self.lane->clocks, self.lane->time});
        }
        LaneClocks clocks = gather(watch, all);
        ++watch->meetings;
        for (const Brought &one : all) {
            one.self.lane->clocks = clocks;
            advance(watch, one.self,
                    event_of(watch, w->lanes + (one.self.lane - watch->lanes.data())));
        }
    });
}

void watch_absent(Worker *w, const Warp *warp, unsigned lane, unsigned from)
{
    Watch *watch = w->watch;
    guarded(watch, [&] {
        const Lane *reader = lane_of(w, warp, lane);
        Self self = self_of(w, reader);
        Site site = {reader->file, reader->line};
        Unwritten &found = watch->unwritten[{site.at, site.line}];
        if (found.name.empty())
            found = {self.block, self.slot, site, "lane " + std::to_string(from)};
    });
}

void watch_arrival(Worker *w)
{
    Watch *watch = w->watch;
    guarded(watch, [&] {
        Self self = self_of(w, w->lane);
        self.lane->arrived = true;
        self.lane->carried = self.lane->clocks;
        self.lane->arrived_time = self.lane->time;
        advance(watch, self, {nullptr, nullptr, 0, 0});
    });
}

void watch_passage(Worker *w, const char *file, int line)
{
    Watch *watch = w->watch;
    guarded(watch, [&] {
        Self self = self_of(w, w->lane);
        if (!self.lane->passed)
            return;
        for (unsigned strand = 0; strand < STRANDS; ++strand) {
            VectorClock &own = self.lane->clocks.strand[strand];
            own = joined(watch, own, self.lane->carried.strand[strand]);
        }
        self.lane->passed = false;
        advance(watch, self, {"cluster.barrier_wait", file, line, 0});
    });
}

/* A fence: clocks received from atomics become known. */
static void acquire(const Watch *watch, LaneWatch *lane, gr_scope scope)
{
    VectorClock *strand = lane->clocks.strand;
    strand[KNOWN] = joined(watch, strand[KNOWN], strand[SEEN_BLOCK]);
    if (scope != GR_BLOCK)
        strand[KNOWN] = joined(watch, strand[KNOWN], strand[SEEN_GRID]);
}

void watch_fence(Worker *w, gr_scope scope, const char *file, int line)
{
    Watch *watch = w->watch;
    guarded(watch, [&] {
        Self self = self_of(w, w->lane);
        VectorClock *strand = self.lane->clocks.strand;
        acquire(watch, self.lane, scope);
        strand[FENCED_BLOCK] = everything(watch, self, strand[KNOWN]);
        if (scope != GR_BLOCK)
            strand[FENCED_GRID] = strand[FENCED_BLOCK];
        advance(watch, self,
                {scope == GR_BLOCK ? "__threadfence_block" : "__threadfence", file, line, 0});
    });
}

static void receive(Watch *watch, const Self &self, Variable *variable)
{
    VectorClock *strand = self.lane->clocks.strand;
    strand[SEEN_GRID] = joined(watch, strand[SEEN_GRID], variable->grid);
    strand[SEEN_BLOCK] = joined(watch, strand[SEEN_BLOCK], variable->block[self.block]);
    strand[KNOWN_IF_FENCED] = joined(watch, strand[KNOWN_IF_FENCED], variable->if_fenced);
}

static void publish(Watch *watch, const Self &self, Variable *variable)
{
    const VectorClock *strand = self.lane->clocks.strand;
    VectorClock &block = variable->block[self.block];
    variable->grid = joined(watch, variable->grid, strand[FENCED_GRID]);
    block = joined(watch, block, strand[FENCED_BLOCK]);
    variable->if_fenced = everything(watch, self, strand[KNOWN_IF_FENCED]);
    variable->writer = self.block;
    variable->slot = self.slot;
    variable->time = self.lane->time;
    variable->readers.clear();
    advance(watch, self, {nullptr, nullptr, 0, 0});
}

void pass_on(Watch *watch, const Self &self, Variable *variable)
{
    watch->publishes |= self.lane->clocks.strand[FENCED_BLOCK] != nullptr;
    receive(watch, self, variable);
    publish(watch, self, variable);
}

void pass_on_by_flag(Watch *watch, const Self &self, Variable *variable, const void *load,
                     bool shared)
{
    if (load) {
        if (self.lane->flag == variable && self.lane->flag_at == load)
            watch->polls.insert(load);
        self.lane->flag = variable;
        self.lane->flag_at = load;
        receive(watch, self, variable);
        variable->readers.insert({self.block, self.slot});
    } else {
        *variable = Variable();
        publish(watch, self, variable);
        if (shared)
            variable->if_fenced = nullptr;
    }
}

/* --- bulk copies ----------------------------------------------------------------------------- */

Copies &copies_of(Watch *watch, const Self &self, const void *barrier)
{
    auto key = std::make_pair(self.block, (uintptr_t)barrier);
    auto found = watch->copies.find(key);
    if (found == watch->copies.end()) {
        unsigned slot = watch->threads + (unsigned)(watch->copies.size() % COPY_SLOTS);
        found = watch->copies.emplace(key, Copies(slot, CopyClock())).first;
    }
    return found->second;
}

void order_copy(Watch *watch, const Self &self, CopyClock *clock)
{
    ++clock->time;
    for (unsigned strand : {KNOWN, KNOWN_IF_FENCED})
        clock->released[strand] = joined(watch, clock->released[strand],
                                         everything(watch, self, self.lane->clocks.strand[strand]));
    advance(watch, self, {nullptr, nullptr, 0, 0});
}

void finish_copies(Watch *watch, const Self &self, const Copies &copies, Event event)
{
    if (!copies.second.time)
        return;
    for (unsigned strand : {KNOWN, KNOWN_IF_FENCED}) {
        Join join(watch->slots);
        join.add(self.lane->clocks.strand[strand]);
        join.add(copies.second.released[strand]);
        join.add(self.block, copies.first, copies.second.time - 1);
        self.lane->clocks.strand[strand] = join.result();
    }
    advance(watch, self, event);
}

} // namespace gr

using namespace gr;

int gr_watch_start(void)
{
    try {
        std::unique_ptr<Watch> watch = std::make_unique<Watch>();
        if (!at_end.keep(watch.get()))
            return 0;
        delete watch_of_thread;
        watch_of_thread = watch.release();
        return 1;
    } catch (const std::bad_alloc &) {
        return 0;
    }
}

char *gr_watch_stop(void)
{
    std::unique_ptr<Watch> watch(exchange_watch(nullptr));
    try {
        return watch && !watch->failed ? strdup(report(watch.get()).c_str()) : nullptr;
    } catch (const std::bad_alloc &) {
        return nullptr;
    }
}

#endif
