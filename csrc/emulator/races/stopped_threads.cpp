/* Stops a block or a warp after an atomic, so that other threads run first: see Stopped. */
#ifdef GR_EMULATOR_TRACED

#include <algorithm>

#include "emulator/races/detector.h"

namespace gr
{

/* A lane that repeats an access polls. These limits end a stop: consecutive polls, enough for
 * threads that try a lock 64 times before they fail, and accesses. After `most_polls_in_all`, the
 * launch goes on in the forward order: with many threads that wait for one lock, a random order
 * takes long to find the thread that holds the lock. */
static constexpr unsigned most_polls = 1000, most_polls_per_lane = 64, most_accesses = 1 << 20,
                          most_polls_in_all = 20000;

/* The warps of the team that stop: first and count. */
static Warp *stopping(const Worker *w, unsigned *count)
{
    const Barrier &block = w->watch->stopped.lane->warp->block->own;
    *count = w->block_count > 1 ? block.warp_count : 1;
    return w->block_count > 1 ? block.warps : w->watch->stopped.lane->warp;
}

static void stop(Worker *w)
{
    Stopped &stopped = w->watch->stopped;
    unsigned count;
    Warp *warps = stopping(w, &count);
    stopped.state = Stopped::NOW;
    stopped.ready.resize(count);
    for (unsigned i = 0; i < count; ++i) {
        stopped.ready[i] = warps[i].ready;
        warps[i].ready = 0;
        w->ready_warps[warps[i].index / 64] &= ~(1ull << (warps[i].index % 64));
    }
}

static void resume(Worker *w)
{
    Stopped &stopped = w->watch->stopped;
    unsigned count;
    Warp *warps = stopping(w, &count);
    stopped.state = Stopped::OVER;
    for (unsigned i = 0; i < count; ++i)
        if (stopped.ready[i])
            make_ready(w, &warps[i], stopped.ready[i]);
}

bool watch_idle(Worker *w)
{
    if (w->watch->stopped.state != Stopped::NOW)
        return false;
    resume(w);
    return true;
}

void note_atomic(Worker *w, const Self &self, Site site)
{
    Watch *watch = w->watch;
    auto &places = watch->atomic_places;
    if (std::find(places.begin(), places.end(), site.at) != places.end())
        return;
    if (places.size() == watch->launch->number && w->schedule == GR_SCHEDULE_RANDOM &&
        watch->stopped.state == Stopped::NOT_YET && w->warp_count > 1) {
        watch->stopped.state = Stopped::SOON;
        watch->stopped.lane = w->lane;
        watch->stops.push_back({self.block, self.slot, site, w->block_count > 1});
    }
    places.push_back(site.at);
}

void watch_turn(Worker *w, uintptr_t address, const void *place)
{
    Watch *watch = w->watch;
    Stopped &stopped = watch->stopped;
    Lane *me = w->lane;
    LaneWatch &lane = watch->lanes[(size_t)(me - w->lanes)];
    bool polls = lane.touched == address && lane.touched_at == place;
    lane.touched = address;
    lane.touched_at = place;
    stopped.polls = polls ? stopped.polls + 1 : 0;
    stopped.polls_in_all += polls;
    bool long_enough = stopped.polls_in_all > most_polls_in_all ||
                       stopped.polls > most_polls + most_polls_per_lane * w->live;
    if (stopped.state == Stopped::SOON && !long_enough) {
        guarded(watch, [&] { stop(w); });
        if (!me->warp->ready)
            switch_lanes(w, me, random_lane(w));
    } else if (stopped.state == Stopped::NOW &&
               (long_enough || ++stopped.accesses > most_accesses)) {
        resume(w);
    }
    if (stopped.polls_in_all > most_polls_in_all)
        w->schedule = GR_SCHEDULE_FORWARD;
}

} // namespace gr

#endif
