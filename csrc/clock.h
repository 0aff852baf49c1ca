/* The processor's clock, for whoever measures. */
#ifndef GR_CLOCK_H
#define GR_CLOCK_H

#include <time.h>

/* Milliseconds since some moment in the past. */
static inline double gr_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

#endif
