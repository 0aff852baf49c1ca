/* A copy to the device costs as much time to begin and to wait for as some hundred kilobytes take
 * on the bus. A kernel that reads pinned memory itself needs none. It reads each element once, so
 * nothing is fetched twice; and what threads have just written, and still have in their caches, it
 * reads quicker than the copy engine does.
 *
 * To launch it takes as long as to copy some hundred kilobytes, too. So it is launched while
 * threads copy the array to pinned memory, and its blocks wait for the pieces that they read
 * (kernels/any_arriving.h). */
#include "engine/reach.h"

#include "clock.h"
#include "engine/pinned.h"
#include "threads/pool.h"

#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

enum {
    ALIGNED = 256, /* as memory of the device is: no sum depends on where it was read */
    LEAST_ROOM = 2 << 20,
    LINE = 64,
    /* Of an array that is there already, or must be before the launch, more comes quicker by a copy
     * to the device. */
    AT_ONCE_BYTES = 2 << 20
};

/* --- the copy's place ------------------------------------------------------------------------- */

static size_t pieces_of(size_t bytes)
{
    return (bytes + GR_PIECE_BYTES - 1) / GR_PIECE_BYTES;
}

static size_t marks_bytes(size_t bytes)
{
    return pieces_of(bytes) * GR_MARK_STEP * sizeof(unsigned long long);
}

/* The marks lie behind the room for arrays. The workspace's earlier kernels have ended. */
static bool make_room(gr_workspace *workspace, size_t bytes)
{
    gr_buffer *staged = &workspace->staged;
    if (staged->bytes >= bytes)
        return true;
    size_t room = LEAST_ROOM;
    while (room < bytes)
        room *= 2;
    (void)cudaFreeHost(staged->data);
    staged->bytes = 0;
    if (cudaHostAlloc(&staged->data, room + marks_bytes(room), cudaHostAllocMapped) !=
        cudaSuccess) {
        staged->data = NULL;
        (void)cudaGetLastError(); /* which others would take for an error of theirs */
        return false;
    }
    staged->bytes = room;
    memset((char *)staged->data + room, 0,
           marks_bytes(room)); /* no array's mark: those begin at 1 */
    return true;
}

/* --- copying while the kernel starts ---------------------------------------------------------- */

typedef struct {
    gr_arriving array;
    char *to;
    const char *from;
    unsigned long long *mark;
    size_t bytes, pieces;
    pthread_t caller;
    gr_launcher *launch;
    void *context;
    bool is_launched; /* the caller's */
    int child;        /* of how many fork()s */

    /* Pieces. Threads take this line of the cache from each other: nothing else is there. */
    alignas(LINE) atomic_size_t begun;
} transfer;

/* A signal handler may fork before this thread comes to a task. */
static atomic_int children;

static void count_child(void)
{
    atomic_fetch_add(&children, 1);
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, count_child);
}

static bool write_next(transfer *now)
{
    size_t piece = atomic_fetch_add_explicit(&now->begun, 1, memory_order_relaxed);
    if (piece >= now->pieces)
        return false;
    size_t at = piece * GR_PIECE_BYTES, left = now->bytes - at;
    gr_write_piece(now->to + at, now->from + at, left < GR_PIECE_BYTES ? left : GR_PIECE_BYTES);
    __atomic_store_n(&now->mark[GR_MARK_STEP * piece], now->array.arrived, __ATOMIC_RELEASE);
    return true;
}

/* A launch may last until the kernel has ended: the emulator's do, and those under a debugger. So
 * this thread has no piece begun then, and others come who see to all, or there is none left. */
static void launch_once(transfer *now, bool is_helped)
{
    if (now->is_launched)
        return;
    if (now->child != atomic_load(&children)) { /* the others are the parent's */
        is_helped = false;
        atomic_store(&now->begun, 0);
    }
    while (!is_helped && write_next(now))
        ;
    now->is_launched = true;
    now->launch(&now->array, now->context);
}

static void take_part(size_t task, void *context)
{
    transfer *now = context;
    (void)task;
    if (pthread_equal(pthread_self(), now->caller))
        launch_once(now, gr_is_helped());
    while (write_next(now))
        ;
}

/* Whether there was an array a moment ago: helpers look out for the next for a while. The second
 * such array may have to wake them, once. */
static bool come_in_a_row(void)
{
    static const double AWAKE_MS = 0.4; /* less than they look out; see threads/pool.c */
    static _Atomic double last;
    double now = gr_now_ms();
    return now - atomic_exchange_explicit(&last, now, memory_order_relaxed) < AWAKE_MS;
}

/* The caller included. */
static size_t threads_for(size_t bytes)
{
    /* Below, to wake threads costs more than it saves; measured on one machine, an H200 and 16
     * processors. */
    enum { ALONE_BELOW = 512 << 10 };
    size_t threads = (size_t)gr_filling_threads(), pieces = pieces_of(bytes);
    bool row = come_in_a_row();
    return bytes < ALONE_BELOW && !row ? 1 : threads < pieces ? threads : pieces;
}

bool gr_bring_within_reach(gr_workspace *workspace, const void *host, size_t bytes, bool waits,
                           gr_launcher *launch, void *context)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    gr_pinning pinning = gr_pinning_of(host, bytes);
    const char *there = pinning.mapped;
    /* Managed memory is neither: on some systems nobody may read it while a kernel runs. */
    waits = waits && (pinning.is_pageable || there);
    if (bytes > AT_ONCE_BYTES && (!waits || there))
        return false;
    if (there && (uintptr_t)there % ALIGNED == 0) {
        launch(&(gr_arriving){.data = there}, context);
        return true;
    }
    if (!make_room(workspace, bytes))
        return false;
    char *staged = workspace->staged.data;
    size_t threads = waits ? threads_for(bytes) : 1;
    if (threads == 1) {
        memcpy(staged, host, bytes);
        launch(&(gr_arriving){.data = staged}, context);
        return true;
    }
    unsigned long long *mark = (unsigned long long *)(staged + workspace->staged.bytes);
    transfer now = {.array = {staged, mark, ++workspace->arrivals},
                    .to = staged,
                    .from = host,
                    .mark = mark,
                    .bytes = bytes,
                    .pieces = pieces_of(bytes),
                    .caller = pthread_self(),
                    .child = atomic_load(&children),
                    .launch = launch,
                    .context = context};
    gr_parallel_beside((int)threads, threads, take_part, &now);
    launch_once(&now, false); /* if this thread came to no task */
    return true;
}
