/* Pinned and pageable host memory. */
#pragma once

#include "backend/status.h"

#include <stdbool.h>

/* Returns the number of threads that fill pinned memory. */
int gr_filling_threads(void);

/* Copies bytes to pinned memory, for a transfer, and demotes them to the shared cache. */
void gr_write_piece(char *pinned, const char *from, size_t bytes);

/* Whether an array of at least one byte is pageable, judged by its first and its last byte. The
 * driver has to copy pageable memory before a device can read it. */
bool gr_is_pageable(const void *host, size_t bytes);
