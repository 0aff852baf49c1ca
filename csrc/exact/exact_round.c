/* Rounding an accumulator to a float. */
#include "exact/round.h"

uint64_t gr_exact_round(const gr_exact *acc, gr_load target)
{
    gr_exact normal = *acc;
    gr_exact_normalize(&normal);
    return gr_round_normalized(&normal, target);
}

static double as_f64(const gr_exact *acc)
{
    uint64_t bits = gr_exact_round(acc, GR_LOAD_f64);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

void gr_exact_split(const gr_exact *acc, double numbers[4])
{
    gr_exact left = *acc;
    for (int i = 0; i < 4; i++) {
        numbers[i] = as_f64(&left);
        gr_exact_add_f64(&left, -numbers[i]);
    }
}
