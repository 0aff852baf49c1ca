/* Staging against a runtime that is late: tests/native/test_late_runtime.py builds and runs this.
 *
 *   staged_copies copies CALLERS DEVICES ROUNDS   copies that come together arrive whole
 *   staged_copies interrupted MIB                 a copy that is broken off at once returns
 *   staged_copies failing CALLS                   each of so many calls fails once; the next copy
 *                                                 works
 *   staged_copies forked                          a child made in the middle of a copy makes its
 * own
 */
#include "transfer/staging.h"
#include "late_runtime.h"
#include "threads/interrupts.h"
#include "threads/pool.h"
#include "threads/processors.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { KIB = 1 << 10, MIB = 1 << 20, MOST = 50 * MIB };
static unsigned char *source;
static int devices, rounds, wrong;

gr_status gr_fail_cuda(gr_error *error, cudaError_t code, const char *call, const char *file,
                       int line)
{
    (void)code, (void)call, (void)file, (void)line;
    return error->status = GR_CUDA_ERROR;
}

static cudaStream_t stream_on(int device)
{
    cudaStream_t stream;
    cudaSetDevice(device);
    cudaStreamCreateWithFlags(&stream, 0);
    return stream;
}

/* Around pieces, orders, the ring and twice the ring. */
static size_t some_size(unsigned *seed)
{
    static const size_t marks[] = {1,        32 * KIB, 128 * KIB, MIB,     4 * MIB,
                                   16 * MIB, 20 * MIB, 32 * MIB,  48 * MIB};
    size_t size = marks[(size_t)rand_r(seed) % (sizeof marks / sizeof *marks)];
    return size + (size_t)(rand_r(seed) % 3) * (32 * KIB - 1) -
           (size_t)(rand_r(seed) % 2 && size > 1);
}

static void *copy_again_and_again(void *number)
{
    unsigned seed = *(unsigned *)number;
    int device = (int)seed % devices;
    cudaStream_t stream = stream_on(device);
    unsigned char *to = malloc(MOST);
    for (int round = 0; round < rounds; round++) {
        size_t bytes = some_size(&seed), at = (size_t)rand_r(&seed) % KIB;
        gr_error error;
        memset(to, 0, bytes);
        cudaSetDevice(device);
        gr_copy_to_device(device, to, source + at, bytes, stream, &error);
        cudaStreamSynchronize(stream);
        if (error.status != GR_OK || memcmp(to, source + at, bytes) != 0)
            __atomic_store_n(&wrong, 1, __ATOMIC_RELAXED);
    }
    free(to);
    return NULL;
}

static void copies(int callers)
{
    pthread_t threads[8];
    unsigned numbers[8];
    for (int i = 0; i < callers; i++) {
        numbers[i] = (unsigned)i;
        pthread_create(&threads[i], NULL, copy_again_and_again, &numbers[i]);
    }
    for (int i = 0; i < callers; i++)
        pthread_join(threads[i], NULL);
    gr_release_staging();
}

static bool arrives(unsigned char *to, size_t bytes, cudaStream_t stream)
{
    gr_error error;
    memset(to, 0, bytes);
    gr_copy_to_device(0, to, source, bytes, stream, &error);
    cudaStreamSynchronize(stream);
    return error.status == GR_OK && memcmp(to, source, bytes) == 0;
}

static int break_off(void *context)
{
    (void)context;
    usleep(2000); /* as long as others need to take the tasks that there are */
    return 1;
}

static void interrupted(size_t bytes)
{
    gr_error error;
    cudaStream_t stream = stream_on(0);
    unsigned char *to = malloc(bytes);
    gr_interrupts watch = {.check = break_off};
    gr_watch_interrupts(&watch);
    watch.asked_ms -= 1000; /* so that it is asked before the first task */
    gr_copy_to_device(0, to, source, bytes, stream, &error);
    if (!gr_interrupted()) {
        /* Others may have taken all tasks before the caller has come to its first. */
        cudaStreamSynchronize(stream);
        wrong = gr_thread_count() == 1 || memcmp(to, source, bytes) != 0;
    }
    gr_watch_interrupts(NULL);
    wrong |= !arrives(to, bytes, stream);
}

static void failing(long calls)
{
    gr_error error;
    const size_t bytes = 17 * MIB;
    cudaStream_t stream = stream_on(0);
    unsigned char *to = malloc(bytes);
    for (long call = 0; call < calls; call++) {
        memset(to, 0, bytes);
        late_fail_at(call);
        gr_copy_to_device(0, to, source, bytes, stream, &error);
        late_fail_at(-1);
        cudaStreamSynchronize(stream);
        wrong |= error.status == GR_OK && memcmp(to, source, bytes) != 0;
        wrong |= !arrives(to, bytes, stream);
        gr_release_staging(); /* so that opening the ring is among what fails */
    }
}

static const size_t GOES_ROUND = 40 * MIB; /* it fills the ring and waits */

static void *copy_once(void *context)
{
    (void)context;
    return arrives(malloc(GOES_ROUND), GOES_ROUND, stream_on(0)) ? source : NULL;
}

static int in_child(void)
{
    alarm(20); /* ends it if it hangs */
    for (int round = 0; round < 2; round++) {
        if (!copy_once(NULL))
            return 1;
        gr_release_staging();
    }
    return 0;
}

static void forked(void)
{
    int status;
    void *arrived;
    pthread_t thread;
    late_hold(true);
    pthread_create(&thread, NULL, copy_once, NULL);
    late_await(4); /* two orders and their events */
    pid_t child = fork();
    if (child == 0)
        _exit(in_child());
    wrong = waitpid(child, &status, 0) != child || status != 0;
    late_hold(false);
    pthread_join(thread, &arrived);
    wrong |= !arrived;
}

int main(int count, char **arguments)
{
    source = malloc(MOST + MIB);
    for (size_t i = 0; i < MOST + MIB; i++)
        source[i] = (unsigned char)(i * 2654435761u >> 24);
    if (count == 5 && !strcmp(arguments[1], "copies")) {
        devices = atoi(arguments[3]);
        rounds = atoi(arguments[4]);
        copies(atoi(arguments[2]));
    } else if (count == 3 && !strcmp(arguments[1], "interrupted")) {
        interrupted((size_t)atoi(arguments[2]) * MIB);
    } else if (count == 3 && !strcmp(arguments[1], "failing")) {
        failing(atoi(arguments[2]));
    } else if (count == 2 && !strcmp(arguments[1], "forked")) {
        forked();
    } else {
        return 2;
    }
    puts(wrong ? "wrong" : "right");
    return wrong;
}
