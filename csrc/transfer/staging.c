/* A copy from pageable memory goes through the driver's one thread at a fifth of what the link can
 * do. Here several threads copy pieces into a ring of pinned memory, from where the card fetches
 * them meanwhile. The ring is small enough to stay in the processor's cache, so that the memory is
 * read once and nothing is written to it; and so small that the threads, which have nothing to do
 * while the last pieces are fetched, are still awake when the next copy comes.
 *
 * One of the threads talks to the driver: between two orders the link rests a while, and threads
 * that call the driver together only wait for each other. The first order is small, so that the
 * link has something to do at once; each further one takes as much as all before it together, so
 * that it comes while those are carried out. */
#include "transfer/staging.h"

#include "transfer/pinned_memory.h"
#include "threads/forks.h"
#include "threads/interrupts.h"
#include "threads/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

/* What took how long, and from where on threads pay, was measured on one machine, an H200 and 16
 * processors. */
enum {
    PIECE = 1 << 15,
    PLACES = 512,     /* for pieces, in the ring */
    FIRST_PIECES = 4, /* ordered together, at first */
    DOUBLINGS = 5,    /* of that */
    /* 2 us of rest for each 78 of work; their places become free together */
    MOST_PIECES = FIRST_PIECES << DOUBLINGS,
    ORDERS = 16,           /* with an event each, in a ring that is used again */
    THREADS_FROM = 1 << 20 /* bytes; below, to wake threads costs more than it saves */
};

/* All orders under way find an event: together they have PLACES pieces at most. Those of the
 * copy's beginning, which double what was ordered, are DOUBLINGS + 1; of the others all have
 * MOST_PIECES but for the one at the ring's end and the last of the copy. */
_Static_assert(PLACES >= 2 * MOST_PIECES && DOUBLINGS + PLACES / MOST_PIECES + 3 <= ORDERS,
               "more orders under way than there are events");

static struct {
    pthread_mutex_t mutex; /* there is one link: copies that come together take turns */
    char *memory;
    int device;
    cudaEvent_t fetched[ORDERS]; /* the card has read what an order is for, and all before it */
    cudaEvent_t drained;         /* and all of the last copy */
} ring = {.mutex = PTHREAD_MUTEX_INITIALIZER};

typedef struct {
    char *to;
    const char *from;
    size_t bytes, pieces;
    cudaStream_t stream;
    atomic_size_t begun;          /* pieces */
    atomic_size_t filled[PLACES]; /* 1 + the last piece that was put there */
    atomic_size_t fetched;        /* pieces, as far as anybody has asked */
    atomic_int failed;            /* a cudaError_t */
    atomic_bool is_broken_off;
    atomic_bool is_cut;     /* by fork(): threads that had begun pieces are not in this process */
    atomic_bool has_driver; /* somebody talks to the driver */

    /* Of the thread that does: */
    size_t ready, ordered; /* pieces */
    size_t orders, orders_fetched;
    size_t order_end[ORDERS]; /* the piece behind each order */
} staged_copy;

static void close_ring(void)
{
    for (int i = 0; i < ORDERS; i++) {
        if (ring.fetched[i])
            (void)cudaEventDestroy(ring.fetched[i]);
        ring.fetched[i] = NULL;
    }
    if (ring.drained) {
        (void)cudaEventSynchronize(ring.drained); /* nothing says that to free it waits */
        (void)cudaEventDestroy(ring.drained);
    }
    ring.drained = NULL;
    (void)cudaFreeHost(ring.memory);
    ring.memory = NULL;
}

static cudaError_t open_ring(int device)
{
    if (ring.memory && ring.device == device)
        return cudaSuccess;
    close_ring();
    ring.device = device;
    cudaError_t state =
        cudaHostAlloc((void **)&ring.memory, (size_t)PLACES * PIECE, cudaHostAllocDefault);
    for (int i = 0; i < ORDERS && state == cudaSuccess; i++)
        state = cudaEventCreateWithFlags(&ring.fetched[i], cudaEventDisableTiming);
    if (state == cudaSuccess)
        state = cudaEventCreateWithFlags(&ring.drained, cudaEventDisableTiming);
    if (state != cudaSuccess)
        close_ring();
    return state;
}

/* The first failure counts. */
static void note(staged_copy *copy, cudaError_t state)
{
    int none = cudaSuccess;
    if (state != cudaSuccess)
        atomic_compare_exchange_strong(&copy->failed, &none, (int)state);
}

/* Whether nothing more is to be done. Of the threads at work only the caller hears an interrupt,
 * and while it waits for the others nobody does. */
