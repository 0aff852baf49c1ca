/* Internals of a recorder, and the functions by which the scheduler reports events to it. In the
 * plain build these functions are empty. */
#pragma once

#include <array>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "emulator/trace/access.h"
#include "emulator/trace/counters.h"
#include "emulator/trace/steps.h"
#include "emulator/scheduler/scheduler.h"

namespace gr
{

/* The operation at a place in the code, and the kind of its steps. COPY: a bulk copy to shared
 * memory. END: lanes return from the kernel. MEETING + Lane::waits: a barrier or a collective. */
enum Deed : uint8_t { LOAD, STORE, UPDATE, FENCE, COPY, END, MEETING };

struct Place {
    uintptr_t at; /* a return address, or the name of a file */
    int line;     /* line of that file; 0: `at` is a return address */
    /* number of earlier collectives of only a part of the warp; separates the instructions before
     * and after them */
    uint16_t interval;
    uint8_t size;
    Deed deed;

    uint64_t rest() const /* all members but `at`, packed */
    {
        return (uint64_t)(uint32_t)line << 32 | (uint32_t)interval << 16 | (uint32_t)size << 8 |
               deed;
    }
};

/* An instruction of a warp: the lanes that have reached one place of the code, each of them for the
 * n-th time. */
struct Instruction {
    uint32_t mask;
    uint32_t step; /* of a replay: that of the lane that came last */
    uintptr_t address[32];
};

/* A warp's instructions at one place since its last barrier, by visit. */
struct Column {
    std::vector<Instruction> instructions;
    unsigned used;
    uint32_t times[32]; /* number of visits, by lane */
};

struct WarpRecord {
    std::vector<Column> columns; /* by place */
    std::vector<unsigned> touched;
    uint16_t interval[32];
    unsigned barrier, sync;
    struct StepRecord *step;
    uint32_t active;
    uint64_t requests; /* global loads and atomics */
};

/* The shared memory access with the most wavefronts. */
struct Pattern {
    unsigned wavefronts, ideal;
    uint32_t mask;
    uint32_t offset[32];
};

struct PlaceRecord {
    Place place;
    gr_counters now, total; /* of the running sample; weighted sum over all samples */
    Pattern worst;
};

struct StepRecord {
    gr_counters now, total;
    std::vector<uint32_t> lanes; /* active lanes, by warp of the first block */
};

/* The steps of a replay. */
struct Replay {
    std::vector<gr_step> steps;
    std::vector<gr_memory> arrays;
    std::vector<std::array<uint32_t, 2>> launches; /* as in gr_kept_steps */
    /* step and lane of a store or an atomic that is about to be made, in pieces */
    std::vector<std::pair<uint32_t, unsigned>> pending;
};

/* Atomics by address. */
using ByAddress = std::unordered_map<uintptr_t, uint64_t>;

} // namespace gr

struct gr_recorder {
    std::vector<gr_sample> samples;
    std::vector<gr_counters> sample_counts;
    gr_arrivals arrivals;
    bool failed;
    /* used for the instructions of warps since their last barriers, and for steps */
    size_t bytes;

    std::vector<gr::PlaceRecord> places;
    std::map<std::pair<uintptr_t, uint64_t>, unsigned> number_of; /* of a place: its index */
    struct {
        uintptr_t at;
        uint64_t rest;
        unsigned number;
    } recent[256]; /* cache of `number_of` */
    std::vector<gr::WarpRecord> warps;
    std::map<std::pair<unsigned, unsigned>, gr::StepRecord> steps; /* by barrier and sync */
    bool first_team;
    uint64_t blocks, most_requests;               /* of a warp */
    gr::ByAddress global_atomics, shared_atomics; /* of all teams; of the running team */
    gr_contention global, shared;                 /* without the counts in the two maps */

    std::unique_ptr<gr::Replay> replay; /* null: no steps are kept */

    std::vector<gr_counted_line> lines; /* the results */
    std::vector<gr_counted_step> sorted;
};

namespace gr
{

#ifdef GR_EMULATOR_TRACED
/* Runs the launch's samples, all on this thread. */
void run_samples(Launch *launch);
/* The counters of a place, of the work between two barriers, and of a replay's step, or null. All
 * get every count. */
struct Count {
    uint64_t *place, *step;
    uint32_t *shown;

    void add(unsigned counter, uint64_t amount) const
    {
        place[counter] += amount;
        step[counter] += amount;
        if (shown)
            shown[counter] += (uint32_t)amount;
    }
};

inline Count count_at(gr_recorder *r, unsigned place, const WarpRecord *warp, uint32_t shown)
{
    return {r->places[place].now.count, warp->step->now.count,
            r->replay ? r->replay->steps[shown].counts : nullptr};
}

/* Gets the line of a place, or a null file and 0. */
void find_line(const Place &place, const char **file, int *line);
/* Counts a complete warp instruction at the place of that number. */
void count_instruction(Worker *w, unsigned place, const Warp *warp, const Instruction *instruction);

/* The calling thread's recorder. Null: there is none. */
gr_recorder *thread_recorder();
/* Replaces the calling thread's recorder and returns the previous one. */
gr_recorder *exchange_recorder(gr_recorder *recorder);

void count_access(Worker *w, const void *address, size_t size, Access kind, const void *place);
void count_fence(Worker *w, const char *file, int line);
void count_copy(Worker *w, const void *shared, const void *global, size_t bytes, const char *file,
                int line);
/* All lanes have arrived at the barrier or collective. */
void count_barrier(Worker *w, const Barrier *barrier, gr_scope scope);
void count_meeting(Worker *w, Warp *warp, const Meeting *meeting);
/* The lane has returned from the kernel. */
void count_end(Worker *w, const Lane *lane);

/* Steps of a replay. keep_step() begins one and returns its number. If there are too many, it ends
 * the running team. Without a replay, it does nothing. */
uint32_t keep_step(gr_recorder *r, const Warp *warp, uint32_t place, uint32_t lanes);
/* Whether a lane's access, which comes now, can be shown as part of a step that other lanes of its
 * warp have made: nothing that has come since depends on it. */
bool joins(const Replay *replay, uint32_t step, const Lane *lane, uintptr_t address, size_t bytes);
void keep_access(Worker *w, uint32_t step, uintptr_t address);
void keep_copy(Worker *w, uint32_t step, uintptr_t shared, uintptr_t global, size_t bytes);
void keep_meeting(gr_recorder *r, uint32_t step, const Warp *warp, const Meeting *meeting);
/* Reads what the last store or atomic has left in memory. */
void settle(Worker *w);

inline bool counted(const Worker *w)
{
    return __builtin_expect(w->recorder != nullptr, 0);
}
#else
inline void run_samples(Launch *) {}
inline constexpr gr_recorder *thread_recorder()
{
    return nullptr;
}
inline gr_recorder *exchange_recorder(gr_recorder *)
{
    return nullptr;
}
inline void count_barrier(Worker *, const Barrier *, gr_scope) {}
inline void count_meeting(Worker *, Warp *, const Meeting *) {}
inline void count_end(Worker *, const Lane *) {}
inline constexpr bool counted(const Worker *)
{
    return false;
}
#endif

} // namespace gr
