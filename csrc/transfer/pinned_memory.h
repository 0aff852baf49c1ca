/* Memory of the host that was pinned, by whomever, or was not. */
#ifndef GPUREDUCE_PINNED_H
#define GPUREDUCE_PINNED_H

#include "backend/status.h"

#include <stdbool.h>

/* How many threads fill pinned memory. */
int gr_filling_threads(void);

/* What a thread has just written lies in its processor's own cache, from where the bus is slow to
 * fetch it. This moves it on to the cache that all share, which takes longer than to write it. */
void gr_move_on(char *at, size_t bytes);

/* Copies there what the bus will fetch, and moves it on. */
void gr_write_piece(char *pinned, const char *from, size_t bytes);

/* Whether an array of at least one byte is pageable, judged by its first and its last byte: then
 * the driver has to copy it before a device can read it. */
bool gr_is_pageable(const void *host, size_t bytes);

#endif
