/* A sum whose elements are not in memory: the samples of a function for the trapezoidal rule. */
#ifndef GPUREDUCE_SAMPLES_H
#define GPUREDUCE_SAMPLES_H

#include <stdint.h>

enum {
#define INTEGRAND(name, formula, from, to, exact, lesson) GR_INTEGRAND_##name,
#include "integrands.def"
#undef INTEGRAND
    GR_INTEGRAND_COUNT
};

typedef struct {
    double from, step, to;
    uint64_t last;  /* the samples are numbered 0 to last, which is at least 1 */
    uint64_t first; /* the index at which a launch over a part of them starts */
    int integrand;
} gr_samples;

#endif
