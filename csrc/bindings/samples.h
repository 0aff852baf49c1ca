/* Describes the samples of an integrand, from arguments that Python passes. */
#pragma once

#include "bindings/python.h"

#include "shared/samples.h"

/* Fills in *samples. Returns 0, or -1 with an exception set. */
static inline int gr_make_samples(gr_samples *samples, int integrand, double from, double to,
                                  Py_ssize_t n)
{
    if (integrand < 0 || integrand >= GR_INTEGRAND_COUNT || n < 2) {
        PyErr_SetString(PyExc_ValueError, "no such integrand, or fewer than 2 points");
        return -1;
    }
    samples->from = from;
    samples->to = to;
    samples->step = (to - from) / (double)(n - 1);
    samples->last = (uint64_t)n - 1;
    samples->integrand = integrand;
    samples->first = 0;
    return 0;
}
