/* The bytes of booleans. NumPy takes any byte but 0 for True; sums of bytes take it as it is. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Whether all of n bytes are 0 or 1. */
bool gr_cpu_are_bools(const void *data, size_t n);
