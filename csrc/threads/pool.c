/* The pool: workers that outlive their region, and seats that a region offers them.
 *
 * A region opens some seats and starts on its tasks without waiting for anyone; a worker that comes
 * in time takes a seat and helps. When all tasks have been begun the caller takes the empty seats
 * away and waits only for those who sat down, so that a slow wake-up costs a region nothing but the
 * help it would have been.
 *
 * Who may sit down and who sits is one word, the gate. A worker that has just left a region looks
 * at it for a while before it goes to sleep: until then it joins the next region with one atomic
 * step, well under a microsecond, where to be woken takes 20 to 50 in a virtual machine.
 *
 * Tasks are split into contiguous shares, one for each thread that was asked for. A worker begins
 * with the share of its own number, so that the next call of the kind finds the same part of an
 * array in the same processor's cache, and then helps with the shares of others. */
#include "pool.h"

#include "processors.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

enum {
    MOST_WORKERS = 1023,
    /* Longer than from one region to the next in a loop of calls, too short to be seen as load. */
    SPIN_NS = 200 * 1000,
    /* With more threads than processors whoever spins keeps others from running. */
    CROWDED_SPIN_NS = 10 * 1000,
    PATIENCE_NS = 5 * 1000,
    LOOKS = 16, /* between two looks at the clock */
    CACHE_LINE = 64
};

/* The gate's parts. It is only ever changed as a whole, so no moment is missed. */
#define FREE_SEAT ((uint64_t)1)
#define FREE_SEATS ((uint64_t)0xffff)
#define SEATED ((uint64_t)1 << 16)
#define ALL_SEATED ((uint64_t)0xffff << 16)
#define CALLER_SLEEPS ((uint64_t)1 << 32)

typedef struct {
    alignas(CACHE_LINE) atomic_size_t next; /* first task that nobody has begun */
    size_t first, end;
} task_share;

static struct {
    pthread_mutex_t mutex; /* guards going to sleep and `workers` */
    pthread_cond_t wake;   /* seats were opened */
    pthread_cond_t done;   /* the last seated worker got up */
    int workers;           /* threads that exist */
    bool virtual_machine;  /* whether this is one; set once */
    atomic_bool busy;      /* a region has the pool */
    atomic_int sleepers;   /* workers waiting on `wake`, or about to */
    atomic_int processor;  /* the caller's */
    atomic_int spin_ns;

    /* The region: written before seats are opened, read only by those who sit. */
    void (*run)(size_t task, void *context);
    void *context;
    int shares;

    alignas(CACHE_LINE) atomic_uint_least64_t gate;
    task_share share[MOST_WORKERS + 1];
} pool = {
    .mutex = PTHREAD_MUTEX_INITIALIZER,
    .wake = PTHREAD_COND_INITIALIZER,
    .done = PTHREAD_COND_INITIALIZER,
};

/* Whether this thread runs a task of some region, or is a worker. */
static _Thread_local bool inside;

static void pause_briefly(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb"); /* "yield" is a no-op on most cores */
#endif
}

static long long now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* --- interrupts ------------------------------------------------------------------------------ */

/* Who watches for interrupts on this thread; workers never do. */
static _Thread_local gr_interrupts *interrupts;

void gr_watch_interrupts(gr_interrupts *watch)
{
    interrupts = watch;
    if (!watch)
        return;
    watch->asked_ms = now_ns() / 1000000;
    watch->interrupted = false;
}

bool gr_interrupted(void)
{
    return interrupts && interrupts->interrupted;
}

static bool ask_for_interrupts(void)
{
    enum { EVERY_MS = 50 };
    if (!interrupts || interrupts->interrupted)
        return interrupts;
    long long ms = now_ns() / 1000000;
    if (ms - interrupts->asked_ms < EVERY_MS)
        return false;
    interrupts->asked_ms = ms;
    interrupts->interrupted = interrupts->check(interrupts->context) != 0;
    return interrupts->interrupted;
}

/* --- tasks ----------------------------------------------------------------------------------- */

static void drop_tasks(void)
{
    for (int i = 0; i < pool.shares; i++)
        atomic_store_explicit(&pool.share[i].next, pool.share[i].end, memory_order_relaxed);
}

/* How many tasks nobody has begun. */
static size_t left_in(task_share *share)
{
    size_t next = atomic_load_explicit(&share->next, memory_order_relaxed);
    return next < share->end ? share->end - next : 0;
}

/* Relaxed: the gate orders the region's data; the counter only has to hand out each task once.
 * Leaves `spare` tasks to the share's owner, if there is one at work. */
