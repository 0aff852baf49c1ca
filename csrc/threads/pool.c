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
 * a virtual machine. A line of the cache that another processor has written takes a tenth of a
 * microsecond to come, so there are few of them: all that a worker needs to know lies beside the
 * gate, which nobody but the caller writes to, and all that others want to know of a worker lies in
 * a line of its own. To sit down a worker says that it sits and then looks whether the gate is
 * still open; to close, the caller closes the gate and then looks who sits. One of them sees the
 * other.
 *
 * Tasks are split into contiguous shares, one for each thread that was asked for. A worker begins
 * with the share of its own number, so that the next call of the kind finds the same part of an
 * array in the same processor's cache, and then helps with the shares of others. */
#include "threads/pool.h"

#include "threads/clock.h"
#include "threads/forks.h"
#include "threads/interrupts.h"
#include "threads/processors.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    MOST_WORKERS = 1023,
    /* Longer than from one region to the next in a loop of calls, too short to be seen as load. */
    SPIN_NS = 200 * 1000,
    /* What was staged for a device last is under way for longer after the region; see staging.c. */
    SPIN_BESIDE_NS = 500 * 1000,
    /* With more threads than processors whoever spins keeps others from running. */
    CROWDED_SPIN_NS = 10 * 1000,
    LOOKS = 16, /* between two looks at the clock */
    CACHE_LINE = 64
};

/* What fits `begun`, with those who come too late. */
static const size_t MOST_TASKS = INT32_MAX;

/* Under the number of a region: how many tasks of a share have been begun, so that nobody has to
 * set that to 0, or how many shares are open. */
#define NUMBER_SHIFT 32
#define COUNT UINT32_MAX

typedef struct gr_pool gr_pool;

typedef struct {
    void (*run)(size_t task, void *context);
    void *context;
    size_t each;     /* tasks in a share */
    int more;        /* shares, from the first on, that have one more */
    int shares;      /* the caller's and those of the workers it is open to */
    uint32_t number; /* as in the gate */
} region;

/* By the number of the thread; the caller's is 0. The two are lines of their own since those who
 * look for a task take the one from its owner again and again, and nobody waits for it. */
typedef struct {
    alignas(CACHE_LINE) atomic_uint_least64_t begun; /* of its share */
    alignas(CACHE_LINE) atomic_bool seated;          /* may look at the region; not the caller */
} seat;

typedef struct {
    alignas(CACHE_LINE) atomic_bool asleep; /* waits on `wake`, or is about to */
    pthread_cond_t wake;
    gr_pool *pool;
} bed;

struct gr_pool {
    pthread_mutex_t mutex; /* guards going to sleep and `workers` */
    pthread_cond_t done;   /* somebody got up while the caller slept */
    int workers;           /* threads that exist */
    bool virtual_machine;  /* whether this is one; set once */
    atomic_bool busy;      /* a region has the pool */
    atomic_int processor;  /* the caller's */
    atomic_int spin_ns;
    atomic_bool caller_sleeps;

    /* How many shares are open, 0 if the gate is closed, below the number of the region. */
    alignas(CACHE_LINE) atomic_uint_least64_t gate;
    region region; /* written before the gate is opened, read only by those who sit */

    seat seat[MOST_WORKERS + 1];
    bed bed[MOST_WORKERS + 1]; /* the caller has none */
};

enum { FOR_SUMS, BESIDE, POOLS };

static gr_pool pools[POOLS] = {
    {.mutex = PTHREAD_MUTEX_INITIALIZER, .done = PTHREAD_COND_INITIALIZER},
    {.mutex = PTHREAD_MUTEX_INITIALIZER, .done = PTHREAD_COND_INITIALIZER},
};

/* Whether this thread runs a task of some region, or is a worker. */
static _Thread_local bool inside;

/* The pool whose region this thread has opened. */
static _Thread_local gr_pool *own_pool;

static void pause_briefly(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb"); /* "yield" does nothing on most */
#endif
}

/* --- tasks ----------------------------------------------------------------------------------- */

