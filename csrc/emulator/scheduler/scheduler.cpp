/* Selects the next lane to run, and runs each lane from start to end. */
#include <string.h>

#include "emulator/races/detector.h"
#include "emulator/trace/recorder.h"
#include "threads/clock.h"
#include "emulator/runtime/fault.h"
#include "emulator/runtime/shared_memory.h"

/* clang-format off */
__thread uint3 threadIdx;
__thread uint3 blockIdx;
__thread dim3 blockDim;
__thread dim3 gridDim;
__thread char *gr_shared;
__thread unsigned gr_loads;
__thread const void *gr_place;
__thread const char *gr_shared_name;
/* clang-format on */

namespace gr
{

__thread __attribute__((tls_model("initial-exec"))) Worker *worker;

static unsigned lowest(unsigned bits)
{
    return (unsigned)__builtin_ctz(bits);
}
static unsigned highest(unsigned bits)
{
    return 31 - (unsigned)__builtin_clz(bits);
}

/* The next warp with ready lanes, upward from `index`, cyclically. Null: there is none. */
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

/* Draws a warp and a lane of it. If one is not ready, takes the next one that is. */
Lane *random_lane(Worker *w)
{
    Warp *warp = &w->warps[random_below(w, w->warp_count)];
    if (!warp->ready && !(warp = warp_above(w, warp->index)))
        return watched(w) && watch_idle(w) ? random_lane(w) : nullptr;
    unsigned from = warp->ready & ~0u << random_below(w, 32);
    return lane_of(w, warp, lowest(from ? from : warp->ready));
}

/* The first lane of the next ready warp after this one. */
Lane *next_warp(Worker *w, const Warp *warp)
{
    bool reverse = w->descending;
    Warp *next = reverse ? warp_below(w, warp->index) : warp_above(w, warp->index);
    if (!next)
        return nullptr;
    return lane_of(w, next, reverse ? highest(next->ready) : lowest(next->ready));
}

/* Round-robin over the team: every ready lane runs before any lane runs again. */
Lane *next_sweep(Worker *w, const Warp *warp, unsigned index)
{
    if (w->schedule == GR_SCHEDULE_RANDOM)
        return random_lane(w);
    bool reverse = w->descending;
    if (warp->ready & (reverse ? (1u << index) - 1 : ~1u << index))
        return next_in_warp(w, warp, index);
    return next_warp(w, warp);
}

Lane *first_lane(Worker *w, Barrier *barrier)
{
    if (w->schedule == GR_SCHEDULE_RANDOM)
        return random_lane(w);
    bool reverse = w->descending;
    Warp *first = barrier->warps + (reverse ? barrier->warp_count - 1 : 0);
    if (first->ready)
        return lane_of(w, first, reverse ? highest(first->ready) : lowest(first->ready));
    return next_warp(w, first);
}

void start_team(Worker *w, Lane *first)
{
    enter(w, &w->main, &w->main_fake_stack, first);
    while (void *fiber = w->paused) {
        w->paused = nullptr;
        if (is_stopped(w->launch) || gr_ask_for_interrupts()) {
            w->faulted = true; /* its fibers are never resumed */
            break;
        }
        announce_switch(&w->main_fake_stack, stack_low(&w->stacks, w->lane->stack), stack_stride);
        gr_fiber_switch(&w->main, fiber, true);
        announce_arrival(w->main_fake_stack);
    }
    w->lane = nullptr;
}

void look(Worker *w)
{
    constexpr unsigned most_switches = 4096;
    constexpr long long seldom_ns = 5000000, often_ns = 1000000;
    long long now = gr_now_ns(), since = now - w->looked_ns;
    if (since > seldom_ns)
        w->look_every = w->look_every / 4 + 1;
    else if (since < often_ns && w->look_every < most_switches)
        w->look_every *= 2;
    w->until_look = w->look_every;
    w->looked_ns = now;
    Lane *me = w->lane;
    announce_switch(&me->fake_stack, w->main_bounds.low, w->main_bounds.size);
    gr_fiber_switch(&w->paused, w->main, true);
    announce_arrival(me->fake_stack);
}

void leave_team(Worker *w)
{
    announce_switch(nullptr, w->main_bounds.low, w->main_bounds.size);
    gr_fiber_leave(w->main);
}

/* Removes the running lane, which has returned from the kernel, from all counts, and returns the
 * next lane to run. */
static inline Lane *lane_ended(Worker *w, Lane *me)
{
    Warp *warp = me->warp;
    Block *block = warp->block;
    unsigned bit = 1u << me->index;
    if (counted(w))
        count_end(w, me);
    me->saved = nullptr;
    warp->live &= ~bit;
    make_unready(w, warp, bit);
    --w->live;
    w->vain = 0;
    --block->own.live;
    if (!block->own.live && w->block_count > 1) { /* other blocks must not read its leftover data */
        if (watched(w))
            watch_block_end(w, me);
        poison_shared(w, block);
    }
    if (warp->meetings)
        meetings_leave(w, warp);
    if (block->own.arrived || w->block_count > 1 || w->wide_arrivals) {
        Barrier *released = barriers_leave(w, me);
        if (released)
            return first_lane(w, released);
    }
    return next_lane(w, warp, me->index);
}

} // namespace gr

/* The body of every fiber: runs one lane after another, then switches to a suspended lane. */
extern "C" void gr_fiber_main(void)
{
    using namespace gr;
    Worker *w = worker;
    announce_start(&w->main_bounds);
    for (;;) {
        look_now_and_then(w);
        const Launch *launch = w->launch;
        launch->kernel->caller(launch->kernel->kernel, launch->args);
        Lane *me = w->lane;
        check_stack(w, me);
        Lane *next = lane_ended(w, me);
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
        announce_switch(nullptr, stack_low(&w->stacks, next->stack), stack_stride);
        gr_fiber_leave(next->saved);
    }
}

/* Reports a deadlock after so many consecutive polls by the team without any progress. */
void gr_await_copy(const char *file, int line)
{
    using namespace gr;
    Worker *w = worker;
    Lane *me = w->lane;
    me->file = file;
    me->line = line;
    me->waits = WAIT_COPY;
    if (++w->vain > 64 * w->lane_count + 1000)
        deadlock(w);
    switch_lanes(w, me, next_sweep(w, me->warp, me->index));
}

void gr_copy_ordered(void)
{
    gr::worker->vain = 0;
}

/* The next two are called from kernel code. They do nothing outside a lane. */
void gr_look(void)
{
    gr::Worker *w = gr::worker;
    if (w && w->lane)
        gr::look(w);
}

void gr_yield(void)
{
    gr::Worker *w = gr::worker;
    if (!w || !w->lane)
        return;
    gr::Lane *me = w->lane;
    gr::Lane *next = gr::next_sweep(w, me->warp, me->index);
    w->vain = 0;
    if (next == me) /* it may wait for a block of another OS thread, which has stopped */
        gr::look_now_and_then(w);
    gr::switch_lanes(w, me, next);
}
