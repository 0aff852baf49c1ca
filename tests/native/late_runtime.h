#ifndef LATE_RUNTIME_H
#define LATE_RUNTIME_H

#include <cuda_runtime_api.h>
#include <stdbool.h>

/* After so many more calls of those that can fail, one does; -1: none. */
void late_fail_at(long call);

/* From now on nothing that is put on a stream is carried out, or all is again. */
void late_hold(bool held);

/* Returns when so much is on a stream. A child made by fork() has no stream and holds nothing. */
void late_await(int works);

#endif
