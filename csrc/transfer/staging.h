/* Copies arrays from host memory to a device. */
#pragma once

#include "backend/status.h"

/* Puts the copy on the stream. On return, `host` has been read. Exception: if the array is small or
 * in pinned memory, it may be read later, when the stream reaches the copy. */
gr_status gr_copy_to_device(int device, void *to, const void *host, size_t bytes,
                            cudaStream_t stream, gr_error *error);

/* Frees the pinned memory that is kept for the next copy. */
void gr_release_staging(void);
