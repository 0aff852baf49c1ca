/* How a sample is computed, the same for the CPU and for kernels: GR_SAMPLING says what kind of
 * function this is. Not inlined: a kernel that takes 16 samples at a time would hold all functions
 * 16 times. */
#include "shared/samples.h"

#include <math.h>

GR_SAMPLING double gr_integrand(int integrand, double x)
{
    switch (integrand) {
#define INTEGRAND(name, formula, from, to, exact, lesson)                                          \
    case GR_INTEGRAND_##name:                                                                      \
        return formula;
#include "integrands.def"
#undef INTEGRAND
    default: return 0;
    }
}

/* The i-th sample with its weight: a half at either end. The last point is `to` itself, not what
 * rounding makes of it, since a function may end there. */
GR_SAMPLING double gr_sample(const gr_samples *samples, uint64_t i)
{
    double x = i == samples->last ? samples->to : samples->from + (double)i * samples->step;
    double y = gr_integrand(samples->integrand, x);
    return i == 0 || i == samples->last ? 0.5 * y : y;
}
