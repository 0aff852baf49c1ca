#include "cpu/store.h"

#include "cpu/kernels.h"

static uint64_t size_bits(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits & INT64_MAX;
}

bool gr_all_finite(const double *x, size_t n)
{
    return gr_cpu_best()->all_finite(x, n);
}

bool gr_all_zero(const double *x, size_t n)
{
    uint64_t any = 0;
    for (size_t i = 0; i < n; i++)
        any |= size_bits(x[i]);
    return any == 0;
}

void gr_round_to_f32(double *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (double)(float)x[i];
}

void gr_store_floats(unsigned char *to, ptrdiff_t step, const double *x, size_t n, gr_load target)
{
    if (target == GR_LOAD_f32 && step == sizeof(float)) {
        gr_cpu_best()->store_f32(x, n, to);
    } else if (target == GR_LOAD_bf16 && step == sizeof(uint16_t)) {
        gr_cpu_best()->store_bf16(x, n, to);
    } else if (target == GR_LOAD_f64 && step == sizeof(double)) {
        gr_cpu_best()->store_f64(x, n, to);
    } else {
        for (size_t i = 0; i < n; i++, to += step)
            gr_store_float(to, x[i], target);
    }
}
