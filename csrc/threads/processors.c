#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* sched_getaffinity, sched_getcpu */
#endif
#include "threads/processors.h"

#include "threads/clock.h"
#include "threads/control_group.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#ifdef __x86_64__
#include <cpuid.h>
#endif

/* Read when the library is loaded: reading files in every call would take far longer than a short
 * sum, and the quota hardly ever changes. */
static int quota;

__attribute__((constructor)) static void read_quota(void)
{
    quota = gr_processor_quota(&gr_own_group);
}

#ifdef __linux__
/* Returns 0 if unknown. A kernel for more processors than the set has room for returns EINVAL. */
static int count_affinity(void)
{
    enum { MOST = 1 << 20 };
    cpu_set_t usual;
    if (sched_getaffinity(0, sizeof usual, &usual) == 0)
        return CPU_COUNT(&usual);
    int found = 0;
    for (size_t most = 2 * CPU_SETSIZE; errno == EINVAL && most <= MOST && !found; most *= 2) {
        size_t bytes = CPU_ALLOC_SIZE(most);
        cpu_set_t *set = CPU_ALLOC(most);
        if (!set)
            return 0;
        if (sched_getaffinity(0, bytes, set) == 0)
            found = CPU_COUNT_S(bytes, set);
        CPU_FREE(set);
    }
    return found;
}
#else
static int count_affinity(void)
{
    return 0;
}
#endif

static int count_processors(void)
{
    int count = count_affinity();
    long online = count ? 0 : sysconf(_SC_NPROCESSORS_ONLN);
    if (!count)
        count = online > 0 && online <= INT_MAX ? (int)online : 1;
    return quota && quota < count ? quota : count;
}

/* Runs in every call, so the answer is cached for 10 ms: the system call takes far longer. */
int gr_processor_count(void)
{
    enum { HOLDS_NS = 10 * 1000 * 1000 };
    static atomic_llong until;
    static atomic_int count;
    long long now = gr_now_ns();
    if (now >= atomic_load_explicit(&until, memory_order_acquire)) {
        atomic_store_explicit(&count, count_processors(), memory_order_relaxed);
        atomic_store_explicit(&until, now + HOLDS_NS, memory_order_release);
    }
    return atomic_load_explicit(&count, memory_order_relaxed);
}

/* Returns 0 if the text is not a positive integer. */
static int positive(const char *text)
{
    char *end;
    errno = 0;
    long count = strtol(text, &end, 10);
    return errno == 0 && *end == '\0' && count > 0 && count <= INT_MAX ? (int)count : 0;
}

static atomic_int wanted_threads; /* 0: one per processor */

__attribute__((constructor)) void gr_read_environment(void)
{
    const char *text = getenv("GPUREDUCE_THREADS");
    atomic_store_explicit(&wanted_threads, text ? positive(text) : 0, memory_order_relaxed);
}

int gr_thread_count(void)
{
    int wanted = atomic_load_explicit(&wanted_threads, memory_order_relaxed);
    return wanted ? wanted : gr_processor_count();
}

#if defined(__linux__) && defined(__x86_64__)
bool gr_in_virtual_machine(void)
{
    enum { HYPERVISOR = 31 };
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c >> HYPERVISOR & 1);
}

int gr_this_processor(void)
{
    return sched_getcpu();
}

void gr_leave_this_processor(void)
{
    cpu_set_t allowed, others;
    int processor = sched_getcpu();
    if (processor < 0 || sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return;
    others = allowed;
    CPU_CLR((size_t)processor, &others);
    if (CPU_COUNT(&others) == 0)
        return;
    sched_setaffinity(0, sizeof others, &others);   /* moves the thread */
    sched_setaffinity(0, sizeof allowed, &allowed); /* does not move it back */
}
#else
bool gr_in_virtual_machine(void)
{
    return false;
}

int gr_this_processor(void)
{
    return 0;
}

void gr_leave_this_processor(void) {}
#endif
