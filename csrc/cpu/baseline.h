/* For every processor of the architecture: SSE2, NEON. */
#ifndef GPUREDUCE_BASELINE_H
#define GPUREDUCE_BASELINE_H

#define VECTOR_BYTES 16
#include "cpu/vectors.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

/* Intrinsics, because GCC 12 compiles __builtin_convertvector to one conversion at a time. */
INLINE doubles widen(floats x)
{
#if defined(__x86_64__)
    double bits;
    memcpy(&bits, &x, sizeof bits);
    return (doubles)_mm_cvtps_pd(_mm_castpd_ps(_mm_set_sd(bits)));
#elif defined(__aarch64__)
    return (doubles)vcvt_f64_f32((float32x2_t)x);
#else
    return __builtin_convertvector(x, doubles);
#endif
}

INLINE floats narrow(doubles x)
{
    return __builtin_convertvector(x, floats);
}

enum { NARROWS_QUIETLY = 0 };

#endif
