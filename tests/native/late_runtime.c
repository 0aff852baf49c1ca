/* The functions of CUDA's runtime that staging and the wait for results call, for machines without
 * a card. A thread does the work of a stream, sometimes late. So a test fails if memory is used
 * again or freed too early. */
#include "late_runtime.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct work {
    struct work *next;
    void *to; /* NULL: an event */
    const char *from;
    size_t bytes;
    cudaEvent_t event;
} work;

struct CUstream_st {
    work *first, **last;
    int device;
};

struct CUevent_st {
    unsigned recorded, come;
    int device;
};

enum { STREAMS = 16, BLOCKS = 16 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all that follows */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct CUstream_st *streams[STREAMS];
static int stream_count;
static struct {
    char *memory;
    size_t bytes;
} pinned[BLOCKS];
static long calls, fails_at = -1;
static bool is_held;
static _Thread_local int device;

static void take(void)
{
    pthread_mutex_lock(&lock);
}

/* Takes the lock, unless this call is the one to fail. */
static bool begin(void)
{
    take();
    if (calls++ != fails_at)
        return true;
    pthread_mutex_unlock(&lock);
    return false;
}

static cudaError_t give_back(void)
{
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

void late_fail_at(long call)
{
    take();
    fails_at = call < 0 ? -1 : calls + call;
    give_back();
}

void late_hold(bool held)
{
    take();
    is_held = held;
    give_back();
}

static int most_on_a_stream(void)
{
    int most = 0;
    for (int i = 0; i < stream_count; i++) {
        int works = 0;
        for (work *one = streams[i]->first; one; one = one->next)
            works++;
        most = works > most ? works : most;
    }
    return most;
}

void late_await(int works)
{
    take();
    while (most_on_a_stream() < works)
        pthread_cond_wait(&changed, &lock);
    give_back();
}

static void give_back_in_parent(void)
{
    give_back();
}

/* The threads that carry out what is on streams are the parent's. */
static void start_anew(void)
{
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    changed = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    stream_count = 0;
    is_held = false;
}

__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(take, give_back_in_parent, start_anew);
}

static void expect(bool good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "%s\n", what);
    abort();
}

static void *carry_out(void *argument)
{
    cudaStream_t stream = argument;
    unsigned seed = 7;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (!stream->first || is_held)
            pthread_cond_wait(&changed, &lock);
        work *one = stream->first;
        pthread_mutex_unlock(&lock);
        if (rand_r(&seed) % 4 == 0)
            usleep((unsigned)rand_r(&seed) % 300);
        if (one->to)
            memcpy(one->to, one->from, one->bytes);
        pthread_mutex_lock(&lock);
        if (!one->to)
            one->event->come++;
        stream->first = one->next;
        if (!stream->first)
            stream->last = &stream->first;
        pthread_cond_broadcast(&changed);
        free(one);
    }
    return NULL;
}

static void put(cudaStream_t stream, work given)
{
    work *one = malloc(sizeof *one);
    *one = given;
    *stream->last = one;
    stream->last = &one->next;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    pthread_t thread;
    (void)flags;
    take();
    *stream = calloc(1, sizeof **stream);
    (*stream)->last = &(*stream)->first;
    (*stream)->device = device;
    streams[stream_count++] = *stream;
    pthread_create(&thread, NULL, carry_out, *stream);
    return give_back();
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    take();
    while (stream->first)
        pthread_cond_wait(&changed, &lock);
    return give_back();
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    take();
    bool done = !stream->first;
    give_back();
    return done ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    (void)kind;
    if (!begin())
        return cudaErrorInvalidValue;
    expect(stream->device == device, "a copy on another device's stream");
    put(stream, (work){.to = to, .from = from, .bytes = bytes});
    return give_back();
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    (void)flags;
    if (!begin())
        return cudaErrorMemoryAllocation;
    *event = calloc(1, sizeof **event);
    (*event)->device = device;
    return give_back();
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    take();
    if (event->come == event->recorded)
        free(event);
    return give_back();
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    if (!begin())
        return cudaErrorInvalidValue;
    expect(event->device == stream->device, "an event on another device's stream");
    event->recorded++;
    put(stream, (work){.event = event});
    return give_back();
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    if (!begin())
        return cudaErrorLaunchFailure;
    bool come = event->come == event->recorded;
    give_back();
    return come ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    if (!begin())
        return cudaErrorLaunchFailure;
    while (event->come != event->recorded)
        pthread_cond_wait(&changed, &lock);
    return give_back();
}

cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned flags)
{
    enum { PAGE = 4096 };
    int i = 0;
    (void)flags;
    if (!begin())
        return cudaErrorMemoryAllocation;
    while (pinned[i].memory)
        i++;
    *memory = pinned[i].memory = aligned_alloc(PAGE, (bytes + PAGE - 1) / PAGE * PAGE);
    pinned[i].bytes = bytes;
    return give_back();
}

static int block_of(const void *address)
{
    const char *at = address;
    for (int i = 0; i < BLOCKS; i++)
        if (pinned[i].memory && at >= pinned[i].memory && at < pinned[i].memory + pinned[i].bytes)
            return i;
    return -1;
}

cudaError_t cudaFreeHost(void *memory)
{
    if (!memory)
        return cudaSuccess;
    take();
    int block = block_of(memory);
    expect(block >= 0 && pinned[block].memory == memory, "freed what is not there");
    for (int i = 0; i < stream_count; i++)
        for (work *one = streams[i]->first; one; one = one->next)
            expect(!one->to || block_of(one->from) != block, "freed while it is copied from");
    pinned[block].memory = NULL;
    free(memory);
    return give_back();
}

cudaError_t cudaSetDevice(int number)
{
    device = number;
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *pointer)
{
    memset(attributes, 0, sizeof *attributes);
    take();
    if (block_of(pointer) >= 0) {
        attributes->type = cudaMemoryTypeHost;
        attributes->devicePointer = (void *)pointer;
    }
    return give_back();
}
