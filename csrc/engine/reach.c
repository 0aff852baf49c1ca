/* A copy to the device costs as much time to begin and to wait for as some hundred kilobytes take
 * on the bus. A kernel that reads pinned memory itself needs none. It reads each element once, so
 * nothing is fetched twice; and what threads have just written, and still have in their caches, it
 * reads quicker than the copy engine does.
 *
 * To launch it takes as long as to copy some hundred kilobytes, too. So it is launched while
 * threads copy the array to pinned memory, and its blocks wait for the pieces that they read
 * (kernels/any_arriving.h).
 *
 * To look whether a piece is there takes a journey over the bus, which the first pieces need not
 * have, as they are there sooner than the kernel. They go to a place that was blank. Who reads them
 * does so at once, and sees of each word whether it was written. Arrays take turns in two places:
 * while a kernel reads from one, the threads that wrote there make the other one blank again. */
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
    PLACES = 2,
    PLACE_BYTES = 1 << 20,             /* a larger array takes both */
    BLANK_BYTES = 16 * GR_PIECE_BYTES, /* of a place: one piece for each thread */
    LEAST_ROOM = PLACES * PLACE_BYTES,
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

/* By words of which each is written at once, as those of an array are. */
static void make_blank(char *at, size_t bytes)
{
    static const uint64_t TWO = (uint64_t)GR_BLANK << 32 | GR_BLANK;
    for (size_t i = 0; i < bytes / sizeof TWO; i++)
        __atomic_store_n((uint64_t *)at + i, TWO, __ATOMIC_RELAXED);
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
    for (size_t i = 0; i < PLACES; i++) {
        make_blank((char *)staged->data + i * PLACE_BYTES, BLANK_BYTES);
        workspace->unblanked[i] = 0;
    }
    return true;
}

typedef struct {
    char *start;
    size_t blank; /* so many bytes, from the first on, are */
    char *other;  /* place, which the array before this one had */
    size_t other_bytes;
    size_t *other_unblanked;
} place;

/* For the next array. It is not blank any more. */
static place next_place(gr_workspace *workspace, size_t bytes)
{
    char *start = workspace->staged.data;
    size_t *unblanked = workspace->unblanked;
    size_t turn = ++workspace->arrivals % PLACES, other = (turn + 1) % PLACES;
    if (bytes > PLACE_BYTES) {
        for (size_t i = 0; i < PLACES; i++)
            unblanked[i] = BLANK_BYTES;
        return (place){.start = start};
    }
    size_t blank = unblanked[turn] ? 0 : BLANK_BYTES, written = gr_least(bytes, BLANK_BYTES);
    if (unblanked[turn] < written)
        unblanked[turn] = written;
    return (place){.start = start + turn * PLACE_BYTES,
                   .blank = blank,
                   .other = start + other * PLACE_BYTES,
                   .other_bytes = unblanked[other],
                   .other_unblanked = &unblanked[other]};
}

/* --- copying while the kernel starts ---------------------------------------------------------- */

typedef struct {
    gr_arriving array;
    place to;
    const char *from;
    unsigned long long *mark;
    size_t bytes, pieces, other_pieces;
    pthread_t caller;
    gr_launcher *launch;
    void *context;

    /* Pieces. Threads take these lines of the cache from each other: nothing else is there. */
    alignas(LINE) atomic_size_t begun;
    alignas(LINE) atomic_size_t blank_begun;
    atomic_size_t blank_ended;
} transfer;

static bool write_next(transfer *now)
{
    size_t piece = atomic_fetch_add_explicit(&now->begun, 1, memory_order_relaxed);
    if (piece >= now->pieces)
        return false;
    size_t at = piece * GR_PIECE_BYTES, bytes = gr_least(now->bytes - at, GR_PIECE_BYTES);
    char *to = now->to.start + at;
    bool was_blank = at < now->array.blank;
    if (was_blank)
        gr_write_words(to, now->from + at, bytes);
    else
        gr_write_piece(to, now->from + at, bytes);
    __atomic_store_n(&now->mark[GR_MARK_STEP * piece], now->array.arrived, __ATOMIC_RELEASE);
    /* In time for the kernel, if there is no other piece to write. */
    if (was_blank && now->bytes <= now->array.blank)
        gr_move_on(to, bytes);
    return true;
}

