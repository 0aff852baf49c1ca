/* Records the CUDA events of a timed sum. engine.h explains how they are read. */
#pragma once

#include "engine/internal.h"

/* Moments of a sum, in their order. */
typedef enum { GR_AT_START, GR_AT_COPIED, GR_AT_SUMMED, GR_AT_RETURNED, GR_MOMENTS } gr_moment;

/* Records an event on the stream. Does nothing if `times` is NULL. */
gr_status gr_record_time(gr_times *times, gr_moment moment, cudaStream_t stream, gr_error *error);

/* Called before each piece of a sum, when the piece before it has come to its end: adds that
 * piece's times to the sum's, so that its events can be recorded again. */
gr_status gr_begin_piece(gr_times *times, gr_error *error);

/* Destroys the events that are kept for later sums. */
void gr_release_times(void);
