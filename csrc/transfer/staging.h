/* How a large array of ordinary host memory gets to a device. */
#ifndef GPUREDUCE_STAGING_H
#define GPUREDUCE_STAGING_H

#include "backend/status.h"

/* Puts the copy on the stream. When it returns, `host` has been read, or, for a small array or one
 * in pinned memory, will have been when the stream gets there. */
gr_status gr_copy_to_device(int device, void *to, const void *host, size_t bytes,
                            cudaStream_t stream, gr_error *error);

/* Frees the pinned memory that is kept for the next copy. */
void gr_release_staging(void);

#endif
