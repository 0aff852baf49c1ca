/* The driver copies pageable memory with a single thread, at a fifth of the link's bandwidth. Here
 * several threads copy pieces into a ring of pinned memory, while the device fetches earlier pieces
 * from it. The ring is small enough to stay in the processor's cache: the array is read from memory
 * once, and nothing is written back to memory. The ring is also so small that fetching its last
 * pieces takes less time than the idle threads spin, so they are still awake for the next copy.
 *
 * An order is one cudaMemcpyAsync of adjacent pieces. The link idles between two orders, so there
 * are few. Only one thread gives orders: threads that call the driver concurrently would wait for
 * each other. The first order is small, so that the transfer starts early. Each further order is as
 * large as all orders before it together, so that it is given while those are in progress. */
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

/* The times, and the size from which threads pay, were measured on one machine, with an H200 and 16
 * processors. */
enum {
    PIECE = 1 << 15,
    PLACES = 512,     /* slots for pieces in the ring */
    FIRST_PIECES = 4, /* pieces of the first order */
    DOUBLINGS = 5,    /* from the first order to the largest */
    /* the link idles for 2 us per 78 us of transfer; the slots of an order become free together */
    MOST_PIECES = FIRST_PIECES << DOUBLINGS,
    ORDERS = 16,           /* events for orders, in a ring */
    THREADS_FROM = 1 << 20 /* bytes; for fewer, waking threads costs more than it saves */
};

/* There is an event for each order in progress. These orders have at most PLACES pieces together.
 * At the beginning of a copy there are DOUBLINGS + 1 orders that double the ordered pieces. All
 * other orders have MOST_PIECES, except for the one at the ring's end and the copy's last one. */
_Static_assert(PLACES >= 2 * MOST_PIECES && DOUBLINGS + PLACES / MOST_PIECES + 3 <= ORDERS,
               "more orders under way than there are events");

typedef struct {
    pthread_mutex_t mutex; /* concurrent copies to a device take turns, as they share one link */
    char *memory;
    int device;
    cudaEvent_t fetched[ORDERS]; /* the device has read an order's pieces and all earlier ones */
    cudaEvent_t drained;         /* the device has read the whole last copy */
} staging_ring;

/* A ring for each device; devices share one if there are more. */
enum { RINGS = 8 };
static staging_ring rings[RINGS] = {[0 ... RINGS - 1] = {.mutex = PTHREAD_MUTEX_INITIALIZER}};

/* Copies in progress, which share the processors. */
static atomic_int copies;

typedef struct {
    staging_ring *ring;
    char *to;
    const char *from;
    size_t bytes, pieces;
    cudaStream_t stream;
    atomic_size_t begun;          /* pieces */
    atomic_size_t filled[PLACES]; /* 1 + the last piece written to each slot */
    atomic_size_t fetched;        /* pieces that are known to be fetched */
    atomic_int failed;            /* a cudaError_t */
    atomic_bool is_broken_off;
    atomic_bool is_cut;     /* a child of fork(): the parent's copying threads do not exist here */
    atomic_bool has_driver; /* a thread gives the orders */

    /* Used only by the thread that gives the orders: */
    size_t ready, ordered; /* pieces */
    size_t orders, orders_fetched;
    size_t order_end[ORDERS]; /* the piece after the last one of each order */
} staged_copy;

static void close_ring(staging_ring *ring)
{
    for (int i = 0; i < ORDERS; i++) {
        if (ring->fetched[i])
            (void)cudaEventDestroy(ring->fetched[i]);
        ring->fetched[i] = NULL;
    }
    if (ring->drained) {
        (void)cudaEventSynchronize(ring->drained); /* cudaFreeHost may not wait */
        (void)cudaEventDestroy(ring->drained);
    }
    ring->drained = NULL;
    (void)cudaFreeHost(ring->memory);
    ring->memory = NULL;
}

