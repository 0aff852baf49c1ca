/* A pool: workers that outlive their region, and seats that a region offers them. There are two,
 * one for sums and one for copies to a device, which may run side by side.
 *
 * A region offers its first so many workers a seat each and starts on its tasks without waiting for
 * anyone; a worker that comes in time helps. When all tasks have been begun the caller closes the
 * gate and waits only for those who sat down, so that a slow wake-up costs a region nothing but the
 * help it would have been.
 *
 * A worker that has just left a region looks at the gate for a while before it goes to sleep: until
 * then it joins the next region in a fraction of a microsecond, where to be woken takes 20 to 50 in
 * a virtual machine. Nobody but the caller writes to the gate, and no two workers to the same line
 * of the cache, so that many may come and go at once. To sit down a worker says that it sits and
 * then looks whether the gate is still open; to close, the caller closes the gate and then looks
 * who sits. One of them sees the other.
 *
 * Tasks are split into contiguous shares, one for each thread that was asked for. A worker begins
 * with the share of its own number, so that the next call of the kind finds the same part of an
 * array in the same processor's cache, and then helps with the shares of others. */
#include "pool.h"

#include "interrupts.h"
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
    /* What was staged for a device last is under way for longer after the region; see staging.c. */
    SPIN_BESIDE_NS = 500 * 1000,
    /* With more threads than processors whoever spins keeps others from running. */
    CROWDED_SPIN_NS = 10 * 1000,
    PATIENCE_NS = 5 * 1000,
    LOOKS = 16, /* between two looks at the clock */
    CACHE_LINE = 64
};

/* The gate: how many workers it is open to, below the number of the region. */
#define OPEN_TO ((uint64_t)0xffff)
#define NEXT_REGION ((uint64_t)1 << 16)

typedef struct {
    alignas(CACHE_LINE) atomic_size_t next; /* first task that nobody has begun */
    size_t first, end;
} task_share;

typedef struct gr_pool gr_pool;

typedef struct {
    alignas(CACHE_LINE) atomic_bool seated; /* may look at the region */
    alignas(CACHE_LINE) atomic_bool asleep; /* waits on `wake`, or is about to */
    pthread_cond_t wake;
    gr_pool *pool;
} worker_seat;

struct gr_pool {
    pthread_mutex_t mutex; /* guards going to sleep and `workers` */
    pthread_cond_t done;   /* somebody got up while the caller slept */
    int workers;           /* threads that exist */
    bool virtual_machine;  /* whether this is one; set once */
    atomic_bool busy;      /* a region has the pool */
    atomic_int processor;  /* the caller's */
    atomic_int spin_ns;

    /* The region: written before the gate is opened, read only by those who sit. */
    alignas(CACHE_LINE) void (*run)(size_t task, void *context);
    void *context;
    int shares;

    alignas(CACHE_LINE) atomic_uint_least64_t gate;
    atomic_bool caller_sleeps;

    task_share share[MOST_WORKERS + 1];
    worker_seat seat[MOST_WORKERS + 1]; /* by number; the caller, who is 0, has none */
};

enum { FOR_SUMS, BESIDE, POOLS };

