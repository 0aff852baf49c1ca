#ifndef LATE_RUNTIME_H
#define LATE_RUNTIME_H

#include <cuda_runtime_api.h>

/* After so many more calls of those that can fail, one does; -1: none. */
void late_fail_at(long call);

#endif
