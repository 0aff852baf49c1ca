/* The pool of threads, alone: tests/core/test_thread_pool.py builds and runs this. Each task of a region is
 * run once, whatever region was before, unless it is broken off. */
#include <pthread.h>
#include <stdbool.h>

static bool no_threads; /* can be made */

static int make_thread(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                       void *argument)
{
    return no_threads ? -1 : pthread_create(thread, attributes, run, argument);
}

#define pthread_create make_thread
#include "threads/pool.c" /* for the number of its regions, which come round after hours */
#undef pthread_create

#include <stdio.h>
#include <stdlib.h>
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

static int go_on(void *context)
{
    (void)context;
    return 0;
}

/* As a signal handler that adds up something itself, and the second time breaks the call off. */
static int add_up_and_break_off(void *times)
{
    gr_interrupts watch = {.check = go_on};
    gr_watch_interrupts(&watch);
    gr_parallel(1, 3, count, NULL);
    gr_watch_interrupts(NULL);
    return ++*(int *)times == 2;
}

static void count_until_asked(size_t task, void *watch)
{
    count(task, NULL);
    ((gr_interrupts *)watch)->asked_ms -= 1000; /* so that it is asked before the next task */
}

static void handled_region(void)
{
    int times = 0;
    gr_interrupts watch = {.check = add_up_and_break_off, .context = &times};
    memset(runs, 0, sizeof runs);
    gr_watch_interrupts(&watch);
    gr_parallel(1, 16, count_until_asked, &watch);
    wrong |= times != 2 || !gr_interrupted();
    gr_watch_interrupts(NULL);
    for (size_t i = 0; i < 16; i++)
        wrong |= runs[i] != (i < 2 ? 3 : i == 2 ? 2 : 0);
}

int main(void)
{
    unsigned seed = 1;
    no_threads = true;
    region_of(4, 16);
    no_threads = false;
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
    for (int i = 0; i < 20; i++)
        forked_region();
    handled_region();
    puts(wrong ? "wrong" : "right");
    return wrong;
}