static bool blank_next(transfer *now)
{
    size_t piece = atomic_fetch_add_explicit(&now->blank_begun, 1, memory_order_relaxed);
    if (piece >= now->other_pieces)
        return false;
    make_blank(now->to.other + piece * GR_PIECE_BYTES, GR_PIECE_BYTES);
    atomic_fetch_add_explicit(&now->blank_ended, 1, memory_order_relaxed);
    return true;
}

/* The caller makes nothing blank: it has a kernel to wait for. If nobody else comes, the next array
 * has to do without. */
static void write_all(size_t task, void *context)
{
    transfer *now = context;
    (void)task;
    while (write_next(now))
        ;
    if (!pthread_equal(now->caller, pthread_self()))
        while (blank_next(now))
            ;
}

/* A launch may last until the kernel has ended: the emulator's do, and those under a debugger. So
 * this thread has no piece begun then, and others come who see to all, or there is none left. */
static void launch_first(bool is_helped, void *context)
{
    transfer *now = context;
    if (!is_helped)
        write_all(0, now);
    now->launch(&now->array, now->context);
}

/* Whether there was an array a moment ago: helpers look out for the next for a while. The second
 * such array may have to wake them, once. */
static bool come_in_a_row(double now)
{
    static const double AWAKE_MS = 0.4; /* less than they look out; see threads/pool.c */
    static _Atomic double last;
    return now - atomic_exchange_explicit(&last, now, memory_order_relaxed) < AWAKE_MS;
}

/* The caller included. */
static size_t threads_for(size_t bytes, double now)
{
    /* Below, to wake threads costs more than it saves; measured on one machine, an H200 and 16
     * processors. */
    enum { ALONE_BELOW = 512 << 10 };
    bool row = come_in_a_row(now);
    if (bytes < ALONE_BELOW && !row)
        return 1;
    return gr_least((size_t)gr_filling_threads(), pieces_of(bytes));
}

/* The runtime takes half a microsecond for its answer, so it is asked of the same array only now
 * and then. To copy one that has been pinned meanwhile is right as well; and nobody frees an array,
 * and has managed memory in its very place, in that time. */
static gr_pinning pinning_of(gr_workspace *workspace, const void *host, size_t bytes, double now)
{
    static const double HOLDS_MS = 5;
    if (workspace->pageable == host && workspace->pageable_bytes == bytes &&
        now < workspace->pageable_until)
        return (gr_pinning){.is_pageable = true};
    gr_pinning pinning = gr_pinning_of(host, bytes);
    workspace->pageable = pinning.is_pageable ? host : NULL;
    workspace->pageable_bytes = bytes;
    workspace->pageable_until = now + HOLDS_MS;
    return pinning;
}

bool gr_bring_within_reach(gr_workspace *workspace, const void *host, size_t bytes, bool waits,
                           gr_launcher *launch, void *context)
{
    double time = gr_now_ms();
    gr_pinning pinning = pinning_of(workspace, host, bytes, time);
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
    place to = next_place(workspace, bytes);
    size_t threads = waits ? threads_for(bytes, time) : 1;
    if (threads == 1) {
        memcpy(to.start, host, bytes);
        launch(&(gr_arriving){.data = to.start}, context);
        return true;
    }
    gr_buffer *staged = &workspace->staged;
    unsigned long long *mark = (unsigned long long *)((char *)staged->data + staged->bytes);
    transfer now = {.array = {to.start, mark, workspace->arrivals, to.blank},
                    .to = to,
                    .from = host,
                    .mark = mark,
                    .bytes = bytes,
                    .pieces = pieces_of(bytes),
                    .other_pieces = pieces_of(to.other_bytes),
                    .caller = pthread_self(),
                    .launch = launch,
                    .context = context};
    gr_parallel_behind(launch_first, (int)threads, threads, write_all, &now);
    if (to.other_bytes && now.blank_ended == now.other_pieces)
        *to.other_unblanked = 0;
    write_all(0, &now); /* what was left, as an interrupt drops tasks: the kernel waits for it */
    return true;
}
