/* Properties of the machine's processors, and the default number of threads. */
#pragma once

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The number of processors that this process may use, by its affinity and by its control group's
 * quota. The affinity may be 10 ms old; the quota is that when the library was loaded. */
int gr_processor_count(void);

/* The default number of threads of a parallel region, including the caller: GPUREDUCE_THREADS if it
 * is a positive integer, otherwise the number of processors. The environment is read when this file
 * is loaded and by gr_read_environment(). */
int gr_thread_count(void);

/* Other threads must not change the environment during this call. Python's threads change it only
 * with the GIL held. */
void gr_read_environment(void);

/* The processor that this thread runs on; 0 if unknown. */
int gr_this_processor(void);

/* Whether this is a virtual machine. There, the kernel treats a halted processor as preempted by
 * the host, so it wakes a thread on the waker's processor instead of a halted one. Worker and
 * caller then share one processor until the kernel balances its load, many milliseconds later. */
bool gr_in_virtual_machine(void);

/* Moves this thread to another processor, if its affinity allows one. */
void gr_leave_this_processor(void);

#ifdef __cplusplus
}
#endif
