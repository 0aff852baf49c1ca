/* Computes samples, in the same way on the CPU and in kernels. GR_SAMPLING holds the functions'
 * declaration specifiers. The functions are not inlined: a kernel that computes 16 samples at a
 * time would contain each integrand 16 times. */
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

/* The i-th sample times its weight, which is a half at either end. The last point is `to` itself: a
 * rounded value might lie outside the function's domain. */
GR_SAMPLING double gr_sample(const gr_samples *samples, uint64_t i)
{
    double x = i == samples->last ? samples->to : samples->from + (double)i * samples->step;
    double y = gr_integrand(samples->integrand, x);
    return i == 0 || i == samples->last ? 0.5 * y : y;
}
