/* How the emulator runs a kernel.
 *
 * A lane is a CUDA thread; it runs on a fiber. A team is a co-scheduled group: the blocks that must
 * be resident together, which are one block, a cluster, or the whole grid of a cooperative launch.
 * A worker is an OS thread with the state it needs to run one team after another; gr_parallel
 * distributes a launch's teams over the workers.
 *
 * Each warp has a bit mask of its ready lanes; the worker has a bit map of the warps with ready
 * lanes. A lane that waits or ends picks the next lane by the launch's schedule and switches
 * directly to it. If a lane ends and the next one has not begun, the next one reuses the fiber: a
 * kernel without barriers runs as a plain loop on one stack.
 *
 * Barriers count live lanes. If no lane is ready and not all have ended, that is a deadlock: a
 * fault, whose report lists the lines where lanes wait. After a fault the team's fibers are never
 * resumed, and their stacks are freed without unwinding. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "emulator/scheduler/fiber.h"
#include "emulator/runtime/launch.h"
#include "lane.h"

struct gr_recorder;

namespace gr
{

struct Warp;
struct Block;
struct Watch;

/* The operation that a lane waits for: a warp collective, a barrier or a bulk copy. */
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
    const char *file; /* the line where the lane waits, for reports */
    int line;
    const void *place; /* in the code, of __syncthreads(); two may stand on one line */
    unsigned mask;     /* of the warp collective that it waits in */
    unsigned ticket;   /* nonzero after arriving at the cluster barrier, until waiting: phase + 1 */
    uint8_t index;     /* in the warp */
    uint8_t waits;
    void *fake_stack; /* for AddressSanitizer */
};

/* A pending collective of one warp: the lanes of `mask` arrive one by one. */
struct Meeting {
    unsigned mask, arrived;
    gr_collective op;
};

struct alignas(64) Warp {
    unsigned live;               /* lanes that have not ended */
    unsigned ready;              /* lanes that can run, including the running one */
    unsigned at[GR_SCOPE_COUNT]; /* lanes waiting at a barrier, by its scope */
    unsigned meetings;
    unsigned gathering; /* lanes waiting in __activemask */
    unsigned index;     /* in the team */
    Block *block;
    uint64_t value[32]; /* operands; each lane stores its own on arrival */
    int argument[32];
    int width[32];
    uint64_t result[32]; /* each lane reads its own when it resumes */
    Meeting meeting[32]; /* 32 suffice: a lane waits in at most one */
};

struct Barrier {
    Warp *warps; /* the first of the warps that take part */
    unsigned warp_count;
    unsigned live; /* live lanes; a one-block team maintains this only in Block::own */
    unsigned arrived;
    unsigned phase;
    bool vote; /* the current phase counts predicates */
    unsigned yes;
    gr_votes result; /* of the last vote */
};

struct Block {
    uint3 index;
    char *shared;
    unsigned rank;         /* in the grid */
    unsigned cluster_rank; /* in its cluster */
    Barrier own;
    Barrier *barrier[GR_SCOPE_COUNT]; /* GR_GRID: null unless the launch is cooperative */
};

struct Worker {
    /* Read at every switch */
    Lane *lane; /* the running lane; null outside a team */
    Block *block;
    gr_schedule schedule;
    bool descending; /* lanes run from the last to the first */
    unsigned ready_words;
    uint64_t *ready_warps; /* bit map of the warps with ready lanes */
    uint64_t random;
    unsigned turns;
    Stacks stacks;
    void *main;   /* the OS thread's own stack, suspended until the team ends */
    void *paused; /* the running fiber, while the OS thread checks whether to stop */
    unsigned until_look, look_every; /* in lane switches, or memory accesses */
    long long looked_ns;

    Watch *watch;            /* the race detector of this launch; null: none */
    ::gr_recorder *recorder; /* the counter recorder of this launch; null: none */
    /* In the traced build, the last access that a lane was about to make, and its place. */
    struct {
        uintptr_t address;
        size_t size;
        const void *place;
    } last;

    /* The team */
    Launch *launch;
    uint64_t team;
    unsigned live;
    unsigned wide_arrivals; /* lanes that have arrived at cluster and grid barriers */
    bool faulted;
    /* consecutive polls for a bulk copy, by any lane, that did not find it complete */
    unsigned vain;
    unsigned lane_count, warp_count, block_count;
    Lane *lanes;
    Warp *warps;
    Block *blocks;
    Barrier *clusters;
    Barrier grid;
    char *shared;
    size_t shared_bytes;
    bool shared_guarded;
    Shape shape; /* the shape that the arrays are laid out for */

