/* Internals of the race detector, and the functions by which the scheduler reports events to it. In
 * the plain build these functions are empty. */
#pragma once

#include <map>
#include <new>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "emulator/races/vector_clock.h"
#include "emulator/scheduler/scheduler.h"
#include "emulator/races/shadow_memory.h"

namespace gr
{

/* Vector clocks that a lane carries from barrier to barrier. KNOWN: what happened before.
 * KNOWN_IF_FENCED: what would have happened before if every atomic were also a fence; the
 * difference tells a missing fence from a missing barrier. SEEN_*: received from atomics, becomes
 * KNOWN at the next fence. FENCED_*: KNOWN as of the last fence, published by the next atomic. SEEN
 * and FENCED exist once per fence scope. */
enum { KNOWN, KNOWN_IF_FENCED, SEEN_BLOCK, SEEN_GRID, FENCED_BLOCK, FENCED_GRID, STRANDS };

struct LaneClocks {
    VectorClock strand[STRANDS];
};

/* The lane's clock. `time` counts the lane's synchronization events: barriers, fences and
 * atomics. */
struct LaneWatch {
    LaneClocks clocks;
    uint32_t time = 0;
    /* arrived: at a cluster barrier, which is not complete yet. passed: it has completed, but the
     * lane has not waited for it yet. */
    bool arrived = false, passed = false;
    LaneClocks
        carried; /* the clocks it brought there; once passed, the clocks it receives by waiting */
    uint32_t arrived_time = 0;
    std::vector<std::pair<Site, uint32_t>> stores; /* how many at each site since a block barrier */
    uintptr_t touched = 0;                         /* address and place of its last access */
    const void *touched_at = nullptr;
    uintptr_t loaded = 0; /* the address of its last plain load */
    Site load = {nullptr, 0};
    const void *flag = nullptr, *flag_at = nullptr; /* of its last volatile load: Variable, place */
};

struct Event {
    const char *what; /* name of the operation; null: an atomic */
    const char *file;
    int line;
    /* lanes ordered by one barrier share a number; 0: the event is no barrier */
    uint64_t meeting;
};

/* Clocks that lanes published at one address by atomics and volatile stores, for later atomics and
 * volatile loads there to receive. */
struct Variable {
    VectorClock if_fenced, grid;
    std::map<unsigned, VectorClock> block;
    /* The last such atomic or store, and the lanes that have loaded its value: block and slot */
    unsigned writer = ~0u, slot = 0;
    uint32_t time = 0;
    std::set<std::pair<unsigned, unsigned>> readers;
};

/* The bulk copies that one mbarrier (CopyBarrier) counts. Together they are one more thread of the
 * block: they share a vector clock, beside those of the lanes. */
struct CopyClock {
    uint32_t time = 0;
    VectorClock released[2]; /* KNOWN and KNOWN_IF_FENCED of the lanes that started the copies */
};

/* What would order two accesses, from weakest to strongest. If thread pairs of two lines need
 * different ones, the report names the strongest. PLAIN_LOAD: they are in order, but a load through
 * a cache may read an older value. */
enum Missing { PLAIN_LOAD, THREADFENCE, SYNCWARP, SYNCTHREADS, CLUSTER_SYNC, GRID_SYNC, COPY_WAIT };

struct Side {
    unsigned block, slot;
    uint32_t time;
    Access kind;
    Site site;
    /* The nearest barriers or fences around the access; `what` is null if there is none */
    Event before = {nullptr, nullptr, 0, 0}, after = {nullptr, nullptr, 0, 0};
    bool known_events = false;
};

/* A memory location, as a report names it. */
struct Address {
    std::string name; /* "out[3]" */
    bool shared;
    unsigned owner; /* the block whose shared memory it is */
};

struct Race {
    Side side[2]; /* the earlier one first */
    Address address;
    Missing missing;
    uint64_t count;
    bool differ;   /* whether two stores have different values; else true */
    bool fenced;   /* the earlier side has a fence and an atomic: only the later lacks a fence */
    bool together; /* two stores at one site in the same step, so that no barrier orders them */
};

/* A store that is about to be made where another thread has stored, and the bytes there. */
struct Overwriting {
    size_t race;
    uintptr_t address;
    size_t size; /* 0: there is none */
    unsigned char before[16];
};

/* An atomic after which its block, or its warp, was stopped. */
struct Stop {
    unsigned block, thread;
    Site site;
    bool whole; /* whether the block was stopped */
};

/* A read of shared memory that no thread has written, or of a lane that takes no part. */
struct Unwritten {
    unsigned block, thread;
    Site site;
    std::string name;
};

/* Threads of a block that waited at different lines for one block barrier; or that ended without
 * reaching it, in a warp of which other threads wait there. */
struct Divergence {
    unsigned block;
    std::vector<unsigned> ended;
    std::map<std::tuple<std::string, int, std::string, const void *>, std::vector<unsigned>> places;
};

/* Under a random schedule, the block that stops after the first atomic at one place in the kernel;
 * its warp, if the team has one block. The block continues when the other threads cannot, or
 * only poll. So they run before the accesses that follow the atomic. A kernel is wrong if its sum
 * or its order of accesses depends on a block that draws a ticket or takes a lock and never stops.
 */
struct Stopped {
    enum { NOT_YET, SOON, NOW, OVER } state = NOT_YET;
    const Lane *lane = nullptr; /* the lane that made the atomic */
    std::vector<unsigned> ready;
    unsigned polls = 0, polls_in_all = 0, accesses = 0; /* polls: consecutive ones */
};

struct Watch {
    /* Results so far */
    std::vector<Race> races;
    Overwriting overwriting = {};
    std::map<std::tuple<const void *, int, Access, const void *, int, Access>, size_t> race_of;
    /* By site: plain loads, less the loads after which the lane made an atomic at the same address.
     * A compare-and-swap loop begins with such a load, whose value is only a guess. */
    std::map<std::pair<const void *, int>, long> loads;
    std::set<const void *> polls; /* places at which a lane repeated a volatile load */
    std::vector<Divergence> divergences;
    std::map<std::pair<const void *, int>, Unwritten> unwritten; /* the first one at each site */
    std::set<std::vector<int>> divergent_lines; /* of `divergences`: each set is reported once */
    size_t atomics = 0; /* number of places, if an atomic passed on what a fence published */
    std::vector<Stop> stops;
    bool failed = false;    /* out of memory */
    size_t event_count = 0; /* of the running launch */
    uint64_t meetings = 0;

