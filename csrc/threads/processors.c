#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* sched_getaffinity, sched_getcpu */
#endif
#include "threads/processors.h"

#include "threads/clock.h"

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

static int count_processors(void)
{
#ifdef __linux__
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        return CPU_COUNT(&set);
#endif
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 && online <= INT_MAX ? (int)online : 1;
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