static void draw_from(task_share *share, size_t spare)
{
    size_t left;
    while ((left = left_in(share)) > spare || (left && left == share->end - share->first)) {
        size_t task = atomic_fetch_add_explicit(&share->next, 1, memory_order_relaxed);
        if (task >= share->end)
            return;
        if (ask_for_interrupts())
            drop_tasks();
        else
            pool.run(task, pool.context);
    }
}

static void draw_from_all(int number, size_t spare)
{
    int shares = pool.shares, first = number % shares;
    for (int i = 0; i < shares; i++)
        draw_from(&pool.share[(first + i) % shares], spare);
}

static bool any_left(void)
{
    for (int i = 0; i < pool.shares; i++)
        if (left_in(&pool.share[i]))
            return true;
    return false;
}

/* One's own share first, then those of others. The last task of a share is left to its owner for a
 * moment: to carry its data to another processor's cache would take as long, and the next call
 * would have to carry it back. */
static void draw_tasks(int number)
{
    draw_from(&pool.share[number % pool.shares], 0);
    draw_from_all(number, 1);
    long long end = now_ns() + PATIENCE_NS;
    while (any_left() && now_ns() < end)
        pause_briefly();
    draw_from_all(number, 0);
}

static void split_tasks(size_t tasks, int shares)
{
    size_t each = tasks / (size_t)shares, more = tasks % (size_t)shares, first = 0;
    for (int i = 0; i < shares; i++) {
        size_t end = first + each + ((size_t)i < more);
        atomic_store_explicit(&pool.share[i].next, first, memory_order_relaxed);
        pool.share[i].first = first;
        pool.share[i].end = end;
        first = end;
    }
    pool.shares = shares;
}

/* --- workers --------------------------------------------------------------------------------- */

/* Wakes two sleepers at most, since each of them wakes two more while there are seats. One after
 * the other from one thread, a wake-up each of a few microseconds, would be slow. Returns whether
 * there was anyone to wake. */
static bool wake(int wanted)
{
    int sleepers = atomic_load(&pool.sleepers);
    int calls = wanted < sleepers ? wanted : sleepers;
    if (calls <= 0)
        return false;
    /* A sleeper that has counted itself but not yet looked at the gate holds the mutex. It is given
     * back at once, or those who wake would only wait for it. */
    pthread_mutex_lock(&pool.mutex);
    pthread_mutex_unlock(&pool.mutex);
    for (int i = 0; i < calls && i < 2; i++)
        pthread_cond_signal(&pool.wake);
    return true;
}

static int free_seats(void)
{
    return (int)(atomic_load(&pool.gate) & FREE_SEATS);
}

static bool take_seat(void)
{
    uint64_t gate = atomic_load_explicit(&pool.gate, memory_order_relaxed);
    while (gate & FREE_SEATS)
        if (atomic_compare_exchange_weak_explicit(&pool.gate, &gate, gate - FREE_SEAT + SEATED,
                                                  memory_order_acquire, memory_order_relaxed))
            return true;
    return false;
}

static bool spin_for_seat(void)
{
    long long end = now_ns() + atomic_load_explicit(&pool.spin_ns, memory_order_relaxed);
    do {
        for (int i = 0; i < LOOKS; i++) {
            if (take_seat())
                return true;
            pause_briefly();
        }
    } while (now_ns() < end);
    return false;
}

/* Sleeps until seats are open. In a virtual machine the caller lets the worker go first, and the
 * worker moves away from it: see processors.h. Whoever is seated is waited for, so that comes
 * before. */
static void sleep_for_seat(void)
{
    pthread_mutex_lock(&pool.mutex);
    atomic_fetch_add(&pool.sleepers, 1);
    while (free_seats() == 0)
        pthread_cond_wait(&pool.wake, &pool.mutex);
    atomic_fetch_sub(&pool.sleepers, 1);
    pthread_mutex_unlock(&pool.mutex);
    if (pool.virtual_machine && atomic_load(&pool.processor) == gr_this_processor())
        gr_leave_this_processor();
}

static void leave_seat(void)
{
    uint64_t before = atomic_fetch_sub_explicit(&pool.gate, SEATED, memory_order_release);
    if ((before & ALL_SEATED) == SEATED && before & CALLER_SLEEPS) {
        pthread_mutex_lock(&pool.mutex);
        pthread_cond_signal(&pool.done);
        pthread_mutex_unlock(&pool.mutex);
    }
}

static void *worker(void *number)
{
    inside = true;
    for (;;) {
        bool slept = false;
        while (!(slept ? take_seat() : spin_for_seat())) {
            sleep_for_seat();
            slept = true;
        }
        if (slept)
            wake(free_seats());
        draw_tasks((int)(intptr_t)number);
        leave_seat();
    }
    return NULL;
}

