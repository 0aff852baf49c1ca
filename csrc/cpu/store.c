#include "cpu/store.h"

#include "cpu/kernels.h"

/* The compiler vectorizes these loops. */

static uint64_t size_bits(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits & INT64_MAX;
}

bool gr_all_finite(const double *x, size_t n)
{
    uint64_t most = 0; /* its high bit is set if one is inf or nan */
    for (size_t i = 0; i < n; i++)
        most |= size_bits(x[i]) + ((uint64_t)1 << 52);
    return most >> 63 == 0;
}

bool gr_all_zero(const double *x, size_t n)
{
    uint64_t any = 0;
    for (size_t i = 0; i < n; i++)
        any |= size_bits(x[i]);
    return any == 0;
}

void gr_store_floats(unsigned char *to, ptrdiff_t step, const double *x, size_t n, gr_load target)
{
    if (target == GR_LOAD_f32 && step == sizeof(float)) {
        gr_cpu_best()->store_f32(x, n, to);
    } else if (target == GR_LOAD_f64 && step == sizeof(double)) {
        for (size_t i = 0; i < n; i++) {
            uint64_t bits;
            memcpy(&bits, x + i, sizeof bits);
            bits = x[i] == x[i] ? bits : (uint64_t)0x7ff8 << 48;
            memcpy(to + i * sizeof bits, &bits, sizeof bits);
        }
    } else {
        for (size_t i = 0; i < n; i++, to += step)
            gr_store_float(to, x[i], target);
    }
}