static gr_pool pools[POOLS] = {
    {.mutex = PTHREAD_MUTEX_INITIALIZER, .done = PTHREAD_COND_INITIALIZER},
    {.mutex = PTHREAD_MUTEX_INITIALIZER, .done = PTHREAD_COND_INITIALIZER},
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

/* --- tasks ----------------------------------------------------------------------------------- */

static void drop_tasks(gr_pool *pool)
{
    for (int i = 0; i < pool->shares; i++)
        atomic_store_explicit(&pool->share[i].next, pool->share[i].end, memory_order_relaxed);
}

/* How many tasks nobody has begun. */
static size_t left_in(task_share *share)
{
    size_t next = atomic_load_explicit(&share->next, memory_order_relaxed);
    return next < share->end ? share->end - next : 0;
}

/* Relaxed: the gate orders the region's data; the counter only has to hand out each task once.
 * Leaves `spare` tasks to the share's owner, if there is one at work. */
static void draw_from(gr_pool *pool, task_share *share, size_t spare)
{
    size_t left;
    while ((left = left_in(share)) > spare || (left && left == share->end - share->first)) {
        size_t task = atomic_fetch_add_explicit(&share->next, 1, memory_order_relaxed);
        if (task >= share->end)
            return;
        if (gr_ask_for_interrupts())
            drop_tasks(pool);
        else
            pool->run(task, pool->context);
    }
}

/* Whether something is left even so. */
static bool help_others(gr_pool *pool, int number, size_t spare)
{
    int shares = pool->shares;
    bool left = false;
    for (int i = 1; i < shares; i++) {
        task_share *share = &pool->share[(number + i) % shares];
        draw_from(pool, share, spare);
        left = left || left_in(share);
    }
    return left;
}

/* One's own share first, then those of others. The last task of a share is left to its owner for a
 * moment: to carry its data to another processor's cache would take as long, and the next call
 * would have to carry it back. */
static void draw_tasks(gr_pool *pool, int number)
{
    draw_from(pool, &pool->share[number], 0);
    if (!help_others(pool, number, 1))
        return;
    long long end = now_ns() + PATIENCE_NS;
    do
        pause_briefly();
    while (help_others(pool, number, 1) && now_ns() < end);
    help_others(pool, number, 0);
}

static void split_tasks(gr_pool *pool, size_t tasks, int shares)
{
    size_t each = tasks / (size_t)shares, more = tasks % (size_t)shares, first = 0;
    for (int i = 0; i < shares; i++) {
        size_t end = first + each + ((size_t)i < more);
        atomic_store_explicit(&pool->share[i].next, first, memory_order_relaxed);
        pool->share[i].first = first;
        pool->share[i].end = end;
        first = end;
    }
    pool->shares = shares;
}

/* --- workers --------------------------------------------------------------------------------- */

/* Whether the region is open to this worker, which was last in region `last`. */
static bool is_open(uint64_t gate, int number, uint64_t last)
{
    return (int)(gate & OPEN_TO) >= number && gate != last;
}

/* Wakes the two whose turn it is, if they sleep: since they wake two more each, nobody has to make
 * all the calls, of a few microseconds each. */
static bool wake_next(gr_pool *pool, int number)
{
    int open_to = (int)(atomic_load(&pool->gate) & OPEN_TO);
    bool any = false;
    for (int i = 2 * number + 1; i <= 2 * number + 2 && i <= open_to; i++) {
        if (!atomic_load(&pool->seat[i].asleep))
            continue;
        /* One that has not yet looked at the gate holds the mutex. It is given back at once, or
         * who wakes would only wait for it. */
        pthread_mutex_lock(&pool->mutex);
        pthread_mutex_unlock(&pool->mutex);
        pthread_cond_signal(&pool->seat[i].wake);
        any = true;
    }
    return any;
}

static void leave_seat(gr_pool *pool, int number)
{
    atomic_store(&pool->seat[number].seated, false);
    if (atomic_load(&pool->caller_sleeps)) {
        pthread_mutex_lock(&pool->mutex);
        pthread_cond_signal(&pool->done);
        pthread_mutex_unlock(&pool->mutex);
    }
}

static bool take_seat(gr_pool *pool, int number, uint64_t *last)
{
    uint64_t gate = atomic_load_explicit(&pool->gate, memory_order_relaxed);
    if (!is_open(gate, number, *last))
        return false;
    atomic_store(&pool->seat[number].seated, true);
    if (atomic_load(&pool->gate) != gate) {
        leave_seat(pool, number);
        return false;
    }
    *last = gate;
    return true;
}

static bool spin_for_seat(gr_pool *pool, int number, uint64_t *last)
{
    long long end = now_ns() + atomic_load_explicit(&pool->spin_ns, memory_order_relaxed);
    do {
        for (int i = 0; i < LOOKS; i++) {
            if (take_seat(pool, number, last))
                return true;
            pause_briefly();
        }
    } while (now_ns() < end);
    return false;
}

/* Sleeps until the gate is open. In a virtual machine the caller lets the worker go first, and the
 * worker moves away from it: see processors.h. Whoever is seated is waited for, so that comes
 * before. */
static void sleep_for_seat(gr_pool *pool, int number, uint64_t last)
{
    worker_seat *seat = &pool->seat[number];
    pthread_mutex_lock(&pool->mutex);
    atomic_store(&seat->asleep, true);
    while (!is_open(atomic_load(&pool->gate), number, last))
        pthread_cond_wait(&seat->wake, &pool->mutex);
    atomic_store(&seat->asleep, false);
    pthread_mutex_unlock(&pool->mutex);
    if (pool->virtual_machine && atomic_load(&pool->processor) == gr_this_processor())
        gr_leave_this_processor();
}

static void *worker(void *argument)
{
    worker_seat *own = argument;
    gr_pool *pool = own->pool;
    int number = (int)(own - pool->seat);
    uint64_t last = 0;
    inside = true;
    for (;;) {
        while (!spin_for_seat(pool, number, &last))
            sleep_for_seat(pool, number, last);
        wake_next(pool, number);
        draw_tasks(pool, number);
        leave_seat(pool, number);
    }
    return NULL;
}

/* The mutexes are held across fork() so that the child finds what they guard in one piece. */
static void before_fork(void)
{
    for (int i = 0; i < POOLS; i++)
        pthread_mutex_lock(&pools[i].mutex);
}

static void after_fork_in_parent(void)
{
    for (int i = 0; i < POOLS; i++)
        pthread_mutex_unlock(&pools[i].mutex);
}

/* Only the thread that forked is left; the workers, and any region of another thread, are gone. */
static void empty_in_child(gr_pool *pool)
{
    for (int i = 1; i <= pool->workers; i++) {
        atomic_store(&pool->seat[i].seated, false);
        atomic_store(&pool->seat[i].asleep, false);
    }
    pool->done = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    pool->workers = 0;
    atomic_fetch_and(&pool->gate, ~OPEN_TO);
    atomic_store(&pool->caller_sleeps, false);
    atomic_store(&pool->busy, false);
}

static void after_fork_in_child(void)
{
    for (int i = 0; i < POOLS; i++)
        empty_in_child(&pools[i]);
    after_fork_in_parent();
}

static void set_up(void)
{
    pools[FOR_SUMS].virtual_machine = pools[BESIDE].virtual_machine = gr_in_virtual_machine();
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

static void add_workers(gr_pool *pool, int wanted)
{
    /* Signals are for the program's own threads: a handler must not run on a thread it has never
     * heard of. Threads inherit the mask of their creator. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_mutex_lock(&pool->mutex);
    while (pool->workers < wanted) {
        pthread_t thread;
        int number = pool->workers + 1;
        worker_seat *seat = &pool->seat[number];
        seat->wake = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
        seat->pool = pool;
        if (pthread_create(&thread, NULL, worker, seat) != 0)
            break; /* too many threads, or no memory: do with those there are */
        pthread_detach(thread);
        pool->workers = number;
    }
    pthread_mutex_unlock(&pool->mutex);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    bool crowded = pool->workers >= gr_processor_count();
    int spin_ns = pool == &pools[BESIDE] ? SPIN_BESIDE_NS : SPIN_NS;
    atomic_store_explicit(&pool->spin_ns, crowded ? CROWDED_SPIN_NS : spin_ns,
                          memory_order_relaxed);
}

/* --- regions --------------------------------------------------------------------------------- */

/* Returns to how many workers. */
static int open_region(gr_pool *pool, int helpers, size_t tasks, void (*run)(size_t, void *),
                       void *context)
{
    if (pool->workers < helpers)
        add_workers(pool, helpers);
    int open_to = helpers < pool->workers ? helpers : pool->workers;
    atomic_store_explicit(&pool->processor, gr_this_processor(), memory_order_relaxed);
    pool->run = run;
    pool->context = context;
    split_tasks(pool, tasks, open_to + 1);
    uint64_t region = atomic_load_explicit(&pool->gate, memory_order_relaxed) & ~OPEN_TO;
    atomic_store(&pool->gate, region + NEXT_REGION + (uint64_t)open_to);
    if (wake_next(pool, 0) && pool->virtual_machine)
        sched_yield();
    return open_to;
}

/* The first from `number` on who sits; above open_to if nobody does. */
static int next_seated(gr_pool *pool, int number, int open_to)
{
    while (number <= open_to && !atomic_load(&pool->seat[number].seated))
        number++;
    return number;
}

static void close_region(gr_pool *pool, int open_to)
{
    atomic_fetch_and(&pool->gate, ~OPEN_TO);
    int seated = next_seated(pool, 1, open_to);
    long long end = 0;
    for (int i = 0; seated <= open_to; i++) {
        pause_briefly();
        seated = next_seated(pool, seated, open_to);
        if (i % LOOKS)
            continue;
        long long now = now_ns();
        if (!end)
            end = now + atomic_load_explicit(&pool->spin_ns, memory_order_relaxed);
        else if (now >= end)
            break;
    }
    if (seated > open_to)
        return;
    pthread_mutex_lock(&pool->mutex);
    atomic_store(&pool->caller_sleeps, true);
    while ((seated = next_seated(pool, seated, open_to)) <= open_to)
        pthread_cond_wait(&pool->done, &pool->mutex);
    atomic_store(&pool->caller_sleeps, false);
    pthread_mutex_unlock(&pool->mutex);
}

/* Asked for at every call, of the system only now and then: that takes half a microsecond. */
static int processor_count(void)
{
    enum { HOLDS_NS = 10 * 1000 * 1000 };
    static atomic_llong until;
    static atomic_int count;
    long long now = now_ns();
    if (now >= atomic_load_explicit(&until, memory_order_acquire)) {
        atomic_store_explicit(&count, gr_processor_count(), memory_order_relaxed);
        atomic_store_explicit(&until, now + HOLDS_NS, memory_order_release);
    }
    return atomic_load_explicit(&count, memory_order_relaxed);
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

static bool get_pool(gr_pool *pool)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, set_up);
    return !atomic_exchange_explicit(&pool->busy, true, memory_order_acquire);
}

static void run_region(gr_pool *pool, int threads, size_t tasks,
                       void (*run)(size_t task, void *context), void *context)
{
    bool nested = inside;
    int helpers = nested ? 0 : helper_count(threads, tasks);
    bool pooled = helpers > 0 && get_pool(pool);
    inside = true;
    if (pooled) {
        int open_to = open_region(pool, helpers, tasks, run, context);
        draw_tasks(pool, 0);
        close_region(pool, open_to);
        atomic_store_explicit(&pool->busy, false, memory_order_release);
    } else {
        for (size_t task = 0; task < tasks && !gr_ask_for_interrupts(); task++)
            run(task, context);
    }
    inside = nested;
}

void gr_parallel(int threads, size_t tasks, void (*run)(size_t task, void *context), void *context)
{
    run_region(&pools[FOR_SUMS], threads, tasks, run, context);
}

void gr_parallel_beside(int threads, size_t tasks, void (*run)(size_t task, void *context),
                        void *context)
{
    run_region(&pools[BESIDE], threads, tasks, run, context);
}
