/* The pool of threads, alone: tests/test_threads.py builds and runs this. Each task of a region is
 * run once, whatever region was before. */
#include "threads/pool.c" /* for the number of its regions, which come round after hours */

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 1 << 16 };
static atomic_uchar runs[MOST];
static int wrong;

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
    puts(wrong ? "wrong" : "right");
    return wrong;
}