static cudaError_t open_ring(staging_ring *ring, int device)
{
    if (ring->memory && ring->device == device)
        return cudaSuccess;
    close_ring(ring);
    ring->device = device;
    cudaError_t state =
        cudaHostAlloc((void **)&ring->memory, (size_t)PLACES * PIECE, cudaHostAllocDefault);
    for (int i = 0; i < ORDERS && state == cudaSuccess; i++)
        state = cudaEventCreateWithFlags(&ring->fetched[i], cudaEventDisableTiming);
    if (state == cudaSuccess)
        state = cudaEventCreateWithFlags(&ring->drained, cudaEventDisableTiming);
    if (state != cudaSuccess)
        close_ring(ring);
    return state;
}

/* Records a failure. The first one counts. */
static void note(staged_copy *copy, cudaError_t state)
{
    int none = cudaSuccess;
    if (state != cudaSuccess)
        atomic_compare_exchange_strong(&copy->failed, &none, (int)state);
}

/* Whether the copy ends early. Only the calling thread receives interrupts. While it waits for the
 * others at the end, an interrupt no longer ends the copy. */
static bool is_over(staged_copy *copy)
{
    if (gr_ask_for_interrupts())
        atomic_store_explicit(&copy->is_broken_off, true, memory_order_relaxed);
    return atomic_load_explicit(&copy->is_broken_off, memory_order_relaxed) ||
           atomic_load_explicit(&copy->is_cut, memory_order_relaxed) ||
           atomic_load_explicit(&copy->failed, memory_order_relaxed) != cudaSuccess;
}

/* --- pieces ---------------------------------------------------------------------------------- */

/* Takes the next piece. Returns false if there is none, or no free slot for it: a piece that has
 * been begun never has to wait. */
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
    gr_write_piece(copy->ring->memory + place * PIECE, copy->from + at,
                   left < PIECE ? left : PIECE);
    atomic_store_explicit(&copy->filled[place], piece + 1, memory_order_release);
}

/* Fills pieces. While all slots are in use, waits for the thread that gives the orders. If there is
 * none, because task 0 was dropped or starts last, this leaves the rest to task 0, which can do all
 * of it. */
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

/* Whether the array is larger than the ring, so that slots are reused. */
static bool goes_round(const staged_copy *copy)
{
    return copy->pieces > PLACES;
}

