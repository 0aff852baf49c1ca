/* A recorder's insides, and the calls by which the scheduler keeps it informed. In the plain build
 * these calls are nothing. */
#ifndef GPUREDUCE_EMULATOR_RECORDER_H
#define GPUREDUCE_EMULATOR_RECORDER_H

#include <vector>

#include "emulator/trace/access.h"
#include "emulator/trace/counters.h"
#include "emulator/scheduler/scheduler.h"

namespace gr
{

/* What stands at a place in the code. */
enum Deed : uint8_t { LOAD, STORE, UPDATE, FENCE, MEETING };

struct Place {
    uintptr_t at;      /* a return address; or the name of a file, and the line in it */
    int line;          /* 0: `at` is a return address */
    uint16_t interval; /* meetings of part of the warp that went before: they part instructions */
    uint8_t size;
    Deed deed;

    uint64_t rest() const /* all but `at`, as one word */
    {
        return (uint64_t)(uint32_t)line << 32 | (uint32_t)interval << 16 | (uint32_t)size << 8 |
               deed;
    }
};

/* Lanes of a warp that came to one place, each for the same time. */
struct Instruction {
    uint32_t mask;
    uintptr_t address[32];
};

/* All that a warp has done at a place since its last barrier. */
struct Column {
    std::vector<Instruction> instructions;
    unsigned used;
    uint32_t times[32]; /* that each lane has come here */
};

struct WarpRecord {
    std::vector<Column> columns; /* by place */
    std::vector<unsigned> touched;
    uint16_t interval[32];
    unsigned barrier, sync, step;
    uint32_t active;
};

/* The worst access to shared memory. */
struct Pattern {
    unsigned wavefronts, ideal;
    uint32_t mask;
    uint32_t offset[32];
};

struct PlaceRecord {
    Place place;
    gr_counters now, total; /* of the running sample; of all, weighted */
    Pattern worst;
};

struct StepRecord {
    unsigned barrier, sync;
    gr_counters now, total;
    std::vector<uint32_t> lanes; /* active ones, by warp of the first block */
};

} // namespace gr

struct gr_recorder {
    std::vector<gr_sample> samples;
    std::vector<gr_counters> sample_counts;
    gr_roll roll;
    bool failed;
    size_t bytes; /* taken for what warps have done since their last barriers, and for steps */

    std::vector<gr::PlaceRecord> places;
    std::vector<unsigned> table; /* of places, by hash; place + 1 */
    struct {
        uintptr_t at;
        uint64_t rest;
        unsigned number;
    } recent[64]; /* places, by some bits of their hash */
    std::vector<gr::WarpRecord> warps;
    std::vector<gr::StepRecord> steps;
    std::vector<std::vector<unsigned>> step_of; /* by barrier and sync; step + 1 */
    bool first_team;

    std::vector<gr_counted_line> lines; /* as handed out */
    std::vector<gr_counted_step> sorted;
};

namespace gr
{

#ifdef GR_EMULATOR_TRACED
/* Runs the samples of the launch, all on this thread. */
void run_samples(Launch *launch);
/* The calling thread's recorder, or null. */
gr_recorder *thread_recorder();
/* Replaces it; returns the one before. */
gr_recorder *exchange_recorder(gr_recorder *recorder);

void count_access(Worker *w, const void *address, size_t size, Access kind, const void *place);
void count_fence(Worker *w, const char *file, int line);
void count_copy(Worker *w, size_t bytes, const char *file, int line);
/* All whom the barrier gathers have come. */
void count_barrier(Worker *w, const Barrier *barrier, gr_scope scope);
void count_meeting(Worker *w, Warp *warp, const Meeting *meeting);

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
inline constexpr bool counted(const Worker *)
{
    return false;
}
#endif

} // namespace gr

#endif
