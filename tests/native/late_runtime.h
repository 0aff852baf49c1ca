#ifndef LATE_RUNTIME_H
#define LATE_RUNTIME_H

#include <cuda_runtime_api.h>
#include <stdbool.h>

/* Makes a call fail after `call` more calls of the functions that can fail; -1: makes none fail. */
void late_fail_at(long call);

/* true: stops the work of all streams. false: resumes it. */
void late_hold(bool held);

/* Returns when `works` operations are on a stream. In a child made by fork() there is no stream. */
void late_await(int works);

#endif
