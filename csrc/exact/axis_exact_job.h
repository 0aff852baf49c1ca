/* What the files for correctly rounded sums along axes share. */
#pragma once

#include "cpu/axis_job.h"
#include "cpu/kernels.h"
#include "exact/axis_exact.h"
#include "exact/exact.h"
#include "exact/format.h"
#include "exact/proven.h"
#include "exact/proven_kernels.h"

typedef struct {
    gr_load target;
    gr_format format; /* of the target */
    const gr_initial *initial;
    double additions;
    const gr_proven_kernels *kernels;
    gr_proven_rows_kernel *rows;
    gr_proven_columns_kernel *columns;
    /* Sums in float64 are exact if no addition raises the inexact flag: most of float32 and
     * bfloat16 are. */
    gr_float_rows_kernel *plain_rows;
    gr_float_columns_kernel *plain_columns;
    /* For float64 elements. */
    gr_bin_rows_kernel *bin_rows;
    gr_bin_columns_kernel *bin_columns;
    bool flags;      /* the processor has an inexact flag */
    bool whole;      /* float64 sums are always right */
    ptrdiff_t apart; /* bytes between the numbers of an unrounded sum; 0: sums are rounded */
    bool has_terms;  /* terms are summed in place of elements */
} gr_exact_axes;

/* Whether sums of a part are only rounded: no initial number, no unrounded result. */
static inline bool gr_only_rounds(const gr_exact_axes *how, int part)
{
    return how->initial->count[part] == 0 && !how->apart;
}

static inline const gr_exact_axes *gr_exact_axes_of(const gr_axis_job *job)
{
    return job->context;
}

/* Records whether a fast method was right (`easy`), which it returns. After a failure, the method
 * is skipped until `pause` has counted down to 0. */
static inline bool gr_exact_tries(int *pause, bool easy)
{
    enum { NOT_TRIED = 4 };
    *pause = *pause > 0 ? *pause - 1 : easy ? 0 : NOT_TRIED;
    return easy;
}

/* The sum whose numbers are in planes, `stride` apart. */
static inline gr_proven3 gr_sum_at(const double *planes, size_t stride)
{
    return (gr_proven3){planes[0], planes[stride], planes[2 * stride], planes[3 * stride]};
}

/* Stores the sum if it is proven. Returns whether it is. */
bool gr_store_proven(const gr_exact_axes *how, gr_proven3 sum, int part, unsigned char *out);

/* Stores n unrounded sums at adjacent places, if the job wants unrounded sums and all are finite.
 * Returns whether it has stored them. */
bool gr_store_unrounded(const gr_exact_axes *how, const double *planes, size_t stride, size_t n,
                        unsigned char *out, ptrdiff_t out_step);

/* Stores an unrounded sum whose error is nan: its value is unknown. */
void gr_store_unknown(const gr_exact_axes *how, unsigned char *out);

/* Adds the initial number to an accumulator, rounds it and stores it. */
void gr_store_exact(const gr_exact_axes *how, gr_exact *sum, int part, unsigned char *out);

/* The adder of columns (axis_job.h). */
enum { GR_EXACT_PLANES = 4 }; /* the members of gr_proven3 */
int gr_exact_planes(const gr_axis_job *job);
void gr_exact_start(const gr_axis_job *job, gr_columns *sums);
void gr_exact_add(const gr_axis_job *job, gr_columns *sums, const unsigned char *const *rows,
                  size_t count);
void gr_exact_add_terms(const gr_axis_job *job, gr_columns *sums, const unsigned char *const *rows,
                        size_t count);
void gr_exact_end(const gr_axis_job *job, gr_columns *sums);
void gr_exact_merge_columns(const gr_axis_job *job, gr_columns *sums, const double *later);
void gr_exact_fold(const gr_axis_job *job, gr_columns *sums, size_t width);
void gr_exact_store(const gr_axis_job *job, gr_columns *sums, size_t first, const gr_axis_run *run);
bool gr_exact_assume(const gr_axis_job *job, gr_columns *sums);
