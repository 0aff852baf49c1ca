/* Pools of worker threads that stay alive between parallel regions. There is a pool for sums, and
 * one for copies to each device, which may run at the same time.
 *
 * A region is one parallel call. The caller opens the gate, which offers each worker that the
 * region can use a slot, and starts on the tasks without waiting. A worker that arrives in time
 * takes its slot and helps. When all tasks have been begun, the caller closes the gate and waits
 * only for busy workers. So a worker that wakes up late does not delay the region.
 *
 * After a region, a worker polls the gate for a while before it goes to sleep. A polling worker
 * joins the next region in a fraction of a microsecond. Waking a sleeping one takes 20 to 50
 * microseconds in a virtual machine. To read a cache line that another processor has written takes
 * a tenth of a microsecond, so threads share few lines. The data that workers read is next to the
 * gate, in lines that only the caller writes. Each worker's state that other threads read is in
 * lines of its own.
 *
 * To take its slot, a worker marks itself busy and then checks that the gate is still open. To
 * end the region, the caller closes the gate and then checks which workers are busy. Because of
 * this order, at least one of the two sees the other's write.
 *
 * shares.h decides which thread runs which task. */
#include "threads/pool.h"

#include "threads/clock.h"
#include "threads/forks.h"
#include "threads/interrupts.h"
#include "threads/processors.h"
#include "threads/shares.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    MOST_WORKERS = 1023,
    /* Longer than the time between regions in a loop of calls, too short to show as CPU load. */
    SPIN_NS = 200 * 1000,
    /* Longer, because the last transfers to the device go on after the region: see staging.c. */
    SPIN_BESIDE_NS = 500 * 1000,
    /* With more threads than processors, spinning threads keep others from running. */
    CROWDED_SPIN_NS = 10 * 1000,
    LOOKS = 16 /* polls between two reads of the clock */
};

/* Fits into the count of a share, with room for the increments of threads that find no task. */
static const size_t MOST_TASKS = INT32_MAX;

typedef struct gr_pool gr_pool;

/* In a cache line of its own, because the caller waits for it. */
typedef struct {
    alignas(GR_CACHE_LINE) atomic_bool taken; /* the worker may read the region */
} slot;

typedef struct {
    alignas(GR_CACHE_LINE) atomic_bool asleep; /* waits on `wake`, or is about to */
    pthread_cond_t wake;
    gr_pool *pool;
} parking;

struct gr_pool {
    pthread_mutex_t mutex; /* guards `workers` and falling asleep */
    pthread_cond_t done;   /* a worker left its slot while the caller slept */
    int workers;           /* threads that exist */
    bool virtual_machine;  /* whether this is one; set once */
    atomic_bool busy;      /* a region uses the pool */
    atomic_int processor;  /* the caller's */
    atomic_int spin_ns;
    atomic_bool caller_sleeps;

    /* gr_numbered(): the region's number, and how many shares are open; 0 if the gate is closed */
    alignas(GR_CACHE_LINE) atomic_uint_least64_t gate;
    gr_region region; /* written before the gate opens, read by busy workers only */

    /* Indexed by the number of the thread. The caller's is 0, and it has no slot and no parking
     * place. */
    gr_share share[MOST_WORKERS + 1];
    slot slot[MOST_WORKERS + 1];
    parking parking[MOST_WORKERS + 1];
};

enum { FOR_SUMS, BESIDE, POOLS = BESIDE + GR_POOLS_BESIDE };

static gr_pool pools[POOLS] = {
    [0 ... POOLS - 1] = {.mutex = PTHREAD_MUTEX_INITIALIZER, .done = PTHREAD_COND_INITIALIZER},
};

/* Whether this thread is a worker, or runs a task of any region. */
static _Thread_local bool inside;

/* The pool whose region this thread has opened. */
static _Thread_local gr_pool *own_pool;

static void pause_briefly(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb"); /* "yield" is a no-op on most */
#endif
}

/* --- workers --------------------------------------------------------------------------------- */

/* Whether the gate is open to this worker. `last`: the gate's value in the worker's last region. */
static bool is_open(uint64_t gate, int number, uint64_t last)
{
    return (int)gr_count_in(gate) > number && gate != last;
}

/* Wakes the workers 2 * number + 1 and 2 * number + 2, if they sleep. Each woken worker wakes two
 * more, so that no single thread makes all the wake-up calls, of a few microseconds each. Returns
 * whether any was asleep. */
static bool wake_next(gr_pool *pool, int number)
{
    int shares = (int)gr_count_in(atomic_load(&pool->gate));
    bool any = false;
    for (int i = 2 * number + 1; i <= 2 * number + 2 && i < shares; i++) {
        if (!atomic_load(&pool->parking[i].asleep))
            continue;
        /* A worker that is about to sleep and has not checked the gate holds the mutex: waits for
         * that. Unlocks before the signal, or the woken worker would have to wait for the mutex. */
        pthread_mutex_lock(&pool->mutex);
        pthread_mutex_unlock(&pool->mutex);
        pthread_cond_signal(&pool->parking[i].wake);
        any = true;
    }
    return any;
}