    /* The running launch */
    Launch *launch = nullptr;
    /* per block; slots: threads, plus clocks of bulk copies */
    unsigned threads = 0, slots = 0;
    /* by the number of the lane in the grid */
    std::unordered_map<uint64_t, std::vector<Event>> events;
    std::unordered_map<uintptr_t, Variable> variables, own_variables; /* own: in shared memory */
    std::vector<const void *> atomic_places; /* in the order of their first atomics */
    bool publishes = false;                  /* an atomic passed on what a fence published */
    Stopped stopped;
    Shadow device;
    uintptr_t range = 0, range_bytes = 0; /* the device allocation that was looked up last */

    /* The running team */
    std::vector<LaneWatch> lanes;
    Shadow own; /* of shared memory, and of other memory that belongs to the team */
    std::map<std::pair<unsigned, uintptr_t>, std::pair<unsigned, CopyClock>> copies;
};

/* Clock slots per block for mbarriers. With more mbarriers, some share a slot. */
enum { COPY_SLOTS = 32 };

/* Runs `step`, and fails the launch if it runs out of memory. Hooks run on fibers, from which an
 * exception could not propagate. */
template <typename Step> void guarded(Watch *watch, Step step)
{
    if (watch->failed)
        return;
    try {
        step();
    } catch (const std::bad_alloc &) {
        watch->failed = true;
        launch_failed(watch->launch, cudaErrorMemoryAllocation, "");
    }
}

/* Limit on the memory that the detector uses for events and accesses. */
constexpr size_t watch_most_bytes = size_t(4) << 30;

/* Throws if the limit is exceeded; to be called inside guarded(). */
inline void check_memory(const Watch *watch)
{
    size_t events = watch->event_count * sizeof(Event);
    if (events + watch->device.bytes() + watch->own.bytes() > watch_most_bytes)
        throw std::bad_alloc();
}

/* The lane's block, its number there, and its detector state. */
struct Self {
    unsigned block, slot;
    LaneWatch *lane;
};

inline Self self_of(const Worker *w, const Lane *lane)
{
    Watch *watch = w->watch;
    const Block *block = lane->warp->block;
    unsigned number = (unsigned)(lane - w->lanes);
    return {block->rank, number - block->own.warps->index * 32, &watch->lanes[number]};
}

/* Records an event of the lane and ends its current time. Accesses before the event carry that
 * time, accesses after it the next one. */
inline void advance(Watch *watch, const Self &self, Event event)
{
    ++watch->event_count;
    check_memory(watch);
    watch->events[(uint64_t)self.block * watch->threads + self.slot].push_back(event);
    ++self.lane->time;
}

/* joined(): the join of two clocks. everything(): `known`, plus all that the lane itself has
 * done. */
VectorClock joined(const Watch *watch, const VectorClock &a, const VectorClock &b);
VectorClock everything(const Watch *watch, const Self &self, const VectorClock &known);

/* The clock of the copies that an mbarrier counts, and its slot among the block's clocks. */
typedef std::pair<unsigned, CopyClock> Copies;
Copies &copies_of(Watch *watch, const Self &self, const void *barrier);

/* An atomic: publishes the lane's FENCED clocks at the address, and receives the clocks that
 * earlier atomics published there. */
void pass_on(Watch *watch, const Self &self, Variable *variable);
/* The same of a volatile access: a load receives, a store publishes. `load`: the place of a load;
 * null for a store. In shared memory volatile is mostly meant for lanes in lockstep, which lack a
 * barrier and no fence. */
void pass_on_by_flag(Watch *watch, const Self &self, Variable *variable, const void *load,
                     bool shared);
/* The running lane makes an atomic: its block may stop, if it is the first one at this place. */
void note_atomic(Worker *w, const Self &self, Site site);
/* The lane starts a copy; the lane has waited for the copies. */
void order_copy(Watch *watch, const Self &self, CopyClock *clock);
void finish_copies(Watch *watch, const Self &self, const Copies &copies, Event event);

/* The store of `overwriting` has been made: notes whether it changed the value. */
void end_overwriting(Watch *watch);

/* Formats the results as JSON. */
std::string report(const Watch *watch);

#ifdef GR_EMULATOR_TRACED

/* The calling thread's detector. Null: there is none. */
Watch *thread_watch();
/* Replaces the calling thread's detector and returns the previous one. */
Watch *exchange_watch(Watch *watch);

void watch_launch(Watch *watch, Launch *launch);
void watch_launch_end(Watch *watch);
void watch_team(Worker *w);
void watch_access(Worker *w, const void *address, size_t size, Access kind, bool reads, Site site);
void watch_fence(Worker *w, gr_scope scope, const char *file, int line);
void watch_block_end(Worker *w, const Lane *last);
/* Called before an access under a random schedule: may stop the block of the last atomic. */
void watch_turn(Worker *w, uintptr_t address, const void *place);
/* No lane is ready. Returns whether stopped lanes now continue. */
bool watch_idle(Worker *w);
/* The running lane initializes an mbarrier for bulk copies, starts a copy, has waited for one. */
void watch_copy_barrier(Worker *w, const void *barrier, const char *file, int line);
void watch_copy(Worker *w, const void *shared, const void *global, size_t bytes,
                const void *barrier, const char *file, int line);
void watch_copied(Worker *w, const void *barrier, const char *file, int line);
/* All lanes have arrived at the barrier or collective. */
void watch_barrier(Worker *w, const Barrier *barrier, gr_scope scope);
void watch_meeting(Worker *w, const Warp *warp, const Meeting *meeting);

/* A lane shuffles from a lane that takes no part. */
void watch_absent(Worker *w, const Warp *warp, unsigned lane, unsigned from);
/* The running lane has arrived at the cluster barrier; has waited there. */
void watch_arrival(Worker *w);
void watch_passage(Worker *w, const char *file, int line);

inline bool watched(const Worker *w)
{
    return __builtin_expect(w->watch != nullptr, 0);
}

#else

inline constexpr bool watched(const Worker *)
{
    return false;
}
inline constexpr Watch *thread_watch()
{
    return nullptr;
}
inline Watch *exchange_watch(Watch *)
{
    return nullptr;
}
inline void watch_launch(Watch *, Launch *) {}
inline void watch_launch_end(Watch *) {}
inline void watch_team(Worker *) {}
inline void watch_block_end(Worker *, const Lane *) {}
inline bool watch_idle(Worker *)
{
    return false;
}
inline void watch_barrier(Worker *, const Barrier *, gr_scope) {}
inline void watch_meeting(Worker *, const Warp *, const Meeting *) {}
inline void watch_absent(Worker *, const Warp *, unsigned, unsigned) {}
inline void watch_arrival(Worker *) {}
inline void watch_passage(Worker *, const char *, int) {}

#endif

} // namespace gr
