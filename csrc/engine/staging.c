/* A copy from pageable memory goes through the driver's one thread at a fifth of what the link can
 * do. Here several threads copy chunks into a ring of pinned memory, from where the card fetches
 * them while the next chunks are filled. The ring is small enough to stay in the processor's cache,
 * so that the memory is read once and nothing is written to it. */
#include "engine/staging.h"

#include "threads/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

enum {
    /* On the machine of notebooks/data/bench_h200.json smaller chunks bring less, and so do fewer
     * threads; more of them bring no more. */
    MOST_CHUNK = 1 << 22,
    USUAL_CHUNK = 1 << 21,
    LEAST_CHUNK = 1 << 18,
    LARGE_BYTES = 1 << 30, /* from here on the largest chunks are worth their slow start */
    SLOTS = 16,
    THREADS = 8,
    STAGE_FROM = 1 << 21 /* below, waking threads costs more than it saves */
};

static struct {
    pthread_mutex_t mutex; /* there is one link: copies that come together take turns */
    char *memory;
    int device;
    cudaEvent_t fetched[SLOTS]; /* the card has read the slot */
} ring = {.mutex = PTHREAD_MUTEX_INITIALIZER};

typedef struct {
    char *to;
    const char *from;
    size_t bytes, chunk;
    cudaStream_t stream;
    atomic_size_t next;        /* chunk not begun */
    atomic_size_t uses[SLOTS]; /* how often the slot was filled */
    atomic_int failed;         /* a cudaError_t */
} staged_copy;

static void close_ring(void)
{
    for (int i = 0; i < SLOTS; i++) {
        if (ring.fetched[i])
            (void)cudaEventDestroy(ring.fetched[i]);
        ring.fetched[i] = NULL;
    }
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
        cudaHostAlloc((void **)&ring.memory, (size_t)SLOTS * MOST_CHUNK, cudaHostAllocDefault);
    for (int i = 0; i < SLOTS && state == cudaSuccess; i++)
        state = cudaEventCreateWithFlags(&ring.fetched[i], cudaEventDisableTiming);
    if (state != cudaSuccess)
        close_ring();
    return state;
}

/* Until the card has fetched what the slot held before. Whoever filled it began earlier and waits
 * for nobody who began later, so this ends. */
static cudaError_t await_slot(staged_copy *copy, size_t slot, size_t use)
{
    /* What the slot held may be an earlier copy's: its event tells, too. */
    while (atomic_load_explicit(&copy->uses[slot], memory_order_acquire) != use)
        if (atomic_load_explicit(&copy->failed, memory_order_relaxed))
            return cudaErrorUnknown; /* said already */
        else
            sched_yield();
    /* Asking again and again leaves the driver to those who have something to submit; its own wait
     * does not. */
    cudaError_t state;
    while ((state = cudaEventQuery(ring.fetched[slot])) == cudaErrorNotReady)
        sched_yield();
    return state;
}

static cudaError_t stage_chunk(staged_copy *copy, size_t chunk)
{
    size_t at = chunk * copy->chunk, slot = chunk % SLOTS, use = chunk / SLOTS;
    size_t bytes = copy->bytes - at < copy->chunk ? copy->bytes - at : copy->chunk;
    char *pinned = ring.memory + slot * MOST_CHUNK;
    cudaError_t state = cudaSetDevice(ring.device); /* a setting of each thread */

    if (state == cudaSuccess)
        state = await_slot(copy, slot, use);
    if (state != cudaSuccess)
        return state;
    memcpy(pinned, copy->from + at, bytes);
    state = cudaMemcpyAsync(copy->to + at, pinned, bytes, cudaMemcpyHostToDevice, copy->stream);
    if (state == cudaSuccess)
        state = cudaEventRecord(ring.fetched[slot], copy->stream);
    atomic_store_explicit(&copy->uses[slot], use + 1, memory_order_release);
    return state;
}

static void run_task(size_t task, void *context)
{
    staged_copy *copy = context;
    (void)task; /* chunks are begun in order, whatever order tasks come in */
    size_t chunk = atomic_fetch_add_explicit(&copy->next, 1, memory_order_relaxed);
    if (atomic_load_explicit(&copy->failed, memory_order_relaxed))
        return;
    cudaError_t state = stage_chunk(copy, chunk);
    int none = cudaSuccess;
    if (state != cudaSuccess)
        atomic_compare_exchange_strong(&copy->failed, &none, (int)state);
}

static size_t chunk_for(size_t bytes)
{
    size_t chunk = LEAST_CHUNK;
    if (bytes >= LARGE_BYTES)
        return MOST_CHUNK;
    while (chunk < USUAL_CHUNK && chunk * 2 * SLOTS <= bytes)
        chunk *= 2;
    return chunk;
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
    staged_copy copy = {.to = to, .from = host, .bytes = bytes, .stream = stream};
    int threads = gr_thread_count();
    threads = threads < THREADS ? threads : THREADS;
    copy.chunk = chunk_for(bytes);
    gr_parallel_beside(threads, (bytes - 1) / copy.chunk + 1, run_task, &copy);
    return (cudaError_t)atomic_load(&copy.failed);
}

gr_status gr_copy_to_device(int device, void *to, const void *host, size_t bytes,
                            cudaStream_t stream, gr_error *error)
{
    error->status = GR_OK;
    if (bytes >= STAGE_FROM && is_pageable(host)) {
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