static void leave_slot(gr_pool *pool, int number)
{
    atomic_store(&pool->slot[number].taken, false);
    if (atomic_load(&pool->caller_sleeps)) {
        pthread_mutex_lock(&pool->mutex);
        pthread_cond_signal(&pool->done);
        pthread_mutex_unlock(&pool->mutex);
    }
}

static bool take_slot(gr_pool *pool, int number, uint64_t *last)
{
    uint64_t gate = atomic_load_explicit(&pool->gate, memory_order_relaxed);
    if (!is_open(gate, number, *last))
        return false;
    atomic_store(&pool->slot[number].taken, true);
    if (atomic_load(&pool->gate) != gate) {
        leave_slot(pool, number);
        return false;
    }
    *last = gate;
    return true;
}

static bool spin_for_slot(gr_pool *pool, int number, uint64_t *last)
{
    long long end = gr_now_ns() + atomic_load_explicit(&pool->spin_ns, memory_order_relaxed);
    do {
        for (int i = 0; i < LOOKS; i++) {
            if (take_slot(pool, number, last))
                return true;
            pause_briefly();
        }
    } while (gr_now_ns() < end);
    return false;
}

/* Sleeps until the gate is open. In a virtual machine, the caller yields to the woken worker, and
 * the worker moves to another processor: see processors.h. It moves before it takes its slot,
 * because the caller waits for busy workers. */
static void sleep_for_slot(gr_pool *pool, int number, uint64_t last)
{
    parking *own = &pool->parking[number];
    pthread_mutex_lock(&pool->mutex);
    atomic_store(&own->asleep, true);
    while (!is_open(atomic_load(&pool->gate), number, last))
        pthread_cond_wait(&own->wake, &pool->mutex);
    atomic_store(&own->asleep, false);
    pthread_mutex_unlock(&pool->mutex);
    if (pool->virtual_machine && atomic_load(&pool->processor) == gr_this_processor())
        gr_leave_this_processor();
}

static void *worker(void *argument)
{
    parking *own = argument;
    gr_pool *pool = own->pool;
    int number = (int)(own - pool->parking);
    uint64_t last = 0;
    inside = true;
    for (;;) {
        while (!spin_for_slot(pool, number, &last))
            sleep_for_slot(pool, number, last);
        wake_next(pool, number);
        gr_draw_tasks(&pool->region, pool->share, number);
        leave_slot(pool, number);
    }
    return NULL;
}

static void close_region(gr_pool *pool, int shares);

/* A signal handler may fork in the middle of a region that its thread has opened. The child has no
 * workers to finish the tasks that they have begun. So a region of sums is closed before the fork,
 * which waits for its workers; these also run tasks that have not been begun. A region of copies
 * is not closed: its workers may be waiting for this thread, and a child cannot use the device.
 *
 * The mutexes are held across fork(), so that the data they guard is consistent in the child. */
static void before_fork(void)
{
    if (own_pool == &pools[FOR_SUMS])
        close_region(own_pool, own_pool->region.shares);
    for (int i = 0; i < POOLS; i++)
        pthread_mutex_lock(&pools[i].mutex);
}

static void after_fork_in_parent(void)
{
    for (int i = 0; i < POOLS; i++)
        pthread_mutex_unlock(&pools[i].mutex);
}

/* The child has only the thread that called fork(): no workers, and no regions of other threads. */
static void empty_in_child(gr_pool *pool)
{
    for (int i = 1; i <= pool->workers; i++) {
        atomic_store(&pool->slot[i].taken, false);
        atomic_store(&pool->parking[i].asleep, false);
    }
    pool->done = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    pool->workers = 0;
    atomic_store(&pool->gate, gr_numbered(pool->region.number, 0));
    atomic_store(&pool->caller_sleeps, false);
    atomic_store(&pool->busy, pool == own_pool);
}

static void after_fork_in_child(void)
{
    for (int i = 0; i < POOLS; i++)
        empty_in_child(&pools[i]);
    after_fork_in_parent();
}

GR_AROUND_FORK(before_fork, after_fork_in_parent, after_fork_in_child)

__attribute__((constructor)) static void look_at_machine(void)
{
    for (int i = 0; i < POOLS; i++)
        pools[i].virtual_machine = gr_in_virtual_machine();
}

