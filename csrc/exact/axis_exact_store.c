/* Rounds and stores one sum along axes. */
#include "exact/axis_exact_job.h"

#include "cpu/store.h"

#include <float.h>
#include <math.h>
#include <string.h>

static void store_numbers(const gr_exact_axes *how, const gr_unrounded *sum, unsigned char *out)
{
    memcpy(out, &sum->high, sizeof sum->high);
    memcpy(out + how->apart, &sum->low, sizeof sum->low);
    memcpy(out + 2 * how->apart, &sum->tail, sizeof sum->tail);
    memcpy(out + 3 * how->apart, &sum->error, sizeof sum->error);
}

void gr_store_unknown(const gr_exact_axes *how, unsigned char *out)
{
    store_numbers(how, &(gr_unrounded){0, 0, 0, (double)NAN}, out);
}

static double error_factor(const gr_exact_axes *how)
{
    return how->additions * 0x1p-52 * (1 + 0x1p-50);
}

static bool is_finite(const gr_unrounded *sum)
{
    return gr_magnitude(sum->high) + gr_magnitude(sum->low) + gr_magnitude(sum->tail) +
               sum->error <=
           DBL_MAX;
}

bool gr_store_unrounded(const gr_exact_axes *how, const double *planes, size_t stride, size_t n,
                        unsigned char *out, ptrdiff_t out_step)
{
    const double *bound = planes + 3 * stride;
    double factor = error_factor(how);
    bool fits = how->apart && out_step == sizeof(double);
    for (size_t i = 0; i < 4 && fits; i++)
        fits = gr_all_finite(planes + i * stride, n);
    for (ptrdiff_t i = 0; i < 3 && fits; i++)
        memcpy(out + i * how->apart, planes + (size_t)i * stride, n * sizeof *planes);
    out += 3 * how->apart;
    for (size_t i = 0; i < n && fits; i++) {
        double error = factor * bound[i];
        memcpy(out + i * sizeof error, &error, sizeof error);
    }
    return fits;
}

bool gr_store_proven(const gr_exact_axes *how, gr_proven3 sum, int part, unsigned char *out)
{
    double rounded;
    for (int i = 0; i < how->initial->count[part]; i++)
        gr_proven3_add(&sum, how->initial->terms[part][i]);
    if (how->apart) {
        gr_unrounded found = {sum.sum, sum.rest, sum.tail, error_factor(how) * sum.bound};
        if (is_finite(&found))
            store_numbers(how, &found, out);
        return is_finite(&found);
    }
    if (!gr_proven3_finish(&sum, how->additions, how->format.fraction, how->format.unit, &rounded))
        return false;
    gr_store_float(out, rounded, how->target);
    return true;
}

gr_unrounded gr_unrounded_of(const gr_exact *sum)
{
    double part[4];
    gr_exact_split(sum, part);
    gr_unrounded found = {part[0], part[1], part[2], 2 * gr_magnitude(part[3])};
    bool is_known = !sum->flags && is_finite(&found);
    return is_known ? found : (gr_unrounded){0, 0, 0, (double)NAN};
}

void gr_store_exact(const gr_exact_axes *how, gr_exact *sum, int part, unsigned char *out)
{
    for (int i = 0; i < how->initial->count[part]; i++)
        gr_exact_add_f64(sum, how->initial->terms[part][i]);
    if (how->apart) {
        gr_unrounded found = gr_unrounded_of(sum);
        store_numbers(how, &found, out);
        return;
    }
    uint64_t bits = gr_exact_round(sum, how->target);
    gr_store_integer(out, bits, how->target);
}
