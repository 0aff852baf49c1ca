/* The race detector's insides, and the calls by which the scheduler keeps it informed. In the plain
 * build these calls are nothing. */
#ifndef GPUREDUCE_EMULATOR_WATCH_H
#define GPUREDUCE_EMULATOR_WATCH_H

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

/* What a lane carries through barriers. KNOWN is what happened before; KNOWN_IF_FENCED what would
 * have, if each atomic were a fence, too: it tells a missing fence from a missing barrier. SEEN is
 * what atomics have brought and a fence will make known; FENCED, what was known at the last fence,
 * goes with the next atomic. Both by the fence's scope. */
enum { KNOWN, KNOWN_IF_FENCED, SEEN_BLOCK, SEEN_GRID, FENCED_BLOCK, FENCED_GRID, STRANDS };

struct Mind {
    Knowledge strand[STRANDS];
};

/* The lane's time counts its meetings, fences and atomics: its events. */
struct LaneWatch {
    Mind mind;
    uint32_t time = 0;
    bool arrived = false, passed = false; /* a cluster's barrier, without having waited yet... */
    Mind carried;                         /* ...what it brought there, or finds when it waits */
    uint32_t arrived_time = 0;
};

struct Event {
    const char *what; /* null: an atomic */
    const char *file;
    int line;
    uint64_t meeting; /* of several lanes: those that it orders have the same number; or 0 */
};

/* What others may learn from an atomic at an address. */
struct Variable {
    Knowledge if_fenced, grid;
    std::map<unsigned, Knowledge> block;
};

/* Bulk copies that one barrier counts: they have a clock of their own, beside the block's lanes. */
struct CopyClock {
    uint32_t time = 0;
    Knowledge released[2]; /* KNOWN, KNOWN_IF_FENCED of those who ordered the copies */
};

/* What would order two accesses. The later ones do more: where some pairs of threads want one and
 * some another, the latest is what the two lines want. */
enum Missing { THREADFENCE, SYNCWARP, SYNCTHREADS, CLUSTER_SYNC, GRID_SYNC, COPY_WAIT };

struct Side {
    unsigned block, slot;
    uint32_t time;
    Access kind;
    Site site;
    /* The barrier, or fence, that comes next to it; what: null if none */
    Event before = {nullptr, nullptr, 0, 0}, after = {nullptr, nullptr, 0, 0};
    bool known_events = false;
};

/* Memory as a report names it. */
struct Address {
    enum { SHARED, GLOBAL, OTHER } space;
    unsigned owner;  /* whose shared memory */
    int parameter;   /* of the kernel, that points to it; -1: none */
    uint64_t offset; /* in bytes */
    unsigned size;   /* of an element */
};

struct Race {
    Side side[2]; /* the earlier one first */
    Address address;
    Missing missing;
    uint64_t count;
};

/* Threads of a block that waited at several barriers at once. */
struct Divergence {
    unsigned block;
    std::map<std::tuple<std::string, int, std::string>, std::vector<unsigned>> places;
};

struct Watch {
    /* Found so far */
    std::vector<Race> races;
    std::map<std::tuple<const void *, int, Access, const void *, int, Access>, size_t> race_of;
    std::vector<Divergence> divergences;
    std::set<std::vector<int>> divergent_lines; /* of those */
    bool failed = false;                        /* for want of memory */
    size_t event_count = 0;                     /* of the running launch */
    uint64_t meetings = 0;

    /* The running launch */
    Launch *launch = nullptr;
    unsigned threads = 0, slots = 0; /* of a block; with those of its bulk copies */
    std::unordered_map<uint64_t, std::vector<Event>> events; /* by lane of the grid */
    std::unordered_map<uintptr_t, Variable> variables;
    Shadow device;
    uintptr_t range = 0, range_bytes = 0; /* of device memory, the last one asked for */

    /* The running team */
    std::vector<LaneWatch> lanes;
    Shadow own; /* shared memory, and what else belongs to blocks */
    std::map<std::pair<unsigned, uintptr_t>, std::pair<unsigned, CopyClock>> copies;
};

