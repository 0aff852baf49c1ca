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
    PLACE_BYTES = 1 << 20, /* a larger array takes both */
    /* Of a place: what most threads write as their first pieces. */
    BLANK_BYTES = 16 * GR_PIECE_BYTES,
    LEAST_BLANKED = 2, /* pieces by each thread, even if the caller waits for it */
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
        workspace->places[i] = (gr_place){.blank_to = BLANK_BYTES};
    }
    return true;
}

/* Notes that so much of it is written from now on, and returns how much is blank until then. */
static size_t take(gr_place *place, size_t bytes)
{
    size_t blank = place->blank_to, written = gr_least(bytes, BLANK_BYTES);
    if (place->blank_from < written)
        place->blank_from = written;
    place->blank_to = 0;
    return blank;
}

/* --- copying while the kernel starts ---------------------------------------------------------- */

typedef struct {
    gr_arriving array;
    char *to;
    const char *from;
    unsigned long long *mark;
    size_t bytes, pieces;
    char *unblanked; /* the place of the array before this one, to be made blank */
    size_t unblanked_pieces;
    pthread_t caller;
    gr_launcher *launch;
    void *context;

    /* Pieces. Threads take these lines of the cache from each other: nothing else is there. */
    alignas(LINE) atomic_size_t begun;
    alignas(LINE) atomic_size_t blank_begun;
    atomic_size_t blank_ended; /* fewer in a child made meanwhile, as nobody goes on there */
    atomic_bool is_awaited;    /* the caller has nothing else to do */
} transfer;

static bool write_next(transfer *now)
{
    size_t piece = atomic_fetch_add_explicit(&now->begun, 1, memory_order_relaxed);
    if (piece >= now->pieces)
        return false;
    size_t at = piece * GR_PIECE_BYTES, bytes = gr_least(now->bytes - at, GR_PIECE_BYTES);
    char *to = now->to + at;
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
    if (piece >= now->unblanked_pieces)
        return false;
    make_blank(now->unblanked + piece * GR_PIECE_BYTES, GR_PIECE_BYTES);
    atomic_fetch_add_explicit(&now->blank_ended, 1, memory_order_relaxed);
    return true;
}

/* The caller makes nothing blank, as it has a kernel to wait for, nor does it wait for long until
 * others have. The next array has to do with what is. */
static void write_all(size_t task, void *context)
{
    transfer *now = context;
    (void)task;
    while (write_next(now))
        ;
    if (pthread_equal(now->caller, pthread_self())) {
        atomic_store_explicit(&now->is_awaited, true, memory_order_relaxed);
        return;
    }
    for (int i = 0;
         i < LEAST_BLANKED || !atomic_load_explicit(&now->is_awaited, memory_order_relaxed); i++)
        if (!blank_next(now))
            return;
}

/* All that was begun is ended now. */
static void note_what_is_blank(const transfer *now, gr_place *place)
{
    size_t pieces = gr_least(now->blank_begun, now->unblanked_pieces);
    if (pieces != now->blank_ended)
        return;
    if (pieces == now->unblanked_pieces)
        *place = (gr_place){.blank_to = BLANK_BYTES};
    else
        place->blank_to = pieces * GR_PIECE_BYTES;
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
    bool is_small = bytes <= PLACE_BYTES;
    unsigned long long number = ++workspace->arrivals;
    size_t turn = is_small ? number % PLACES : 0;
    gr_place *own = &workspace->places[turn], *other = &workspace->places[1 - turn];
    gr_buffer *staged = &workspace->staged;
    char *to = (char *)staged->data + turn * PLACE_BYTES;
    size_t blank = take(own, bytes);
    if (!is_small)
        take(other, PLACE_BYTES);

    size_t threads = waits ? threads_for(bytes, time) : 1;
    if (threads == 1) {
        memcpy(to, host, bytes);
        launch(&(gr_arriving){.data = to}, context);
        return true;
    }
    unsigned long long *mark = (unsigned long long *)((char *)staged->data + staged->bytes);
    transfer now = {.array = {to, mark, number, blank},
                    .to = to,
                    .from = host,
                    .mark = mark,
                    .bytes = bytes,
                    .pieces = pieces_of(bytes),
                    .unblanked = (char *)staged->data + (1 - turn) * PLACE_BYTES,
                    .unblanked_pieces = is_small ? pieces_of(other->blank_from) : 0,
                    .caller = pthread_self(),
                    .launch = launch,
                    .context = context};
    gr_parallel_behind(launch_first, (int)threads, threads, write_all, &now);
    if (is_small)
        note_what_is_blank(&now, other);
    write_all(0, &now); /* what was left, as an interrupt drops tasks: the kernel waits for it */
    return true;
}
