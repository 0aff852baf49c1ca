/* Drawing the next lane, and running a lane from its first line to its last. */
#include "emulator/scheduler.h"
#include "emulator/fault.h"
#ifdef GR_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

/* clang-format off */
__thread uint3 threadIdx;
__thread uint3 blockIdx;
__thread dim3 blockDim;
__thread dim3 gridDim;
__thread char *gr_shared;
__thread unsigned gr_atomics;
/* clang-format on */

namespace gr
{

__thread __attribute__((tls_model("initial-exec"))) Worker *worker;

static Lane *lane_of(Worker *w, const Warp *warp, unsigned index)
{
    return &w->lanes[warp->index * 32 + index];
}

/* Bits above `index`; index may be 31. */
static unsigned above(unsigned bits, unsigned index)
{
    return bits & (~1u << index);
}
static unsigned below(unsigned bits, unsigned index)
{
    return bits & ((1u << index) - 1);
}
static unsigned lowest(unsigned bits)
{
    return (unsigned)__builtin_ctz(bits);
}
static unsigned highest(unsigned bits)
{
    return 31 - (unsigned)__builtin_clz(bits);
}

/* The next warp with lanes that can run, upward from `index` and round to it; null: none. */
static Warp *warp_above(Worker *w, unsigned index)
{
    unsigned word = index / 64;
    uint64_t bits = w->ready_warps[word] & (~1ull << (index % 64));
    for (unsigned tries = 0; tries <= w->ready_words; ++tries) {
        if (bits)
            return &w->warps[word * 64 + (unsigned)__builtin_ctzll(bits)];
        word = word + 1 < w->ready_words ? word + 1 : 0;
        bits = w->ready_warps[word];
    }
    return nullptr;
}

static Warp *warp_below(Worker *w, unsigned index)
{
    unsigned word = index / 64;
    uint64_t bits = w->ready_warps[word] & ((1ull << (index % 64)) - 1);
    for (unsigned tries = 0; tries <= w->ready_words; ++tries) {
        if (bits)
            return &w->warps[word * 64 + 63 - (unsigned)__builtin_clzll(bits)];
        word = word > 0 ? word - 1 : w->ready_words - 1;
        bits = w->ready_warps[word];
    }
    return nullptr;
}

static unsigned random_below(Worker *w, unsigned bound)
{
    return (unsigned)((random_next(&w->random) >> 32) * bound >> 32);
}

Lane *random_lane(Worker *w)
{
    unsigned count = 0;
    for (unsigned word = 0; word < w->ready_words; ++word)
        count += (unsigned)__builtin_popcountll(w->ready_warps[word]);
    if (!count)
        return nullptr;
    unsigned drawn = random_below(w, count), word = 0, in_word;
    while (drawn >= (in_word = (unsigned)__builtin_popcountll(w->ready_warps[word]))) {
        drawn -= in_word;
        ++word;
    }
    uint64_t bits = w->ready_warps[word];
    while (drawn--)
        bits &= bits - 1;
    Warp *warp = &w->warps[word * 64 + (unsigned)__builtin_ctzll(bits)];
    unsigned lanes = warp->ready;
    for (drawn = random_below(w, (unsigned)__builtin_popcount(lanes)); drawn; --drawn)
        lanes &= lanes - 1;
    return lane_of(w, warp, lowest(lanes));
}

/* The first lane of the next warp after this one. */
static Lane *next_warp(Worker *w, const Warp *warp)
{
    bool reverse = w->schedule == GR_SCHEDULE_REVERSE;
    Warp *next = reverse ? warp_below(w, warp->index) : warp_above(w, warp->index);
    if (!next)
        return nullptr;
    return lane_of(w, next, reverse ? highest(next->ready) : lowest(next->ready));
}

/* Round and round the lanes of one warp, which has some that can run. */
Lane *next_in_warp(Worker *w, Warp *warp, unsigned index)
{
    unsigned further;
    if (w->schedule == GR_SCHEDULE_REVERSE) {
        further = below(warp->ready, index);
        return lane_of(w, warp, highest(further ? further : warp->ready));
    }
    further = above(warp->ready, index);
    return lane_of(w, warp, lowest(further ? further : warp->ready));
}

/* A warp runs on for as long as it can, while its lanes' stacks are in the cache; but one that
 * finds something to do for ever must not keep the others from what it may be waiting for. */
Lane *next_lane(Worker *w, Warp *warp, unsigned index)
{
    if (w->schedule == GR_SCHEDULE_RANDOM)
        return random_lane(w);
    if (!warp->ready || (++w->turns & 0xffff) == 0)
        return next_warp(w, warp);
    return next_in_warp(w, warp, index);
}

/* Through all lanes of the team: everybody has a turn before one has a second. */
Lane *next_sweep(Worker *w, Warp *warp, unsigned index)
{
    if (w->schedule == GR_SCHEDULE_RANDOM)
        return random_lane(w);
    bool reverse = w->schedule == GR_SCHEDULE_REVERSE;
    if (reverse ? below(warp->ready, index) : above(warp->ready, index))
        return next_in_warp(w, warp, index);
    return next_warp(w, warp);
}

Lane *first_lane(Worker *w, Barrier *barrier)
{
    if (w->schedule == GR_SCHEDULE_RANDOM)
        return random_lane(w);
    bool reverse = w->schedule == GR_SCHEDULE_REVERSE;
    Warp *first = barrier->warps + (reverse ? barrier->warp_count - 1 : 0);
    if (first->ready)
        return lane_of(w, first, reverse ? highest(first->ready) : lowest(first->ready));
    return next_warp(w, first);
}

/* From here on this lane is the running one, to the kernel too. */
static inline void become(Worker *w, Lane *lane)
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

#ifdef GR_ASAN
static void announce(Worker *w, void **save, const Lane *to)
{
    if (to)
        __sanitizer_start_switch_fiber(save, stack_low(&w->stacks, to->stack), stack_stride);
    else
        __sanitizer_start_switch_fiber(save, w->main_bottom, w->main_size);
}
static void arrived(void *saved)
{
    __sanitizer_finish_switch_fiber(saved, nullptr, nullptr);
}
static void arrived_first(Worker *w)
{
    const void *bottom;
    size_t size;
    __sanitizer_finish_switch_fiber(nullptr, &bottom, &size);
    if (!w->main_bottom) { /* the first fiber of a team is started from the OS thread's stack */
        w->main_bottom = bottom;
        w->main_size = size;
    }
}
#else
static void announce(Worker *, void **, const Lane *) {}
static void arrived(void *) {}
static void arrived_first(Worker *) {}
#endif

/* Saves the fiber in *save; runs the lane on its own, or on a new one if it has not begun. */
static inline void enter(Worker *w, void **save, void **fake_stack, Lane *lane)
{
    become(w, lane);
    if (lane->saved) {
        announce(w, fake_stack, lane);
        gr_fiber_switch(save, lane->saved);
    } else {
        lane->stack = stack_take(&w->stacks);
        announce(w, fake_stack, lane);
        gr_fiber_start(save, stack_top(&w->stacks, lane->stack));
    }
    arrived(*fake_stack);
}

void switch_lanes(Worker *w, Lane *me, Lane *next)
{
    if (next == me)
        return;
    if (!next)
        deadlock(w);
    enter(w, &me->saved, &me->fake_stack, next);
}

void start_team(Worker *w, Lane *first)
{
    enter(w, &w->main, &w->main_fake_stack, first);
    w->lane = nullptr;
}

void leave_team(Worker *w)
{
    announce(w, nullptr, nullptr);
    gr_fiber_leave(w->main);
}

/* Takes the running lane, which has returned from the kernel, out of everything that counts it. */
static Lane *lane_ended(Worker *w, Lane *me)
{
    Warp *warp = me->warp;
    Block *block = warp->block;
    unsigned bit = 1u << me->index;
    me->saved = nullptr;
    warp->live &= ~bit;
    make_unready(w, warp, bit);
    --w->live;
    if (warp->meetings)
        meetings_leave(w, warp);
    Barrier *released = nullptr;
    for (int scope = 0; scope < GR_SCOPE_COUNT; ++scope)
        if (block->barrier[scope] &&
            barrier_leave(w, me, block->barrier[scope], static_cast<gr_scope>(scope)))
            released = block->barrier[scope];
    return released ? first_lane(w, released) : next_lane(w, warp, me->index);
}

} // namespace gr

/* A fiber's whole life: one lane after another, then on with a lane that waits elsewhere. */
extern "C" void gr_fiber_main(void)
{
    using namespace gr;
    Worker *w = worker;
    arrived_first(w);
    for (;;) {
        const Launch *launch = w->launch;
        launch->kernel->caller(launch->kernel->kernel, launch->args);
        Lane *me = w->lane, *next = lane_ended(w, me);
        if (next && !next->saved) {
            next->stack = me->stack;
            become(w, next);
            continue;
        }
        if (!next && w->live)
            deadlock(w);
        stack_give(&w->stacks, me->stack);
        if (!next)
            leave_team(w);
        become(w, next);
        announce(w, nullptr, next);
        gr_fiber_leave(next->saved);
    }
}

/* Also what kernels call. */
void gr_yield(void)
{
    gr::Worker *w = gr::worker;
    if (!w || !w->lane)
        return;
    gr::Lane *me = w->lane;
    gr::switch_lanes(w, me, gr::next_sweep(w, me->warp, me->index));
}
