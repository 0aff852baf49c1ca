#ifndef LATE_RUNTIME_H
#define LATE_RUNTIME_H

#include <cuda_runtime_api.h>
#include <stdbool.h>

/* After so many more calls of those that can fail, one does; -1: none. */
void late_fail_at(long call);

/* How often it was asked what a pointer is. */
long late_questions(void);

/* From now on nothing that is put on a stream is carried out, or all is again. */
void late_hold(bool held);

/* Returns when so much is on a stream. A child made by fork() has no stream and holds nothing. */
void late_await(int works);

/* What each word of pinned memory holds when it is new, as others may have had it before; 0: what
 * the host's memory held. */
void late_litter(unsigned long long word);

#endif
