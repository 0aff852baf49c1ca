/* Memory of the host that was pinned, by whomever, or was not. */
#ifndef GPUREDUCE_PINNED_H
#define GPUREDUCE_PINNED_H

#include "engine/internal.h"

#include <stdbool.h>

/* How many threads fill pinned memory. */
int gr_filling_threads(void);

/* What a thread has just written lies in its processor's own cache, from where the bus is slow to
 * fetch it. This moves it on to the cache that all share, which takes longer than to write it. */
void gr_move_on(char *at, size_t bytes);

/* Copies there what the bus will fetch, and moves it on. */
void gr_write_piece(char *pinned, const char *from, size_t bytes);

/* Copies for who reads meanwhile: finds each whole word of 8 bytes as it was or as it is. */
void gr_write_words(char *pinned, const char *from, size_t bytes);

typedef struct {
    bool is_pageable; /* in part at least: the driver has to copy it before a device can read it */
    const char *mapped; /* where the current device reads all of it; NULL where it cannot */
} gr_pinning;

/* Of an array of at least one byte. It is judged by its first and its last. */
gr_pinning gr_pinning_of(const void *host, size_t bytes);

#endif
