/* Barriers of a block, a cluster and the grid. They count live lanes. As on the hardware, lanes
 * that wait at one barrier from different lines are released together. */
#include "emulator/runtime/fault.h"
#include "emulator/trace/recorder.h"
#include "emulator/races/detector.h"

using namespace gr;

namespace gr
{

static void release(Worker *w, Barrier *barrier, gr_scope scope)
{
    if (watched(w))
        watch_barrier(w, barrier, scope);
    if (counted(w))
        count_barrier(w, barrier, scope);
    for (unsigned i = 0; i < barrier->warp_count; ++i) {
        Warp *warp = &barrier->warps[i];
        if (!warp->at[scope])
            continue;
        make_ready(w, warp, warp->at[scope]);
        warp->at[scope] = 0;
    }
    /* All released lanes read the result before the barrier can complete again. */
    barrier->result = {barrier->yes, barrier->arrived};
    barrier->yes = 0;
    barrier->arrived = 0;
    ++barrier->phase;
}

static unsigned live_at(const Worker *w, const Barrier *barrier)
{
    return w->block_count == 1 ? w->blocks[0].own.live : barrier->live;
}

static void release_wide(Worker *w, Barrier *barrier, gr_scope scope)
{
    w->wide_arrivals -= barrier->arrived;
    release(w, barrier, scope);
}

Barrier *barriers_leave(Worker *w, Lane *lane)
{
    Block *block = lane->warp->block;
    Barrier *released = nullptr;
    if (block->own.arrived && block->own.arrived == block->own.live) {
        released = &block->own;
        release(w, released, GR_BLOCK);
    }
    for (gr_scope scope : {GR_CLUSTER, GR_GRID}) {
        Barrier *barrier = block->barrier[scope];
        if (!barrier)
            continue;
        --barrier->live;
        if (scope == GR_CLUSTER && lane->ticket == barrier->phase + 1) {
            --barrier->arrived; /* it ended between arriving and waiting */
            --w->wide_arrivals;
        }
        if (barrier->arrived && barrier->arrived == live_at(w, barrier)) {
            released = barrier;
            release_wide(w, barrier, scope);
        }
    }
    lane->ticket = 0;
    return released;
}

/* Suspends the running lane, which has already been counted as arrived. If it was the last to
 * arrive, releases the barrier first. */
static inline __attribute__((always_inline)) void wait(Worker *w, Lane *me, Barrier *barrier,
                                                       gr_scope scope, const char *file, int line)
{
    Warp *warp = me->warp;
    unsigned bit = 1u << me->index;
    me->file = file;
    me->line = line;
    me->place = gr_place;
    gr_place = nullptr; /* other barriers have none */
    me->waits = static_cast<uint8_t>(WAIT_BARRIER + scope);
    warp->at[scope] |= bit;
    make_unready(w, warp, bit);
    Lane *next;
    if (scope == GR_BLOCK && barrier->arrived == barrier->live) {
        release(w, barrier, scope);
        next = first_lane(w, barrier);
    } else if (scope != GR_BLOCK && barrier->arrived == live_at(w, barrier)) {
        release_wide(w, barrier, scope);
        next = first_lane(w, barrier);
    } else {
        next = next_lane(w, warp, me->index);
    }
    switch_lanes(w, me, next);
}

/* One phase of a barrier must not mix __syncthreads() with and without a predicate. */
static inline void check_kind(Worker *w, Barrier *barrier, bool vote, const char *file, int line)
{
    if (!barrier->arrived)
        barrier->vote = vote;
    else if (barrier->vote != vote)
        fault(w,
              "%s:%d: %s calls __syncthreads%s while others of its block wait in "
              "__syncthreads%s",
              file, line, name_lane(w->lane).text, vote ? " with a predicate" : "",
              vote ? "" : " with a predicate");
}

} // namespace gr

void gr_block_barrier(const char *file, int line)
{
    Worker *w = worker;
    Barrier *barrier = &w->block->own;
    check_kind(w, barrier, false, file, line);
    ++barrier->arrived;
    wait(w, w->lane, barrier, GR_BLOCK, file, line);
}

gr_votes gr_block_vote(bool predicate, const char *file, int line)
{
    Worker *w = worker;
    Barrier *barrier = &w->block->own;
    check_kind(w, barrier, true, file, line);
    ++barrier->arrived;
    barrier->yes += predicate;
    wait(w, w->lane, barrier, GR_BLOCK, file, line);
    return barrier->result;
}

static Barrier *wide(Worker *w, gr_scope scope, const char *file, int line)
{
    Barrier *barrier = w->block->barrier[scope];
    if (!barrier)
        fault(w, "%s:%d: %s calls grid.sync() in a launch that is not cooperative", file, line,
              name_lane(w->lane).text);
    return barrier;
}

void gr_wide_barrier(gr_scope scope, const char *file, int line)
{
    Worker *w = worker;
    Barrier *barrier = wide(w, scope, file, line);
    if (scope == GR_CLUSTER && w->lane->ticket)
        fault(w, "%s:%d: %s has arrived at the cluster's barrier and arrives again", file, line,
              name_lane(w->lane).text);
    ++barrier->arrived;
    ++w->wide_arrivals;
    wait(w, w->lane, barrier, scope, file, line);
}

void gr_cluster_arrive(const char *file, int line)
{
    Worker *w = worker;
    Barrier *barrier = wide(w, GR_CLUSTER, file, line);
    if (w->lane->ticket)
        fault(w, "%s:%d: %s has arrived at the cluster's barrier and arrives again", file, line,
              name_lane(w->lane).text);
    w->lane->ticket = barrier->phase + 1;
    if (watched(w))
        watch_arrival(w);
    ++w->wide_arrivals;
    if (++barrier->arrived == live_at(w, barrier))
        release_wide(w, barrier, GR_CLUSTER);
}

void gr_cluster_wait(const char *file, int line)
{
    Worker *w = worker;
    Barrier *barrier = wide(w, GR_CLUSTER, file, line);
    Lane *me = w->lane;
    unsigned ticket = me->ticket;
    if (!ticket)
        fault(w, "%s:%d: %s waits at the cluster's barrier without having arrived", file, line,
              name_lane(me).text);
    me->ticket = 0;
    if (ticket == barrier->phase + 1)
        wait(w, me, barrier, GR_CLUSTER, file, line);
    else if (watched(w))
        watch_passage(w, file, line);
}
