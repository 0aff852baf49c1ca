/* Memory of the host that was pinned, by whomever, or was not. */
#ifndef GPUREDUCE_PINNED_H
#define GPUREDUCE_PINNED_H

#include "engine/internal.h"

#include <stdbool.h>

/* How many threads fill pinned memory. */
int gr_filling_threads(void);

/* Copies there what the bus will fetch. */
void gr_write_piece(char *pinned, const char *from, size_t bytes);

typedef struct {
    bool is_pageable; /* in part at least: the driver has to copy it before a device can read it */
    const char *mapped; /* where the current device reads all of it; NULL where it cannot */
} gr_pinning;

/* Of an array of at least one byte. It is judged by its first and its last. */
gr_pinning gr_pinning_of(const void *host, size_t bytes);

#endif
