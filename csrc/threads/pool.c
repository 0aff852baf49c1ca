/* The pool: workers that outlive their region, and seats that a region offers them.
 *
 * A region opens some seats, wakes that many sleepers and starts on its tasks without waiting for
 * anyone. A worker that wakes in time takes a seat and draws tasks from the same counter. When the
 * counter has run out the caller takes the empty seats away and waits only for those who sat down,
 * so that a slow wake-up costs a region nothing but the help it would have been. */
#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* sched_getaffinity, sched_getcpu */
#endif
#include "pool.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#ifdef __x86_64__
#include <cpuid.h>
#endif

enum {
    MOST_WORKERS = 1023,
    /* Looks before going to sleep, 10 to 50 microseconds: longer than from one region to the next
     * in a loop of calls, too short to be seen as load. */
    SPINS = 1000,
    CACHE_LINE = 64
};

static struct {
    pthread_mutex_t mutex; /* guards all but `busy` and `next` */
    pthread_cond_t wake;   /* seats were opened */
    pthread_cond_t done;   /* the last seated worker got up */
    int workers;           /* threads that exist */
    int sleepers;          /* of those, the ones waiting on `wake` */
    /* Written under the mutex, but also watched without it by those who spin. */
    atomic_int seats;  /* still free */
    atomic_int seated; /* workers inside the region */

    int processor;        /* the caller's */
    bool virtual_machine; /* whether this is one; set once */
    size_t tasks;
    void (*run)(size_t task, void *context);
    void *context;

    atomic_bool busy;                       /* a region has the pool */
    alignas(CACHE_LINE) atomic_size_t next; /* first task not handed out */
    char padding[CACHE_LINE - sizeof(atomic_size_t)];
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

/* Spins until the count is zero, or no longer zero; gives up after a while. */
static void watch(atomic_int *count, bool until_zero)
{
    for (int i = 0; i < SPINS; i++) {
        if ((atomic_load_explicit(count, memory_order_relaxed) == 0) == until_zero)
            return;
        pause_briefly();
    }
}

/* Who watches for interrupts on this thread; workers never do. */
static _Thread_local gr_interrupts *interrupts;

void gr_watch_interrupts(gr_interrupts *watch)
{
    interrupts = watch;
    if (!watch)
        return;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    watch->asked_ms = now.tv_sec * 1000LL + now.tv_nsec / 1000000;
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
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    long long ms = now.tv_sec * 1000LL + now.tv_nsec / 1000000;
    if (ms - interrupts->asked_ms < EVERY_MS)
        return false;
    interrupts->asked_ms = ms;
    interrupts->interrupted = interrupts->check(interrupts->context) != 0;
    return interrupts->interrupted;
}

static void draw_tasks(void)
{
    /* Relaxed: the mutex orders the region's data; the counter only has to hand out each task
     * once. */
    size_t task;
    while ((task = atomic_fetch_add_explicit(&pool.next, 1, memory_order_relaxed)) < pool.tasks) {
        if (ask_for_interrupts())
            atomic_store_explicit(&pool.next, pool.tasks, memory_order_relaxed);
        else
            pool.run(task, pool.context);
    }
}

/* How many sleepers to wake: two at most, since each of them wakes two more while there are seats.
 * One after the other from one thread, a wake-up each of a few microseconds, would be slow. */
static int calls_due(void)
{
    int calls = pool.seats < pool.sleepers ? pool.seats : pool.sleepers;
    return calls < 2 ? calls : 2;
}

/* To be called without the mutex, or the sleepers would wake only to wait for it. */
static void wake(int calls)
{
    for (int i = 0; i < calls; i++)
        pthread_cond_signal(&pool.wake);
}

/* A virtual machine's kernel takes a halted processor for one that the host has lent to others, and
 * wakes a thread next to its waker rather than there. Worker and caller then take turns on one
 * processor until the kernel balances its load, many milliseconds later. So in a virtual machine
 * the caller lets the worker go first, and the worker moves. */
#if defined(__linux__) && defined(__x86_64__)
static bool in_virtual_machine(void)
{
    enum { HYPERVISOR = 31 };
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c >> HYPERVISOR & 1);
}

