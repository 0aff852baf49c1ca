/* A copy from pageable memory goes through the driver's one thread at a fifth of what the link can
 * do. Here several threads copy pieces into a ring of pinned memory, from where the card fetches
 * them meanwhile. The ring is small enough to stay in the processor's cache, so that the memory is
 * read once and nothing is written to it.
 *
 * Pieces are small, so that the link has something to do at once and little to do at the end. But
 * between two orders the link rests a while, and threads that call the driver together only wait
 * for each other. So one thread at a time talks to the driver, and orders all pieces that are there
 * by one call, as soon as no more than one order is under way; while that one is carried out, the
 * next pieces come together. */
#include "engine/staging.h"

#include "threads/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

enum {
    PIECE = 1 << 16,
    PLACES = 512,          /* for pieces, in the ring */
    MOST_PIECES = 64,      /* ordered together: their places become free together, too */
    ORDERS = 16,           /* that can be under way */
    THREADS = 12,          /* that read memory faster than an H200's link carries it away */
    THREADS_FROM = 1 << 20 /* bytes; below, to wake threads costs more than it saves */
};

/* When all pieces are there, those left are ordered at once, though two orders may be under way.
 * That can be the whole ring, and one more as no order goes across its end. */
_Static_assert(ORDERS >= 2 + PLACES / MOST_PIECES + 1, "each order has an event of its own");

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
    atomic_size_t next;           /* piece that nobody has begun */
    atomic_size_t filled[PLACES]; /* 1 + the last piece that was put there */
    atomic_size_t fetched;        /* pieces */
    atomic_int failed;            /* a cudaError_t */
    atomic_bool is_talking;       /* a thread is, to the driver; what follows is that thread's */
    size_t ordered;               /* pieces */
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
    if (ring.drained)
        (void)cudaEventDestroy(ring.drained);
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

static bool has_failed(staged_copy *copy)
{
    return atomic_load_explicit(&copy->failed, memory_order_relaxed) != cudaSuccess;
}

/* The first failure counts. */
static void note(staged_copy *copy, cudaError_t state)
{
    int none = cudaSuccess;
    if (state != cudaSuccess)
        atomic_compare_exchange_strong(&copy->failed, &none, (int)state);
}

/* The piece behind those that are ready to be ordered together. */
static size_t ready_end(staged_copy *copy)
{
    size_t first = copy->ordered, end = first, most = first - first % PLACES + PLACES;
    most = most < first + MOST_PIECES ? most : first + MOST_PIECES;
    while (end < most &&
           atomic_load_explicit(&copy->filled[end % PLACES], memory_order_acquire) == end + 1)
        end++;
    return end;
}

static void order(staged_copy *copy, size_t end)
{
    size_t first = copy->ordered, at = first * PIECE, number = copy->orders % ORDERS;
    size_t bytes = (end * PIECE < copy->bytes ? end * PIECE : copy->bytes) - at;

    note(copy, cudaMemcpyAsync(copy->to + at, ring.memory + first % PLACES * PIECE, bytes,
                               cudaMemcpyHostToDevice, copy->stream));
    note(copy, cudaEventRecord(ring.fetched[number], copy->stream));
    copy->ordered = end;
    copy->order_end[number] = end;
    copy->orders++;
}

static void see_what_is_fetched(staged_copy *copy)
{
    while (copy->orders_fetched < copy->orders) {
        cudaError_t state = cudaEventQuery(ring.fetched[copy->orders_fetched % ORDERS]);
        if (state != cudaSuccess) {
            note(copy, state == cudaErrorNotReady ? cudaSuccess : state);
            return;
        }
        atomic_store_explicit(&copy->fetched, copy->order_end[copy->orders_fetched % ORDERS],
                              memory_order_release);
        copy->orders_fetched++;
    }
}

