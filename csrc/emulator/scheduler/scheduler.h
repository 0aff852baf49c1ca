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

#include "emulator/runtime/emulator.h"
#include "emulator/scheduler/fiber.h"
#include "emulator/runtime/launch.h"
#include "lane.h"

struct gr_recorder;

namespace gr
{

struct Warp;
struct Block;
struct Watch;

/* What a lane waits for: one of the collectives, or a barrier. */
enum : uint8_t {
    WAIT_NONE = 255,
    WAIT_BARRIER = GR_COLLECTIVE_COUNT /* + scope */,
    WAIT_COPY = WAIT_BARRIER + GR_SCOPE_COUNT
};

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
    unsigned live; /* of a team of one block, only the block's own barrier keeps this */
    unsigned arrived;
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
    void *main;   /* the OS thread's own stack, waiting for the team to end */
    void *paused; /* the running fiber, while the OS thread looks whether to go on */
    unsigned until_look, look_every; /* switches of lanes, or accesses */
    long long looked_ns;

    Watch *watch;            /* looks for races in this launch; null: nothing does */
    ::gr_recorder *recorder; /* counts what this launch does; null: nothing does */

    /* The team */
    Launch *launch;
    uint64_t team;
    unsigned live;
    unsigned wide_arrivals; /* lanes counted at barriers of a cluster or the grid */
    bool faulted;
    unsigned vain; /* turns in a row of lanes that looked for a bulk copy, and did not find it */
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

    StackBounds main_bounds;
    void *main_fake_stack;
};

extern __thread __attribute__((tls_model("initial-exec"))) Worker *worker;

/* A thread's worker, put aside while a signal handler runs on the thread. */
struct WorkerAside {
    Worker *worker;
    uint3 thread, block;
    dim3 block_size, grid_size;
    char *shared;
};
void put_worker_aside(WorkerAside *aside);
void take_worker_up(const WorkerAside *aside);

/* Runs one team of the worker's launch. */
void run_team(Worker *w, uint64_t team);
/* Runs the team's lanes, this one first, until all have ended or one has faulted... */
void start_team(Worker *w, Lane *first);
/* ...which is where it goes on. */
[[noreturn]] void leave_team(Worker *w);
/* This OS thread's worker, laid out for the launch; null: no memory. */
Worker *worker_for(Launch *launch);

/* The next lane to run by the schedule; null: none can. */
Lane *first_lane(Worker *w, Barrier *barrier);                 /* of those that it gathers */
Lane *next_warp(Worker *w, const Warp *warp);                  /* the first of another warp */
Lane *next_sweep(Worker *w, const Warp *warp, unsigned index); /* through the whole team */
Lane *random_lane(Worker *w);

inline Lane *lane_of(Worker *w, const Warp *warp, unsigned index)
{
    return &w->lanes[warp->index * 32 + index];
}

/* Round and round the lanes of one warp, which has some that can run. */
inline Lane *next_in_warp(Worker *w, const Warp *warp, unsigned index)
{
    unsigned ready = warp->ready, further;
    if (w->schedule == GR_SCHEDULE_REVERSE) {
        further = ready & ((1u << index) - 1);
        return lane_of(w, warp, 31 - (unsigned)__builtin_clz(further ? further : ready));
    }
    further = ready & (~1u << index);
    return lane_of(w, warp, (unsigned)__builtin_ctz(further ? further : ready));
}

/* A warp runs on for as long as it can, while its lanes' stacks are in the cache; but one that
 * finds something to do for ever must not keep the others from what it may be waiting for. */
inline Lane *next_lane(Worker *w, const Warp *warp, unsigned index)
{
    if (w->schedule == GR_SCHEDULE_RANDOM)
        return random_lane(w);
    if (!warp->ready || (++w->turns & 0xffff) == 0)
        return next_warp(w, warp);
    return next_in_warp(w, warp, index);
}

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

/* A lane has ended: those who wait for it alone go on. The barrier whose lanes were released. */
Barrier *barriers_leave(Worker *w, Lane *lane);
void meetings_leave(Worker *w, Warp *warp);

[[noreturn]] void deadlock(Worker *w);       /* fault.h */
[[noreturn]] void stack_overflow(Worker *w); /* fault.h */

/* Before anything runs on a stack that this one's overflow may have damaged. */
inline void check_stack(Worker *w, const Lane *lane)
{
    if (!stack_intact(&w->stacks, lane->stack))
        stack_overflow(w);
}

/* From here on this lane is the running one, to the kernel too. */
inline void become(Worker *w, Lane *lane)
{
    w->lane = lane;
    threadIdx = lane->thread;
    Block *block = lane->warp->block;
    if (block != w->block) {
        w->block = block;
        blockIdx = block->index;
        gr_shared = block->shared;
    }
}

/* Has the OS thread look, on its own stack, whether to go on: on a fiber's there is no room for a
 * signal handler. */
void look(Worker *w);

/* Called so often that Ctrl-C is heard within a team, too. */
inline void look_now_and_then(Worker *w)
{
    if (__builtin_expect(--w->until_look == 0, 0))
        look(w);
}

/* Saves the running fiber in *save; runs the lane on its own, or on a new one. */
inline void enter(Worker *w, void **save, void **fake_stack, Lane *lane)
{
    become(w, lane);
    void *to = lane->saved;
    if (!to)
        lane->stack = stack_take(&w->stacks);
    announce_switch(fake_stack, stack_low(&w->stacks, lane->stack), stack_stride);
    gr_fiber_switch(save, to ? to : stack_top(&w->stacks, lane->stack), to != nullptr);
    announce_arrival(*fake_stack);
}

/* Suspends the running lane and runs `next`; returns when somebody runs this lane again. No next:
 * a deadlock. Inlined into all that wait: every return on the way out of a wait is one that the
 * processor has to predict. */
inline __attribute__((always_inline)) void switch_lanes(Worker *w, Lane *me, Lane *next)
{
    if (next == me)
        return;
    if (!next)
        deadlock(w);
    check_stack(w, me);
    look_now_and_then(w);
    enter(w, &me->saved, &me->fake_stack, next);
}

inline uint64_t random_next(uint64_t *state) /* xorshift64* */
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 0x2545f4914f6cdd1d;
}

} // namespace gr

#endif