static int this_processor(void)
{
    return sched_getcpu();
}

static void leave_this_processor(void)
{
    cpu_set_t allowed, others;
    int processor = sched_getcpu();
    if (processor < 0 || sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return;
    others = allowed;
    CPU_CLR((size_t)processor, &others);
    if (CPU_COUNT(&others) == 0)
        return;
    sched_setaffinity(0, sizeof others, &others);   /* moves it */
    sched_setaffinity(0, sizeof allowed, &allowed); /* which does not move it back */
}
#else
static bool in_virtual_machine(void)
{
    return false;
}

static int this_processor(void)
{
    return 0;
}

static void leave_this_processor(void) {}
#endif

/* Sleeps until seats are open, under the mutex. Whoever is seated is waited for, so the move to
 * another processor comes before. */
static void await_seat(void)
{
    while (pool.seats == 0) {
        pool.sleepers++;
        pthread_cond_wait(&pool.wake, &pool.mutex);
        pool.sleepers--;
        if (pool.seats > 0 && pool.virtual_machine && pool.processor == this_processor()) {
            pthread_mutex_unlock(&pool.mutex);
            leave_this_processor();
            pthread_mutex_lock(&pool.mutex);
        }
    }
}

static void take_seat(void)
{
    watch(&pool.seats, false);
    pthread_mutex_lock(&pool.mutex);
    await_seat();
    pool.seats--;
    pool.seated++;
    int calls = calls_due();
    pthread_mutex_unlock(&pool.mutex);
    wake(calls);
}

static void leave_seat(void)
{
    pthread_mutex_lock(&pool.mutex);
    if (--pool.seated == 0)
        pthread_cond_signal(&pool.done);
    pthread_mutex_unlock(&pool.mutex);
}

static void *worker(void *unused)
{
    (void)unused;
    inside = true;
    for (;;) {
        take_seat();
        draw_tasks();
        leave_seat();
    }
    return NULL;
}

/* The mutex is held across fork() so that the child finds it, and what it guards, in one piece. */
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
    pool.workers = pool.sleepers = 0;
    pool.seats = pool.seated = 0;
    pool.busy = false;
    pthread_mutex_unlock(&pool.mutex);
}

static void set_up(void)
{
    pool.virtual_machine = in_virtual_machine();
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

static void add_workers(int wanted)
{
    /* Signals are for the program's own threads: a handler must not run on a thread it has never
     * heard of. Threads inherit the mask of their creator. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (pool.workers < wanted) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, worker, NULL) != 0)
            break; /* too many threads, or no memory: do with those there are */
        pthread_detach(thread);
        pool.workers++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void open_region(int helpers, size_t tasks, void (*run)(size_t, void *), void *context)
{
    pthread_mutex_lock(&pool.mutex);
    if (pool.workers < helpers)
        add_workers(helpers);
    pool.processor = this_processor();
    pool.tasks = tasks;
    pool.run = run;
    pool.context = context;
    atomic_store_explicit(&pool.next, 0, memory_order_relaxed);
    pool.seats = helpers < pool.workers ? helpers : pool.workers;
    int calls = calls_due();
    pthread_mutex_unlock(&pool.mutex);
    wake(calls);
    if (calls > 0 && pool.virtual_machine)
        sched_yield();
}

static void close_region(void)
{
    pthread_mutex_lock(&pool.mutex);
    pool.seats = 0;
    pthread_mutex_unlock(&pool.mutex);

    watch(&pool.seated, true);
    pthread_mutex_lock(&pool.mutex);
    while (pool.seated > 0)
        pthread_cond_wait(&pool.done, &pool.mutex);
    pthread_mutex_unlock(&pool.mutex);
}

static int processor_count(void)
{
#ifdef __linux__
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        return CPU_COUNT(&set);
#endif
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 && online <= INT_MAX ? (int)online : 1;
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
    return processor_count();
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
        draw_tasks();
        close_region();
        atomic_store_explicit(&pool.busy, false, memory_order_release);
    } else {
        for (size_t task = 0; task < tasks && !ask_for_interrupts(); task++)
            run(task, context);
    }
    inside = nested;
}