/* Unless somebody is at it already. */
static void talk(staged_copy *copy, bool is_last)
{
    size_t end;
    if (atomic_exchange_explicit(&copy->is_talking, true, memory_order_acquire))
        return;
    note(copy, cudaSetDevice(ring.device)); /* a setting of each thread */
    see_what_is_fetched(copy);
    while (!has_failed(copy) && (is_last || copy->orders - copy->orders_fetched < 2) &&
           (end = ready_end(copy)) > copy->ordered)
        order(copy, end);
    atomic_store_explicit(&copy->is_talking, false, memory_order_release);
}

/* What a thread has just written lies in its processor's own cache, from where the link is slow to
 * fetch it. This moves it on to the cache that all share. Where processors do not know the
 * instruction, it does nothing. */
#if defined(__x86_64__)
__attribute__((target("cldemote"))) static void move_on(char *at, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64)
        __builtin_ia32_cldemote(at + i);
}
#else
static void move_on(char *at, size_t bytes)
{
    (void)at, (void)bytes;
}
#endif

/* Whoever filled the place before began earlier and waits for nobody who began later: this ends. */
static void await_place(staged_copy *copy, size_t piece)
{
    while (piece >= atomic_load_explicit(&copy->fetched, memory_order_acquire) + PLACES &&
           !has_failed(copy)) {
        talk(copy, false);
        sched_yield();
    }
}

static void run_task(size_t task, void *context)
{
    staged_copy *copy = context;
    (void)task; /* pieces are begun in order, whatever order tasks come in */
    size_t piece = atomic_fetch_add_explicit(&copy->next, 1, memory_order_relaxed);
    size_t at = piece * PIECE, place = piece % PLACES;
    size_t bytes = copy->bytes - at < PIECE ? copy->bytes - at : PIECE;
    char *pinned = ring.memory + place * PIECE;

    await_place(copy, piece);
    if (has_failed(copy))
        return;
    memcpy(pinned, copy->from + at, bytes);
    if (piece + PLACES >= copy->pieces) /* earlier ones are pushed on by those that follow */
        move_on(pinned, bytes);
    atomic_store_explicit(&copy->filled[place], piece + 1, memory_order_release);
    talk(copy, false);
}

static int is_pageable(const void *host)
{
    struct cudaPointerAttributes attributes;
    if (cudaPointerGetAttributes(&attributes, host) == cudaSuccess)
        return attributes.type == cudaMemoryTypeUnregistered;
    (void)cudaGetLastError();
    return 1;
}

/* The ring must be open, and the caller's. */
static cudaError_t stage(void *to, const void *host, size_t bytes, cudaStream_t stream)
{
    staged_copy copy = {.to = to,
                        .from = host,
                        .bytes = bytes,
                        .pieces = (bytes - 1) / PIECE + 1,
                        .stream = stream};
    int threads = gr_thread_count();
    threads = bytes < THREADS_FROM ? 1 : threads < THREADS ? threads : THREADS;
    cudaError_t state = cudaEventSynchronize(ring.drained);
    if (state != cudaSuccess)
        return state;
    gr_parallel_beside(threads, copy.pieces, run_task, &copy);
    talk(&copy, true);
    note(&copy, cudaEventRecord(ring.drained, stream));
    return (cudaError_t)atomic_load(&copy.failed);
}

gr_status gr_copy_to_device(int device, void *to, const void *host, size_t bytes,
                            cudaStream_t stream, gr_error *error)
{
    error->status = GR_OK;
    if (bytes && is_pageable(host)) {
        pthread_mutex_lock(&ring.mutex);
        int opened = open_ring(device) == cudaSuccess;
        cudaError_t state = opened ? stage(to, host, bytes, stream) : cudaSuccess;
        pthread_mutex_unlock(&ring.mutex);
        TRY(state);
        if (opened)
            return GR_OK;
        (void)cudaGetLastError(); /* no memory to pin: the slow way works */
    }
    TRY(cudaMemcpyAsync(to, host, bytes, cudaMemcpyHostToDevice, stream));
done:
    return error->status;
}

void gr_release_staging(void)
{
    pthread_mutex_lock(&ring.mutex);
    if (ring.memory && cudaSetDevice(ring.device) == cudaSuccess)
        close_ring();
    pthread_mutex_unlock(&ring.mutex);
}
