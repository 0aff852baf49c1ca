/* How the emulator runs a kernel.
 *
 * A lane is a CUDA thread; it runs on a fiber. A team is the blocks that must be resident together:
 * one block, a cluster, or the whole grid of a cooperative launch. A worker is an OS thread with
 * what it needs to run one team after another; the teams of a launch are spread over workers by
 * gr_parallel.
 *
 * Which lanes can run is a bit mask per warp and a bit map of warps. A lane that has to wait, or
 * ends, draws the next lane by the launch's schedule and switches straight to it. A lane that ends
 * on a fiber while the next one has not begun yet leaves the fiber to it: a kernel without barriers
 * runs as a plain loop on one stack.
 *
 * Barriers count live lanes. When no lane can run and not all have ended, that is a deadlock: a
 * fault, of which the report names the places where lanes wait. After a fault the team's fibers are
 * never resumed; their stacks are taken back as they are. */
#ifndef GPUREDUCE_EMULATOR_SCHEDULER_H
#define GPUREDUCE_EMULATOR_SCHEDULER_H

#include <stddef.h>
#include <stdint.h>

#include "emulator/emulator.h"
#include "emulator/fiber.h"
#include "emulator/launch.h"
#include "lane.h"

namespace gr
{

struct Warp;
struct Block;

/* What a lane waits for: one of the collectives, or a barrier. */
enum : uint8_t { WAIT_NONE = 255, WAIT_BARRIER = GR_COLLECTIVE_COUNT /* + scope */ };

struct alignas(64) Lane {
    void *saved; /* the suspended fiber; null before it has begun and after it has ended */
    Warp *warp;
    uint3 thread;
    unsigned stack;
    const char *file; /* where it waits, for reports */
    int line;
    unsigned mask;   /* and for which lanes of its warp */
    unsigned ticket; /* has arrived at the cluster's barrier without waiting: its phase + 1 */
    uint8_t index;   /* in the warp */
    uint8_t waits;
    void *fake_stack; /* AddressSanitizer's */
};

/* Lanes of one warp that gather for one collective, all with the same mask. */
struct Meeting {
    unsigned mask, arrived;
    gr_collective op;
    int argument, width; /* the first arrival's */
    bool uniform;        /* all came with these */
};

struct alignas(64) Warp {
    unsigned live;               /* lanes that have not ended */
    unsigned ready;              /* lanes that can run, the running one among them */
    unsigned at[GR_SCOPE_COUNT]; /* lanes that wait at a barrier */
    unsigned meetings;
    unsigned index; /* in the team */
    Block *block;
    uint64_t value[32]; /* deposits; each lane writes its own when it arrives */
    int argument[32];
    int width[32];
    uint64_t result[32]; /* read by the lane when it runs again */
    Meeting meeting[32]; /* no lane is at two, so there are never more */
};

struct Barrier {
    Warp *warps; /* whom it gathers */
    unsigned warp_count;
    unsigned live, arrived;
    unsigned phase;
    bool vote; /* this time it counts predicates */
    unsigned yes;
    gr_votes result; /* of the last vote */
};

struct Block {
    uint3 index;
    char *shared;
    unsigned rank;         /* in the grid */
    unsigned cluster_rank; /* in its cluster */
    Barrier own;
    Barrier *barrier[GR_SCOPE_COUNT]; /* the grid's only in a cooperative launch */
};

struct Worker {
    /* Read at every switch */
    Lane *lane; /* the running one; null outside a team */
    Block *block;
    gr_schedule schedule;
    unsigned ready_words;
    uint64_t *ready_warps; /* bit map: warps with lanes that can run */
    uint64_t random;
    unsigned turns;
    Stacks stacks;
    void *main; /* the OS thread's own stack, waiting for the team to end */

    /* The team */
    Launch *launch;
    uint64_t team;
    unsigned live;
    bool faulted;
    unsigned lane_count, warp_count, block_count;
    Lane *lanes;
    Warp *warps;
    Block *blocks;
    Barrier *clusters;
    Barrier grid;
    char *shared;
    size_t shared_bytes;
    Shape shape; /* what the arrays are laid out for */

    /* The addresses of threadIdx and its like, which are no memory to a kernel */
    uintptr_t builtins;
    size_t builtins_bytes;

    const void *main_bottom; /* AddressSanitizer wants the bounds of every stack */
    size_t main_size;
    void *main_fake_stack;
};

extern __thread __attribute__((tls_model("initial-exec"))) Worker *worker;

/* Runs one team of the launch on this OS thread. */
void run_team(Worker *w, Launch *launch, uint64_t team);
/* Runs the team's lanes, this one first, until all have ended or one has faulted... */
void start_team(Worker *w, Lane *first);
/* ...which is where it goes on. */
[[noreturn]] void leave_team(Worker *w);
/* This OS thread's worker, laid out for the launch; null: no memory. */
Worker *worker_for(Launch *launch);

/* The next lane by the schedule, after that one or from the barrier's first; null: none can run. */
Lane *next_lane(Worker *w, Warp *warp, unsigned index);
Lane *first_lane(Worker *w, Barrier *barrier);
Lane *next_in_warp(Worker *w, Warp *warp, unsigned index);
Lane *next_sweep(Worker *w, Warp *warp, unsigned index);
Lane *random_lane(Worker *w);

/* Suspends the running lane and runs `next`; returns when somebody runs this lane again. No next:
 * a deadlock. */
void switch_lanes(Worker *w, Lane *me, Lane *next);

/* Lanes of the warp cease to be, or become, able to run. */
inline void make_ready(Worker *w, Warp *warp, unsigned lanes)
{
    warp->ready |= lanes;
    w->ready_warps[warp->index / 64] |= 1ull << (warp->index % 64);
}
inline void make_unready(Worker *w, Warp *warp, unsigned lanes)
{
    warp->ready &= ~lanes;
    if (!warp->ready)
        w->ready_warps[warp->index / 64] &= ~(1ull << (warp->index % 64));
}

/* A lane has ended: who waits only for it goes on. True: lanes were released. */
bool barrier_leave(Worker *w, Lane *lane, Barrier *barrier, gr_scope scope);
bool meetings_leave(Worker *w, Warp *warp);

inline uint64_t random_next(uint64_t *state) /* xorshift64* */
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 0x2545f4914f6cdd1d;
}

} // namespace gr

#endif