static void see_what_is_fetched(staged_copy *copy)
{
    while (copy->orders_fetched < copy->orders) {
        size_t number = copy->orders_fetched % ORDERS;
        cudaError_t state = cudaEventQuery(copy->ring->fetched[number]);
        if (state == cudaErrorNotReady) {
            (void)cudaGetLastError(); /* clears the code, or a later call would report it */
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

/* Returns the piece after the next order's last one. An order does not cross the ring's end. If too
 * few pieces are ready for an order, returns the end of the previous order. */
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

    note(copy, cudaMemcpyAsync(copy->to + at, copy->ring->memory + first % PLACES * PIECE, bytes,
                               cudaMemcpyHostToDevice, copy->stream));
    copy->ordered = end;
    if (!goes_round(copy))
        return;
    note(copy, cudaEventRecord(copy->ring->fetched[number], copy->stream));
    copy->order_end[number] = end;
    copy->orders++;
}

/* Fills a piece itself if hardly any other thread does: they may be asleep, or not exist. */
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
    note(copy, cudaSetDevice(copy->ring->device)); /* a per-thread setting */
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

/* Task 0 gives the orders. If no other thread takes part, it also fills all pieces. */
static void take_part(size_t task, void *context)
{
    if (task == 0)
        order_all(context);
    else
        fill_pieces(context);
}

/* The copy that this thread is making. A signal handler may fork or copy in the middle of it. */
static _Thread_local staged_copy *own_copy;

/* The ring must be open, and the caller must hold its mutex. Sets *is_cut if the copy has to be
 * repeated. */
static cudaError_t stage_once(staging_ring *ring, void *to, const void *host, size_t bytes,
                              cudaStream_t stream, bool *is_cut)
{
    staged_copy copy = {.ring = ring,
                        .to = to,
                        .from = host,
                        .bytes = bytes,
                        .pieces = (bytes - 1) / PIECE + 1,
                        .stream = stream};
    cudaError_t state = cudaEventSynchronize(ring->drained);
    if (state != cudaSuccess) {
        close_ring(ring); /* it may belong to a destroyed context */
        return state;
    }
    int others = atomic_fetch_add_explicit(&copies, 1, memory_order_relaxed);
    int threads = bytes < THREADS_FROM ? 1 : (gr_filling_threads() + others) / (others + 1);
    own_copy = &copy;
    gr_parallel_beside((int)(ring - rings), threads, (size_t)threads, take_part, &copy);
    own_copy = NULL;
    atomic_fetch_sub_explicit(&copies, 1, memory_order_relaxed);
    *is_cut = atomic_load(&copy.is_cut);
    note(&copy, cudaEventRecord(ring->drained, stream));
    state = (cudaError_t)atomic_load(&copy.failed);
    if (state != cudaSuccess || atomic_load(&copy.is_broken_off)) {
        (void)cudaStreamSynchronize(stream); /* transfers may be in progress */
        close_ring(ring);
    }
    return state;
}

static cudaError_t stage(staging_ring *ring, void *to, const void *host, size_t bytes,
                         cudaStream_t stream)
{
    bool is_cut = false;
    cudaError_t state = stage_once(ring, to, host, bytes, stream, &is_cut);
    while (is_cut && state == cudaSuccess)
        state = stage_once(ring, to, host, bytes, stream, &is_cut);
    return state;
}

/* In a child process, pieces that other threads had begun are never filled. If this thread holds
 * a ring, it repeats the whole copy. With a GPU that fails, as a child cannot use its parent's
 * context. If another thread held a ring, its memory is not freed. */
static void forget_rings(void)
{
    atomic_store(&copies, own_copy != NULL);
    if (own_copy)
        atomic_store(&own_copy->is_cut, true);
    for (int i = 0; i < RINGS; i++) {
        if (own_copy && own_copy->ring == &rings[i])
            continue;
        memset(&rings[i], 0, sizeof rings[i]);
        rings[i].mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    }
}

GR_AROUND_FORK(NULL, NULL, forget_rings)

/* Waits for a ring's mutex. Returns false if this call is interrupted. Also returns false while a
 * signal handler runs in any thread: the handler may have interrupted the copy that holds the
 * mutex, and it may be waiting for this thread. */
static bool take_ring(staging_ring *ring)
{
    static const struct timespec PAUSE = {.tv_nsec = 50 * 1000};
    enum { YIELDS = 100 };
    for (unsigned tries = 0; pthread_mutex_trylock(&ring->mutex); tries++) {
        if (gr_ask_for_interrupts() || gr_is_checking())
            return false;
        if (tries < YIELDS)
            sched_yield();
        else
            nanosleep(&PAUSE, NULL);
    }
    return true;
}

/* Sets *copied to false if the copy has to be made without the ring. */
static cudaError_t copy_through_ring(int device, void *to, const void *host, size_t bytes,
                                     cudaStream_t stream, bool *copied)
{
    staging_ring *ring = &rings[device % RINGS];
    if (!take_ring(ring)) {
        *copied = gr_interrupted();
        return cudaSuccess;
    }
    *copied = open_ring(ring, device) == cudaSuccess;
    cudaError_t state = *copied ? stage(ring, to, host, bytes, stream) : cudaSuccess;
    pthread_mutex_unlock(&ring->mutex);
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
        (void)cudaGetLastError(); /* perhaps no memory to pin: copies without the ring */
    }
    TRY(cudaMemcpyAsync(to, host, bytes, cudaMemcpyHostToDevice, stream));
done:
    return error->status;
}

void gr_release_staging(void)
{
    for (staging_ring *ring = rings; ring < rings + RINGS; ring++) {
        if (pthread_mutex_trylock(&ring->mutex)) /* in use: not freed */
            continue;
        if (ring->memory && cudaSetDevice(ring->device) == cudaSuccess)
            close_ring(ring);
        pthread_mutex_unlock(&ring->mutex);
    }
}