static bool is_over(staged_copy *copy)
{
    if (gr_ask_for_interrupts())
        atomic_store_explicit(&copy->is_broken_off, true, memory_order_relaxed);
    return atomic_load_explicit(&copy->is_broken_off, memory_order_relaxed) ||
           atomic_load_explicit(&copy->is_cut, memory_order_relaxed) ||
           atomic_load_explicit(&copy->failed, memory_order_relaxed) != cudaSuccess;
}

/* --- pieces ---------------------------------------------------------------------------------- */

/* The next piece, if there is one, and a place for it: a piece that was begun waits for nothing. */
static bool begin_piece(staged_copy *copy, size_t *piece)
{
    size_t next = atomic_load_explicit(&copy->begun, memory_order_relaxed);
    do
        if (next == copy->pieces ||
            next >= atomic_load_explicit(&copy->fetched, memory_order_acquire) + PLACES)
            return false;
    while (!atomic_compare_exchange_weak_explicit(&copy->begun, &next, next + 1,
                                                  memory_order_relaxed, memory_order_relaxed));
    *piece = next;
    return true;
}

static void fill(staged_copy *copy, size_t piece)
{
    size_t place = piece % PLACES, at = piece * PIECE, left = copy->bytes - at;
    gr_write_piece(ring.memory + place * PIECE, copy->from + at, left < PIECE ? left : PIECE);
    atomic_store_explicit(&copy->filled[place], piece + 1, memory_order_release);
}

/* While all places are taken this waits for whoever talks to the driver. If nobody does, as the
 * first task was dropped, or comes last, it leaves the rest: that task could do it all. */
static void fill_pieces(staged_copy *copy)
{
    size_t piece;
    while (atomic_load_explicit(&copy->begun, memory_order_relaxed) < copy->pieces &&
           !is_over(copy)) {
        if (begin_piece(copy, &piece))
            fill(copy, piece);
        else if (atomic_load_explicit(&copy->has_driver, memory_order_relaxed))
            sched_yield();
        else
            return;
    }
}

/* --- orders ---------------------------------------------------------------------------------- */

static void see_what_is_ready(staged_copy *copy)
{
    while (copy->ready < copy->pieces &&
           atomic_load_explicit(&copy->filled[copy->ready % PLACES], memory_order_acquire) ==
               copy->ready + 1)
        copy->ready++;
}

/* An array that fits into the ring needs none of its places twice. */
static bool goes_round(const staged_copy *copy)
{
    return copy->pieces > PLACES;
}

static void see_what_is_fetched(staged_copy *copy)
{
    while (copy->orders_fetched < copy->orders) {
        size_t number = copy->orders_fetched % ORDERS;
        cudaError_t state = cudaEventQuery(ring.fetched[number]);
        if (state == cudaErrorNotReady) {
            (void)cudaGetLastError(); /* which others would take for an error of theirs */
            return;
        }
        if (state != cudaSuccess) {
            note(copy, state);
            return;
        }
        atomic_store_explicit(&copy->fetched, copy->order_end[number], memory_order_release);
        copy->orders_fetched++;
    }
}

/* The piece behind the next order, which does not go across the ring's end; that of the last one
 * as long as there is not enough for another. */
static size_t end_of_next(const staged_copy *copy)
{
    size_t first = copy->ordered, ring_end = first - first % PLACES + PLACES;
    size_t end = gr_least(gr_least(copy->ready, first + MOST_PIECES), ring_end);
    size_t enough = first < FIRST_PIECES ? FIRST_PIECES : gr_least(first, MOST_PIECES);
    bool due = end - first >= enough || end == copy->pieces || end == ring_end;
    return due ? end : first;
}

static void order(staged_copy *copy, size_t end)
{
    size_t first = copy->ordered, at = first * PIECE, number = copy->orders % ORDERS;
    size_t bytes = gr_least(end * PIECE, copy->bytes) - at;

    note(copy, cudaMemcpyAsync(copy->to + at, ring.memory + first % PLACES * PIECE, bytes,
                               cudaMemcpyHostToDevice, copy->stream));
    copy->ordered = end;
    if (!goes_round(copy))
        return;
    note(copy, cudaEventRecord(ring.fetched[number], copy->stream));
    copy->order_end[number] = end;
    copy->orders++;
}

/* Helps out where hardly anybody else is filling: the others may be asleep, or not exist. */
static bool help(staged_copy *copy)
{
    size_t piece, begun = atomic_load_explicit(&copy->begun, memory_order_relaxed);
    if (begun > copy->ready + 1 || !begin_piece(copy, &piece))
        return false;
    fill(copy, piece);
    return true;
}