/* The mutex is held across fork() so that the child finds what it guards in one piece. */
static void before_fork(void)
{
    pthread_mutex_lock(&pool.mutex);
}

static void after_fork_in_parent(void)
{
    pthread_mutex_unlock(&pool.mutex);
}

/* Only the thread that forked is left; the workers, and any region of another thread, are gone. */
static void after_fork_in_child(void)
{
    pool.wake = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    pool.done = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    pool.workers = 0;
    atomic_store(&pool.sleepers, 0);
    atomic_store(&pool.gate, 0);
    atomic_store(&pool.busy, false);
    pthread_mutex_unlock(&pool.mutex);
}

static void set_up(void)
{
    pool.virtual_machine = gr_in_virtual_machine();
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

static void add_workers(int wanted)
{
    /* Signals are for the program's own threads: a handler must not run on a thread it has never
     * heard of. Threads inherit the mask of their creator. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_mutex_lock(&pool.mutex);
    while (pool.workers < wanted) {
        pthread_t thread;
        /* The caller is number 0. */
        if (pthread_create(&thread, NULL, worker, (void *)(intptr_t)(pool.workers + 1)) != 0)
            break; /* too many threads, or no memory: do with those there are */
        pthread_detach(thread);
        pool.workers++;
    }
    pthread_mutex_unlock(&pool.mutex);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* --- regions --------------------------------------------------------------------------------- */

static void open_region(int helpers, size_t tasks, void (*run)(size_t, void *), void *context)
{
    if (pool.workers < helpers)
        add_workers(helpers);
    int seats = helpers < pool.workers ? helpers : pool.workers;
    bool crowded = pool.workers >= gr_processor_count();
    atomic_store_explicit(&pool.spin_ns, crowded ? CROWDED_SPIN_NS : SPIN_NS, memory_order_relaxed);
    atomic_store_explicit(&pool.processor, gr_this_processor(), memory_order_relaxed);
    pool.run = run;
    pool.context = context;
    split_tasks(tasks, seats + 1);
    atomic_store(&pool.gate, (uint64_t)seats * FREE_SEAT);
    int awake = pool.workers - atomic_load(&pool.sleepers);
    if (wake(seats - awake) && pool.virtual_machine)
        sched_yield();
}

static bool all_left(void)
{
    return (atomic_load_explicit(&pool.gate, memory_order_acquire) & ALL_SEATED) == 0;
}

static void close_region(void)
{
    atomic_fetch_and(&pool.gate, ~FREE_SEATS);
    long long end = 0;
    for (int i = 0; !all_left(); i++) {
        pause_briefly();
        if (i % LOOKS)
            continue;
        long long now = now_ns();
        if (!end)
            end = now + atomic_load_explicit(&pool.spin_ns, memory_order_relaxed);
        else if (now >= end)
            break;
    }
    if (all_left())
        return;
    pthread_mutex_lock(&pool.mutex);
    atomic_fetch_or(&pool.gate, CALLER_SLEEPS);
    while (!all_left())
        pthread_cond_wait(&pool.done, &pool.mutex);
    pthread_mutex_unlock(&pool.mutex);
}

int gr_thread_count(void)
{
    const char *text = getenv("GPUREDUCE_THREADS");
    if (text && *text) {
        char *end;
        errno = 0;
        long count = strtol(text, &end, 10);
        if (errno == 0 && *end == '\0' && count > 0 && count <= INT_MAX)
            return (int)count;
    }
    return gr_processor_count();
}

static int helper_count(int threads, size_t tasks)
{
    if (tasks < 2)
        return 0;
    if (threads <= 0)
        threads = gr_thread_count();
    if (threads > MOST_WORKERS)
        threads = MOST_WORKERS + 1;
    return (size_t)threads < tasks ? threads - 1 : (int)(tasks - 1);
}

static bool get_pool(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, set_up);
    return !atomic_exchange_explicit(&pool.busy, true, memory_order_acquire);
}

void gr_parallel(int threads, size_t tasks, void (*run)(size_t task, void *context), void *context)
{
    bool nested = inside;
    int helpers = nested ? 0 : helper_count(threads, tasks);
    bool pooled = helpers > 0 && get_pool();
    inside = true;
    if (pooled) {
        open_region(helpers, tasks, run, context);
        draw_tasks(0);
        close_region();
        atomic_store_explicit(&pool.busy, false, memory_order_release);
    } else {
        for (size_t task = 0; task < tasks && !ask_for_interrupts(); task++)
            run(task, context);
    }
    inside = nested;
}
