/* Arithmetic with sizes. */
#ifndef GPUREDUCE_SIZES_H
#define GPUREDUCE_SIZES_H

#include <stddef.h>

static inline size_t gr_least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static inline size_t gr_ceil_div(size_t a, size_t b)
{
    return a / b + (a % b != 0);
}

#endif
