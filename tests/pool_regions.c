/* The pool of threads, alone: tests/test_threads.py builds and runs this. Each task of a region is
 * run once, whatever region was before. */
#include "threads/pool.c" /* for the number of its regions, which come round after hours */

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 1 << 16 };
static atomic_uchar runs[MOST];
static atomic_int wrong;

static void count(size_t task, void *context)
{
    (void)context;
    atomic_fetch_add_explicit(&runs[task], 1, memory_order_relaxed);
}

static void region_of(int threads, size_t tasks)
{
    memset(runs, 0, sizeof runs);
    gr_parallel(threads, tasks, count, NULL);
    for (size_t i = 0; i < MOST; i++)
        wrong |= runs[i] != (i < tasks);
}

/* Tasks that come to the pool from one of its own. */
static void nest(size_t task, void *context)
{
    gr_parallel(4, 3, context, NULL);
    count(3 + task, NULL);
}

static void count_slowly(size_t task, void *context)
{
    usleep(300);
    count(task, context);
}

/* Who has opened a region is helped, unless nobody else may come to it. */
static void ask_alone(size_t task, void *wanted)
{
    (void)task;
    wrong |= gr_is_helped() != *(bool *)wanted;
}

static void ask(size_t task, void *caller)
{
    static bool no;
    bool is_caller = pthread_equal(pthread_self(), *(pthread_t *)caller);
    wrong |= gr_is_helped() != is_caller;
    gr_parallel(4, 3, ask_alone, &no);
    gr_parallel_beside(4, 3, ask_alone, &no);
    wrong |= gr_is_helped() != is_caller;
    count(task, NULL);
}

static void helped_regions(void)
{
    pthread_t caller = pthread_self();
    bool no = false;
    for (int i = 0; i < 100; i++)
        gr_parallel(4, 16, ask, &caller);
    gr_parallel(4, 1, ask_alone, &no);
    gr_parallel(1, 16, ask_alone, &no);
    wrong |= gr_is_helped();
}

static pid_t child;

static int fork_once(void *context)
{
    (void)context;
    if (child < 0)
        child = fork();
    return 0;
}

/* The child goes on with the region that its parent was in, whose other threads it has not. */
static void forked_region(void)
{
    int status;
    gr_interrupts watch = {.check = fork_once};
    child = -1;
    memset(runs, 0, sizeof runs);
    gr_watch_interrupts(&watch);
    watch.asked_ms -= 1000; /* so that it is asked before the first task */
    gr_parallel(4, 32, count_slowly, NULL);
    gr_watch_interrupts(NULL);
    for (size_t i = 0; i < 32; i++)
        wrong |= runs[i] != 1;
    if (child == 0) {
        region_of(4, 100);
        _exit(wrong);
    }
    if (child > 0 && (waitpid(child, &status, 0) != child || status != 0))
        wrong = 1;
}

int main(void)
{
    unsigned seed = 1;
    /* The eight shares of these are begun in regions 1 and 2, and then two alone until the numbers
     * come round to 1 and 2 again. */
    region_of(8, 64);
    region_of(8, 5);
    pools[FOR_SUMS].region.number = UINT32_MAX - 3;
    for (int i = 0; i < 3; i++)
        region_of(2, 64);
    for (int i = 0; i < 4; i++)
        region_of(8, 64);
    if (pools[FOR_SUMS].region.number != 4)
        wrong = 1;
    for (int i = 0; i < 2000; i++) {
        region_of(1 + rand_r(&seed) % 20, (size_t)rand_r(&seed) % (i % 10 ? 100 : MOST));
        if (i % 50 == 0)
            usleep(rand_r(&seed) % 500); /* some workers fall asleep */
    }
    memset(runs, 0, sizeof runs);
    gr_parallel(4, 10, nest, count);
    for (size_t i = 0; i < 16; i++)
        wrong |= runs[i] != (i < 3 ? 10 : i < 13);
    helped_regions();
    for (int i = 0; i < 20; i++)
        forked_region();
    puts(wrong ? "wrong" : "right");
    return wrong;
}