    /* Address range of threadIdx, blockIdx and so on, which kernels do not see as memory */
    uintptr_t builtins;
    size_t builtins_bytes;

    StackBounds main_bounds;
    void *main_fake_stack;
};

extern __thread __attribute__((tls_model("initial-exec"))) Worker *worker;

/* A thread's worker state, saved while a signal handler runs on the thread. */
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
/* Runs the team's lanes, starting with this one, until all have ended or one has faulted. */
void start_team(Worker *w, Lane *first);
/* Ends the team: start_team() returns. */
[[noreturn]] void leave_team(Worker *w);
/* Returns this OS thread's worker, laid out for the launch. Null: out of memory. */
Worker *worker_for(Launch *launch);

/* Each returns the next lane to run under the schedule. Null: no lane is ready. */
Lane *first_lane(Worker *w, Barrier *barrier);                 /* starts at the barrier's warps */
Lane *next_warp(Worker *w, const Warp *warp);                  /* the first lane of another warp */
Lane *next_sweep(Worker *w, const Warp *warp, unsigned index); /* round-robin over the whole team */
Lane *random_lane(Worker *w);

inline Lane *lane_of(Worker *w, const Warp *warp, unsigned index)
{
    return &w->lanes[warp->index * 32 + index];
}

/* Round-robin over the ready lanes of one warp, of which there is at least one. */
inline Lane *next_in_warp(Worker *w, const Warp *warp, unsigned index)
{
    unsigned ready = warp->ready, further;
    if (w->descending) {
        further = ready & ((1u << index) - 1);
        return lane_of(w, warp, 31 - (unsigned)__builtin_clz(further ? further : ready));
    }
    further = ready & (~1u << index);
    return lane_of(w, warp, (unsigned)__builtin_ctz(further ? further : ready));
}

/* Stays with a warp while it has ready lanes, because their stacks are in the cache. Every 65536
 * turns it moves on, so that a spinning warp cannot starve the warps it waits for. */
inline Lane *next_lane(Worker *w, const Warp *warp, unsigned index)
{
    if (w->schedule == GR_SCHEDULE_RANDOM)
        return random_lane(w);
    if (!warp->ready || (++w->turns & 0xffff) == 0)
        return next_warp(w, warp);
    return next_in_warp(w, warp, index);
}

/* Add lanes to the warp's ready lanes, or remove them. */
inline void make_ready(Worker *w, Warp *warp, unsigned lanes)
{
    warp->ready |= lanes;
    w->ready_warps[warp->index / 64] |= 1ull << (warp->index % 64);
}
void gather_lanes(Worker *w, Warp *warp); /* the first of those that wait in __activemask */
inline void make_unready(Worker *w, Warp *warp, unsigned lanes)
{
    warp->ready &= ~lanes;
    if (!warp->ready && warp->gathering)
        gather_lanes(w, warp);
    if (!warp->ready)
        w->ready_warps[warp->index / 64] &= ~(1ull << (warp->index % 64));
}

/* Called when a lane has ended: complete the barriers and collectives that waited only for it.
 * barriers_leave() returns the last barrier released, or null. */
Barrier *barriers_leave(Worker *w, Lane *lane);
void meetings_leave(Worker *w, Warp *warp);

/* The lane that `lane` reads from in a shuffle, as PTX's shfl defines it. */
int shuffle_source(gr_collective op, int lane, int argument, int width);

[[noreturn]] void deadlock(Worker *w);       /* fault.h */
[[noreturn]] void stack_overflow(Worker *w); /* fault.h */

/* Must run before anything uses the stack below, which an overflow may have damaged. */
inline void check_stack(Worker *w, const Lane *lane)
{
    if (!stack_intact(&w->stacks, lane->stack))
        stack_overflow(w);
}

/* Makes this the running lane, for the scheduler and for the kernel. */
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

/* Switches to the OS thread's own stack, to check for a failed launch and for interrupts. A fiber's
 * stack is too small for a signal handler. */
void look(Worker *w);

/* Called so often that Ctrl-C takes effect before a team has ended. */
inline void look_now_and_then(Worker *w)
{
    if (__builtin_expect(--w->until_look == 0, 0))
        look(w);
}

/* Saves the running fiber in *save and runs the lane: resumes its fiber, or starts it on a new
 * stack. */
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

/* Suspends the running lane and runs `next`; returns when this lane is resumed. If `next` is null:
 * a deadlock. Inlined into every caller, because each return after a wait is one more that the
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