static void add_workers(gr_pool *pool, int wanted)
{
    /* Workers block all signals, so that handlers run only on the program's own threads. A new
     * thread inherits the signal mask of its creator. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_mutex_lock(&pool->mutex);
    while (pool->workers < wanted) {
        pthread_t thread;
        int number = pool->workers + 1;
        parking *own = &pool->parking[number];
        own->wake = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
        own->pool = pool;
        if (pthread_create(&thread, NULL, worker, own) != 0)
            break; /* too many threads, or no memory: fewer workers must do */
        pthread_detach(thread);
        pool->workers = number;
    }
    pthread_mutex_unlock(&pool->mutex);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    bool crowded = pool->workers >= gr_processor_count();
    int spin_ns = pool == &pools[FOR_SUMS] ? SPIN_NS : SPIN_BESIDE_NS;
    atomic_store_explicit(&pool->spin_ns, crowded ? CROWDED_SPIN_NS : spin_ns,
                          memory_order_relaxed);
}

/* --- regions --------------------------------------------------------------------------------- */

/* Returns the number of the next region, from 1 on. The numbers wrap around after hours of calls.
 * Then all counts are reset, so that no old count is mistaken for one of a new region. */
static uint32_t next_number(gr_pool *pool)
{
    if (pool->region.number < UINT32_MAX)
        return pool->region.number + 1;
    for (int i = 0; i <= MOST_WORKERS; i++)
        atomic_store(&pool->share[i].begun, 0);
    return 1;
}

/* Returns the number of shares. */
static int open_region(gr_pool *pool, int helpers, size_t tasks, void (*run)(size_t, void *),
                       void *context)
{
    if (pool->workers < helpers)
        add_workers(pool, helpers);
    int shares = 1 + (helpers < pool->workers ? helpers : pool->workers);
    atomic_store_explicit(&pool->processor, gr_this_processor(), memory_order_relaxed);
    pool->region = (gr_region){.run = run,
                               .context = context,
                               .each = tasks / (size_t)shares,
                               .more = (int)(tasks % (size_t)shares),
                               .shares = shares,
                               .number = next_number(pool)};
    atomic_store(&pool->gate, gr_numbered(pool->region.number, (size_t)shares));
    if (wake_next(pool, 0) && pool->virtual_machine)
        sched_yield();
    return shares;
}

/* Returns the first busy worker from `number` on, or `shares` if there is none. */
static int next_busy(gr_pool *pool, int number, int shares)
{
    while (number < shares && !atomic_load(&pool->slot[number].taken))
        number++;
    return number;
}

/* Sleeps until a worker leaves its slot, or for 50 ms, so that Ctrl-C does not wait long. */
static void sleep_beside_workers(gr_pool *pool)
{
    enum { NAP_NS = 50 * 1000 * 1000, SECOND_NS = 1000 * 1000 * 1000 };
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_nsec += NAP_NS;
    end.tv_sec += end.tv_nsec / SECOND_NS;
    end.tv_nsec %= SECOND_NS;
    pthread_cond_timedwait(&pool->done, &pool->mutex, &end);
}

static void close_region(gr_pool *pool, int shares)
{
    atomic_store(&pool->gate, gr_numbered(pool->region.number, 0));
    int busy = next_busy(pool, 1, shares);
    long long end = 0;
    for (int i = 0; busy < shares; i++) {
        pause_briefly();
        busy = next_busy(pool, busy, shares);
        if (i % LOOKS)
            continue;
        long long now = gr_now_ns();
        if (!end)
            end = now + atomic_load_explicit(&pool->spin_ns, memory_order_relaxed);
        else if (now >= end)
            break;
    }
    if (busy == shares)
        return;
    pthread_mutex_lock(&pool->mutex);
    atomic_store(&pool->caller_sleeps, true);
    while ((busy = next_busy(pool, busy, shares)) < shares) {
        sleep_beside_workers(pool);
        pthread_mutex_unlock(&pool->mutex);
        gr_ask_for_interrupts(); /* long tasks check whether this was interrupted */
        pthread_mutex_lock(&pool->mutex);
    }
    atomic_store(&pool->caller_sleeps, false);
    pthread_mutex_unlock(&pool->mutex);
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
    return !atomic_exchange_explicit(&pool->busy, true, memory_order_acquire);
}

static void run_region(gr_pool *pool, int threads, size_t tasks,
                       void (*run)(size_t task, void *context), void *context)
{
    bool nested = inside;
    int helpers = nested ? 0 : helper_count(threads, tasks);
    bool pooled = helpers > 0 && tasks <= MOST_TASKS && get_pool(pool);
    inside = true;
    if (pooled) {
        int shares = open_region(pool, helpers, tasks, run, context);
        own_pool = pool;
        gr_draw_tasks(&pool->region, pool->share, 0);
        close_region(pool, shares);
        own_pool = NULL;
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

void gr_parallel_beside(int number, int threads, size_t tasks,
                        void (*run)(size_t task, void *context), void *context)
{
    run_region(&pools[BESIDE + number], threads, tasks, run, context);
}