static void order_all(staged_copy *copy)
{
    atomic_store_explicit(&copy->has_driver, true, memory_order_relaxed);
    note(copy, cudaSetDevice(ring.device)); /* a setting of each thread */
    while (copy->ordered < copy->pieces && !is_over(copy)) {
        see_what_is_ready(copy);
        size_t end = end_of_next(copy);
        if (end > copy->ordered) {
            order(copy, end);
        } else if (!help(copy)) {
            see_what_is_fetched(copy);
            sched_yield();
        }
    }
}

/* Whoever comes to the first task talks to the driver; it could do all the rest as well. */
static void take_part(size_t task, void *context)
{
    if (task == 0)
        order_all(context);
    else
        fill_pieces(context);
}

/* What this thread is copying: a signal handler may fork in the middle of that, or copy itself. */
static _Thread_local staged_copy *own_copy;

/* The ring must be open, and the caller's. Sets *is_cut where the copy has to be made anew. */
static cudaError_t stage_once(void *to, const void *host, size_t bytes, cudaStream_t stream,
                              bool *is_cut)
{
    staged_copy copy = {.to = to,
                        .from = host,
                        .bytes = bytes,
                        .pieces = (bytes - 1) / PIECE + 1,
                        .stream = stream};
    int threads = bytes < THREADS_FROM ? 1 : gr_filling_threads();
    cudaError_t state = cudaEventSynchronize(ring.drained);
    if (state != cudaSuccess) {
        close_ring(); /* it may belong to a context that is gone */
        return state;
    }
    own_copy = &copy;
    gr_parallel_beside(threads, (size_t)threads, take_part, &copy);
    own_copy = NULL;
    *is_cut = atomic_load(&copy.is_cut);
    note(&copy, cudaEventRecord(ring.drained, stream));
    state = (cudaError_t)atomic_load(&copy.failed);
    if (state != cudaSuccess || atomic_load(&copy.is_broken_off)) {
        (void)cudaStreamSynchronize(stream); /* pieces may be on their way */
        close_ring();
    }
    return state;
}

static cudaError_t stage(void *to, const void *host, size_t bytes, cudaStream_t stream)
{
    bool is_cut = false;
    cudaError_t state = stage_once(to, host, bytes, stream, &is_cut);
    while (is_cut && state == cudaSuccess)
        state = stage_once(to, host, bytes, stream, &is_cut);
    return state;
}

/* In a child made by fork() pieces that other threads had begun are never filled. If this thread
 * has the ring, it copies all anew; on a card that fails, as a child cannot use its parent's. The
 * memory of another thread's ring is left alone. */
static void forget_ring(void)
{
    if (own_copy) {
        atomic_store(&own_copy->is_cut, true);
        return;
    }
    memset(&ring, 0, sizeof ring);
    ring.mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

GR_AROUND_FORK(NULL, NULL, forget_ring)

/* Waits for its turn. False: the call was interrupted meanwhile; or a signal handler runs, perhaps
 * in the middle of another thread's copy, and it may wait for this thread. */
static bool take_ring(void)
{
    static const struct timespec PAUSE = {.tv_nsec = 50 * 1000};
    enum { YIELDS = 100 };
    for (unsigned tries = 0; pthread_mutex_trylock(&ring.mutex); tries++) {
        if (gr_ask_for_interrupts() || gr_is_checking())
            return false;
        if (tries < YIELDS)
            sched_yield();
        else
            nanosleep(&PAUSE, NULL);
    }
    return true;
}

/* Sets *copied unless the copy has to be made without the ring. */
static cudaError_t copy_through_ring(int device, void *to, const void *host, size_t bytes,
                                     cudaStream_t stream, bool *copied)
{
    if (!take_ring()) {
        *copied = gr_interrupted();
        return cudaSuccess;
    }
    *copied = open_ring(device) == cudaSuccess;
    cudaError_t state = *copied ? stage(to, host, bytes, stream) : cudaSuccess;
    pthread_mutex_unlock(&ring.mutex);
    return state;
}

gr_status gr_copy_to_device(int device, void *to, const void *host, size_t bytes,
                            cudaStream_t stream, gr_error *error)
{
    bool copied = false;
    error->status = GR_OK;
    if (bytes && !own_copy && gr_is_pageable(host, bytes)) {
        TRY(copy_through_ring(device, to, host, bytes, stream, &copied));
        if (copied)
            return GR_OK;
        (void)cudaGetLastError(); /* perhaps there is no memory to pin: the slow way works */
    }
    TRY(cudaMemcpyAsync(to, host, bytes, cudaMemcpyHostToDevice, stream));
done:
    return error->status;
}

void gr_release_staging(void)
{
    if (pthread_mutex_trylock(&ring.mutex)) /* in use: it is kept */
        return;
    if (ring.memory && cudaSetDevice(ring.device) == cudaSuccess)
        close_ring();
    pthread_mutex_unlock(&ring.mutex);
}
