/* Rounds and stores one sum along axes. */
#include "exact/axis_exact_job.h"

#include "cpu/store.h"

#include <string.h>

/* Rounds to odd: to float64, toward zero, and sets the last bit if that is inexact. Rounding this
 * to a narrower format is right even next to the middle between two numbers, where
 * gr_proven_round() proves nothing. Returns whether the sign of what follows the first 53 bits is
 * known. */
static bool round_to_odd(const gr_proven3 *of, double additions, double *odd)
{
    double high = of->sum, low = gr_two_sum(&high, of->rest), tail = gr_two_sum(&low, of->tail);
    double last = low, error = gr_magnitude(tail) + additions * 0x1p-51 * of->bound;
    uint64_t bits;
    low = gr_two_sum(&high, last);
    if (!(gr_magnitude(high) > 0x1p-900 && gr_magnitude(high) < 0x1p900 &&
          gr_magnitude(low) > 2 * error))
        return false;
    memcpy(&bits, &high, sizeof bits);
    bits = (bits - ((high > 0) != (low > 0))) | 1;
    memcpy(odd, &bits, sizeof bits);
    return true;
}

bool gr_store_proven(const gr_exact_axes *how, gr_proven3 sum, int part, unsigned char *out)
{
    double rounded;
    for (int i = 0; i < how->initial->count[part]; i++)
        gr_proven3_add(&sum, how->initial->terms[part][i]);
    if (!gr_proven3_finish(&sum, how->additions, how->format.fraction, how->format.unit,
                           &rounded) &&
        (how->target == GR_LOAD_f64 || !round_to_odd(&sum, how->additions, &rounded)))
        return false;
    gr_store_float(out, rounded, how->target);
    return true;
}

void gr_store_exact(const gr_exact_axes *how, gr_exact *sum, int part, unsigned char *out)
{
    for (int i = 0; i < how->initial->count[part]; i++)
        gr_exact_add_f64(sum, how->initial->terms[part][i]);
    uint64_t bits = gr_exact_round(sum, how->target);
    gr_store_integer(out, bits, how->target);
}
