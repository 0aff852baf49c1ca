#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* sched_getaffinity, sched_getcpu */
#endif
#include "processors.h"

#include <limits.h>
#include <sched.h>
#include <stddef.h>
#include <unistd.h>

#ifdef __x86_64__
#include <cpuid.h>
#endif

int gr_processor_count(void)
{
#ifdef __linux__
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        return CPU_COUNT(&set);
#endif
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 && online <= INT_MAX ? (int)online : 1;
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
    sched_setaffinity(0, sizeof others, &others);   /* moves it */
    sched_setaffinity(0, sizeof allowed, &allowed); /* which does not move it back */
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
