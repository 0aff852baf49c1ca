/* The events of timed sums, on a runtime that counts them and can fail:
 * tests/native/test_late_runtime.py builds and runs this. A recorded event comes to its end when
 * somebody waits for it. */
#include "engine/times.c"

#include <stdbool.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

struct CUevent_st {
    float ms;
    bool ended;
};

static int made, calls, fails_at;
static float now;

static cudaError_t next_call(void)
{
    return ++calls == fails_at ? cudaErrorLaunchFailure : cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    if (next_call() != cudaSuccess)
        return cudaErrorMemoryAllocation;
    *event = calloc(1, sizeof **event);
    made++;
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    made--;
    free(event);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    (void)stream;
    event->ms = now++;
    event->ended = false;
    return next_call();
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    event->ended = true;
    return next_call();
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t first, cudaEvent_t second)
{
    if (!second->ended)
        return cudaErrorInvalidResourceHandle;
    *ms = second->ms - first->ms;
    return next_call();
}

gr_status gr_fail_cuda(gr_error *error, cudaError_t code, const char *call, const char *file,
                       int line)
{
    (void)call, (void)file, (void)line;
    return error->status = code == cudaErrorMemoryAllocation ? GR_NO_MEMORY : GR_CUDA_ERROR;
}

gr_status gr_fail(gr_error *error, gr_status status, const char *format, ...)
{
    (void)format;
    return error->status = status;
}

static int wrong;

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            printf("line %d: %s\n", __LINE__, #what);                                              \
            wrong = 1;                                                                             \
        }                                                                                          \
    } while (0)

/* Records pieces, each with the moments of `moments`. Returns the first error. */
static gr_status record(gr_times *times, int pieces, unsigned moments)
{
    gr_error error = {.status = GR_OK};
    for (int piece = 0; piece < pieces && error.status == GR_OK; piece++) {
        gr_begin_piece(times, &error);
        for (unsigned at = 0; at < GR_MOMENTS && error.status == GR_OK; at++)
            if (moments >> at & 1)
                gr_record_time(times, at, NULL, &error);
    }
    return error.status;
}

enum { KERNEL = 1 << GR_AT_COPIED | 1 << GR_AT_SUMMED, ALL = (1 << GR_MOMENTS) - 1 };

static void test_sums(void)
{
    gr_error error;
    gr_milliseconds ms;
    gr_times *times = gr_take_times(0);
    CHECK(gr_read_times(times, &ms, &error) == GR_OK && ms.kernel == 0 && calls == 0);
    calls = 0;
    CHECK(record(times, 1, KERNEL) == GR_OK && calls == 4); /* two made, two recorded: no wait */
    CHECK(gr_read_times(times, &ms, &error) == GR_OK && ms.kernel == 1 && ms.d2h == 0);
    CHECK(gr_read_times(times, &ms, &error) == GR_OK && ms.kernel == 1 && ms.h2d == 0);
    CHECK(record(times, 2, ALL) == GR_OK);
    CHECK(gr_read_times(times, &ms, &error) == GR_OK);
    CHECK(ms.kernel == 3 && ms.h2d == 2 && ms.d2h == 2);
    gr_drop_times(times, 1);
    gr_times *again = gr_take_times(0), *other = gr_take_times(1);
    CHECK(again == times && other != times && made == 4);
    CHECK(gr_read_times(again, &ms, &error) == GR_OK && ms.kernel == 0);
    gr_drop_times(again, 0); /* after an error */
    gr_drop_times(other, 1);
    CHECK(made == 0);
    gr_release_times();
    gr_drop_times(NULL, 1);
    CHECK(record(NULL, 2, ALL) == GR_OK);
}

static void test_bounds(void)
{
    enum { COUNT = 3000 };
    static gr_times *taken[COUNT];
    for (int i = 0; i < COUNT; i++) {
        taken[i] = gr_take_times(i % 3);
        record(taken[i], 1, KERNEL);
        CHECK(gr_many_times_in_use() == (i >= MANY_IN_USE));
    }
    for (int i = 0; i < COUNT; i++)
        gr_drop_times(taken[i], 1);
    CHECK(made == 2 * MOST_IDLE && in_use == 0 && !gr_many_times_in_use());
    gr_times *times = gr_take_times(0);
    gr_release_times();
    CHECK(made <= 2 && record(times, 1, KERNEL) == GR_OK);
    gr_drop_times(times, 1);
    gr_release_times();
    CHECK(made == 0);
}

static void test_errors(void)
{
    gr_error error;
    gr_milliseconds ms;
    gr_status status = GR_CUDA_ERROR;
    for (int at = 1; status != GR_OK; at++) {
        gr_times *times = gr_take_times(0);
        calls = 0;
        fails_at = at;
        status = record(times, 2, ALL);
        if (status == GR_OK)
            status = gr_read_times(times, &ms, &error);
        CHECK(status != GR_OK || at > 20);
        fails_at = 0;
        gr_drop_times(times, status == GR_OK);
        CHECK(made == (status == GR_OK ? GR_MOMENTS : 0));
    }
    gr_release_times();
}

static void test_children(void)
{
    gr_error error;
    gr_milliseconds ms;
    gr_times *times = gr_take_times(0), *idle_one = gr_take_times(0);
    record(times, 1, KERNEL);
    record(idle_one, 1, KERNEL);
    gr_drop_times(idle_one, 1);
    gr_times *half_way = gr_take_times(1);
    record(half_way, 1, 1 << GR_AT_COPIED);
    pid_t child = fork();
    if (!child) {
        calls = 0;
        CHECK(gr_read_times(times, &ms, &error) == GR_CUDA_ERROR);
        gr_drop_times(times, 1);
        CHECK(calls == 0 && made == 5); /* the parent's events are left alone */
        gr_record_time(half_way, GR_AT_SUMMED, NULL, &error); /* goes on without its beginning */
        gr_record_time(half_way, GR_AT_RETURNED, NULL, &error);
        CHECK(made == 7 && in_use == 1);
        CHECK(gr_read_times(half_way, &ms, &error) == GR_OK && ms.kernel == 0 && ms.d2h == 1);
        gr_drop_times(half_way, 0);
        CHECK(made == 5 && in_use == 0);
        gr_times *own = gr_take_times(0);
        CHECK(record(own, 1, KERNEL) == GR_OK && gr_read_times(own, &ms, &error) == GR_OK);
        CHECK(ms.kernel == 1 && made == 7);
        gr_drop_times(own, 1);
        gr_release_times();
        CHECK(made == 5 && in_use == 0);
        fflush(stdout);
        _exit(wrong);
    }
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(gr_read_times(times, &ms, &error) == GR_OK && ms.kernel == 1);
    gr_drop_times(times, 1);
    gr_drop_times(half_way, 1);
    gr_release_times();
}

int main(void)
{
    alarm(60); /* ends it if it hangs */
    test_sums();
    test_bounds();
    test_errors();
    test_children();
    CHECK(made == 0 && in_use == 0);
    puts(wrong ? "wrong" : "right");
    return wrong;
}
