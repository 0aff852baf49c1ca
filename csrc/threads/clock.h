/* A monotonic clock, for measurements. */
#pragma once

#include <time.h>

/* Nanoseconds since some moment in the past. Never goes back. */
static inline long long gr_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static inline double gr_now_ms(void)
{
    return (double)gr_now_ns() / 1e6;
}