enum { COPY_SLOTS = 32 }; /* barriers for bulk copies that a block's clocks tell apart */

/* Hooks run on fibers, where nobody further up could catch what they throw. */
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

/* Memory that a watch takes for events and accesses, at most. */
constexpr size_t watch_most_bytes = size_t(4) << 30;

/* Whether that is exceeded; to be called where guarded() catches. */
inline void check_memory(const Watch *watch)
{
    size_t events = watch->event_count * sizeof(Event);
    if (events + watch->device.bytes() + watch->own.bytes() > watch_most_bytes)
        throw std::bad_alloc();
}

inline unsigned rank_of(const Watch *watch, const Block *block)
{
    dim3 grid = watch->launch->grid;
    return block->index.x + grid.x * (block->index.y + grid.y * block->index.z);
}

/* The lane's number in its block, and what is kept of it. */
struct Self {
    unsigned block, slot;
    LaneWatch *lane;
};

inline Self self_of(const Worker *w, const Lane *lane)
{
    Watch *watch = w->watch;
    const Block *block = lane->warp->block;
    unsigned number = (unsigned)(lane - w->lanes);
    return {rank_of(watch, block), number - block->own.warps->index * 32, &watch->lanes[number]};
}

/* An event of the lane: what it did before is one with the time that now ends. */
inline void advance(Watch *watch, const Self &self, Event event)
{
    ++watch->event_count;
    check_memory(watch);
    watch->events[(uint64_t)self.block * watch->threads + self.slot].push_back(event);
    ++self.lane->time;
}

/* What either knows; and all that a lane has done and knows. */
Knowledge joined(const Watch *watch, const Knowledge &a, const Knowledge &b);
Knowledge everything(const Watch *watch, const Self &self, const Knowledge &known);

/* The clock of the copies that a barrier counts, and the slot it has in its block's. */
typedef std::pair<unsigned, CopyClock> Copies;
Copies &copies_of(Watch *watch, const Self &self, const void *barrier);

/* An atomic takes along what its lane had fenced, and brings what those before it had. */
void pass_on(Watch *watch, const Self &self, const void *address);
/* The lane orders a copy; has waited for the copies. */
void order_copy(Watch *watch, const Self &self, CopyClock *clock);
void finish_copies(Watch *watch, const Self &self, const Copies &copies, Event event);

/* Turns what was found into text. */
std::string report(const Watch *watch);

#ifdef GR_EMULATOR_TRACED

/* The calling thread's; null: it does not watch. */
Watch *thread_watch();
/* Replaces it; returns the one before. */
Watch *exchange_watch(Watch *watch);

void watch_launch(Watch *watch, Launch *launch);
void watch_launch_end(Watch *watch);
void watch_team(Worker *w);
void watch_access(Worker *w, const void *address, size_t size, Access kind, const void *place);
void watch_fence(Worker *w, gr_scope scope, const char *file, int line);
void watch_block_end(Worker *w, const Lane *last);
/* The running lane makes a barrier for bulk copies, orders a copy, has waited for one. */
void watch_copy_barrier(Worker *w, const void *barrier, const char *file, int line);
void watch_copy(Worker *w, const void *shared, const void *global, size_t bytes,
                const void *barrier, const char *file, int line);
void watch_copied(Worker *w, const void *barrier, const char *file, int line);
/* All whom a barrier gathers have come. */
void watch_barrier(Worker *w, const Barrier *barrier, gr_scope scope);
void watch_meeting(Worker *w, const Warp *warp, const Meeting *meeting);
/* The running lane has arrived at the cluster's barrier; has waited there. */
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
inline void watch_barrier(Worker *, const Barrier *, gr_scope) {}
inline void watch_meeting(Worker *, const Warp *, const Meeting *) {}
inline void watch_arrival(Worker *) {}
inline void watch_passage(Worker *, const char *, int) {}

#endif

} // namespace gr

#endif
