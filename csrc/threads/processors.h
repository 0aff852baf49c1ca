/* What the pool asks the operating system, and how many threads it makes of that. */
#ifndef GPUREDUCE_PROCESSORS_H
#define GPUREDUCE_PROCESSORS_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How many processors this process may run on, or might 10 ms ago. */
int gr_processor_count(void);

/* How many threads a parallel region gets by default, the caller included: GPUREDUCE_THREADS if
 * that is a positive integer, else the processors. The environment is read when this is loaded and
 * by gr_read_environment(). */
int gr_thread_count(void);

/* Other threads must not change the environment meanwhile. Python's do so with the GIL. */
void gr_read_environment(void);

/* The one that this thread is on; 0 where that cannot be known. */
int gr_this_processor(void);

/* A virtual machine's kernel takes a halted processor for one that the host has lent to others, and
 * wakes a thread next to its waker rather than there. Worker and caller then take turns on one
 * processor until the kernel balances its load, many milliseconds later. */
bool gr_in_virtual_machine(void);

/* Moves this thread to another processor, if it may run on any. */
void gr_leave_this_processor(void);

#ifdef __cplusplus
}
#endif

#endif