static size_t share_size(const region *now, int share)
{
    return now->each + (share < now->more);
}

static size_t share_start(const region *now, int share)
{
    return now->each * (size_t)share + (size_t)(share < now->more ? share : now->more);
}

static uint64_t under(uint32_t number, size_t count)
{
    return (uint64_t)number << NUMBER_SHIFT | count;
}

/* How many tasks of a share nobody has begun. */
static size_t left_in(gr_pool *pool, const region *now, int share)
{
    uint64_t begun = atomic_load_explicit(&pool->seat[share].begun, memory_order_relaxed);
    size_t size = share_size(now, share);
    if (begun >> NUMBER_SHIFT != now->number)
        return size;
    return (begun & COUNT) < size ? size - (size_t)(begun & COUNT) : 0;
}

static void drop_tasks(gr_pool *pool, const region *now)
{
    for (int i = 0; i < now->shares; i++)
        atomic_store_explicit(&pool->seat[i].begun, under(now->number, share_size(now, i)),
                              memory_order_relaxed);
}

/* How many had been begun before. The gate orders the region's data; this only hands out each task
 * once. */
static size_t begin_next(atomic_uint_least64_t *begun, uint32_t number)
{
    uint64_t before = atomic_load_explicit(begun, memory_order_relaxed);
    while (before >> NUMBER_SHIFT != number)
        if (atomic_compare_exchange_weak_explicit(begun, &before, under(number, 1),
                                                  memory_order_relaxed, memory_order_relaxed))
            return 0;
    return atomic_fetch_add_explicit(begun, 1, memory_order_relaxed) & COUNT;
}

/* Leaves `spare` tasks to the share's owner, if there is one at work. */
static void draw_from(gr_pool *pool, const region *now, int share, size_t spare)
{
    size_t left, size = share_size(now, share);
    while ((left = left_in(pool, now, share)) > spare || (left && left == size)) {
        size_t next = begin_next(&pool->seat[share].begun, now->number);
        if (next >= size)
            return;
        if (gr_ask_for_interrupts())
            drop_tasks(pool, now);
        else
            now->run(share_start(now, share) + next, now->context);
    }
}

static void help_others(gr_pool *pool, const region *now, int number, size_t spare)
{
    for (int i = number + 1; i < number + now->shares; i++)
        draw_from(pool, now, i < now->shares ? i : i - now->shares, spare);
}

/* One's own share first, then those of others, and only then the last task of each: its owner may
 * be about to begin it, and has its data in the cache. */
static void draw_tasks(gr_pool *pool, int number)
{
    const region now = pool->region;
    draw_from(pool, &now, number, 0);
    help_others(pool, &now, number, 1);
    help_others(pool, &now, number, 0);
}

/* --- workers --------------------------------------------------------------------------------- */

/* Whether the region is open to this worker, which was last in region `last`. */
static bool is_open(uint64_t gate, int number, uint64_t last)
{
    return (int)(gate & COUNT) > number && gate != last;
}

/* Wakes the two whose turn it is, if they sleep: since they wake two more each, nobody has to make
 * all the calls, of a few microseconds each. */
static bool wake_next(gr_pool *pool, int number)
{
    int shares = (int)(atomic_load(&pool->gate) & COUNT);
    bool any = false;
    for (int i = 2 * number + 1; i <= 2 * number + 2 && i < shares; i++) {
        if (!atomic_load(&pool->bed[i].asleep))
            continue;
        /* One that has not yet looked at the gate holds the mutex. It is given back at once, or
         * who wakes would only wait for it. */
        pthread_mutex_lock(&pool->mutex);
        pthread_mutex_unlock(&pool->mutex);
        pthread_cond_signal(&pool->bed[i].wake);
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
    long long end = gr_now_ns() + atomic_load_explicit(&pool->spin_ns, memory_order_relaxed);
    do {
        for (int i = 0; i < LOOKS; i++) {
            if (take_seat(pool, number, last))
                return true;
            pause_briefly();
        }
    } while (gr_now_ns() < end);
    return false;
}

/* Sleeps until the gate is open. In a virtual machine the caller lets the worker go first, and the
 * worker moves away from it: see processors.h. Whoever is seated is waited for, so that comes
 * before. */
static void sleep_for_seat(gr_pool *pool, int number, uint64_t last)
{
    bed *own = &pool->bed[number];
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
    bed *own = argument;
    gr_pool *pool = own->pool;
    int number = (int)(own - pool->bed);
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

static void close_region(gr_pool *pool, int shares);

/* A signal handler may fork in the middle of a region of its thread. The child has no workers to
 * end what they have begun, so that is waited for; they take what nobody has begun, too. Copies to
 * a device wait for this thread, and a child could not use the device.
 *
 * The mutexes are held across fork() so that the child finds what they guard in one piece. */
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

/* Only the thread that forked is left; the workers, and any region of another thread, are gone. */
static void empty_in_child(gr_pool *pool)
{
    for (int i = 1; i <= pool->workers; i++) {
        atomic_store(&pool->seat[i].seated, false);
        atomic_store(&pool->bed[i].asleep, false);
    }
    pool->done = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    pool->workers = 0;
    atomic_store(&pool->gate, under(pool->region.number, 0));
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
    pools[FOR_SUMS].virtual_machine = pools[BESIDE].virtual_machine = gr_in_virtual_machine();
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
        bed *own = &pool->bed[number];
        own->wake = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
        own->pool = pool;
        if (pthread_create(&thread, NULL, worker, own) != 0)
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

/* From 1 on. They come round after hours of calls: nothing that was written until then may look
 * like new. */
static uint32_t next_number(gr_pool *pool)
{
    if (pool->region.number < UINT32_MAX)
        return pool->region.number + 1;
    for (int i = 0; i <= MOST_WORKERS; i++)
        atomic_store(&pool->seat[i].begun, 0);
    return 1;
}

/* Returns how many shares there are. */
static int open_region(gr_pool *pool, int helpers, size_t tasks, void (*run)(size_t, void *),
                       void *context)
{
    if (pool->workers < helpers)
        add_workers(pool, helpers);
    int shares = 1 + (helpers < pool->workers ? helpers : pool->workers);
    atomic_store_explicit(&pool->processor, gr_this_processor(), memory_order_relaxed);
    pool->region = (region){.run = run,
                            .context = context,
                            .each = tasks / (size_t)shares,
                            .more = (int)(tasks % (size_t)shares),
                            .shares = shares,
                            .number = next_number(pool)};
    atomic_store(&pool->gate, under(pool->region.number, (size_t)shares));
    if (wake_next(pool, 0) && pool->virtual_machine)
        sched_yield();
    return shares;
}

/* The first from `number` on who sits; `shares` if nobody does. */
static int next_seated(gr_pool *pool, int number, int shares)
{
    while (number < shares && !atomic_load(&pool->seat[number].seated))
        number++;
    return number;
}

/* Sleeps until some worker leaves its seat, or so briefly that Ctrl-C does not wait long. */
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
    atomic_store(&pool->gate, under(pool->region.number, 0));
    int seated = next_seated(pool, 1, shares);
    long long end = 0;
    for (int i = 0; seated < shares; i++) {
        pause_briefly();
        seated = next_seated(pool, seated, shares);
        if (i % LOOKS)
            continue;
        long long now = gr_now_ns();
        if (!end)
            end = now + atomic_load_explicit(&pool->spin_ns, memory_order_relaxed);
        else if (now >= end)
            break;
    }
    if (seated == shares)
        return;
    pthread_mutex_lock(&pool->mutex);
    atomic_store(&pool->caller_sleeps, true);
    while ((seated = next_seated(pool, seated, shares)) < shares) {
        sleep_beside_workers(pool);
        pthread_mutex_unlock(&pool->mutex);
        gr_ask_for_interrupts(); /* tasks that take long look at the answer */
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
        draw_tasks(pool, 0);
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

void gr_parallel_beside(int threads, size_t tasks, void (*run)(size_t task, void *context),
                        void *context)
{
    run_region(&pools[BESIDE], threads, tasks, run, context);
}
