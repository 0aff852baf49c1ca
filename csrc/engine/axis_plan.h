/* Plans the launch of a sum along axes. For the files of the engine only. */
#pragma once

#include "engine/axis_form.h"

#include <stdbool.h>
#include <string.h>

/* One launch. `matrix` describes the array to the kernels for rows or columns, `layout` to
 * any_layout and any_ranges. */
typedef struct {
    const gr_groups_request *request;
    const gr_strategy *strategy;
    gr_kernel *kernel;
    gr_matrix matrix;
    gr_layout layout;
    gr_sums sums; /* where the sums go in the end */
    int packed;   /* sum k is stored at element k */
    unsigned block, shares;
    size_t grid, shared_bytes, sum_count, terms;
    size_t pieces;                 /* partial sums of each sum */
    unsigned row_team;             /* threads per row of row_lanes */
    unsigned teams, fold, tail;    /* of column_tiles */
    unsigned per_lane, tile_bytes; /* of row_tile */
    unsigned team;                 /* of any_layout and any_ranges */
    unsigned lanes;                /* of exact_levels, per sum, or 0 for other kernels; .. */
    size_t level_shares;           /* .. warps that share a sum */
    size_t words;                  /* .. that they need in global memory, zeroed */
    bool is_apart;                 /* another launch finishes the results, such as means */
    bool adds_again;               /* this launch itself adds up unproven sums again */
} gr_axis_plan;

/* Chooses the kernel, if the request does not name one, and its launch. */
gr_status gr_plan_axis(const gr_groups_request *request, gr_axis_plan *plan, gr_error *error);

/* Plans what does not depend on the kernel, for a sum that takes several launches. */
void gr_start_axis_plan(const gr_groups_request *request, gr_axis_plan *plan);

/* Whether only kernels that add up digits can make these sums. They take any number of elements. */
bool gr_needs_digits(const gr_groups_request *request);

/* Plans the second launch, which adds up the shares that the first one has left in `partial`. */
gr_status gr_plan_shares(const gr_axis_plan *first, const void *partial, gr_axis_plan *plan,
                         gr_error *error);

/* Plans the last launch of exact sums, which adds up the unproven ones again. */
gr_status gr_plan_levels(const gr_axis_plan *first, gr_axis_plan *plan, gr_error *error);

/* Plans the launch that makes results of complex numbers. `parts`: the sums of x and of x^2 of each
 * group's real parts, and after these of its imaginary parts. */
gr_status gr_plan_join(const gr_groups_request *request, const void *parts, gr_axis_plan *plan,
                       gr_error *error);

/* Launches. `partial`: where the sums of shares go; NULL if this launch stores the results.
 * `words`: memory for plan->words words. */
gr_status gr_launch_axis(gr_axis_plan *plan, void *partial, uint64_t *words, gr_launched *launched,
                         gr_error *error);

/* --- for axis_plan.c and axis_matrix.c ---------------------------------------------------------
 */

enum { GR_AXIS_BLOCK = 256, GR_SM_THREADS = 2048 };

static inline size_t gr_sms_of(const gr_axis_plan *plan)
{
    return gr_facts_of(plan->request->device)->sms;
}

static inline bool gr_is_kernel(const gr_axis_plan *plan, const char *name)
{
    return strcmp(plan->strategy->name, name) == 0;
}

/* Whether row_products adds up the products of the plan's rows. */
bool gr_takes_products(const gr_axis_plan *plan);

/* The name of the best kernel. */
const char *gr_choose_rows(const gr_axis_plan *plan);
const char *gr_choose_columns(const gr_axis_plan *plan);

/* Choose the launch of the kernel. */
gr_status gr_shape_rows(gr_axis_plan *plan, gr_error *error);
gr_status gr_shape_columns(gr_axis_plan *plan, gr_error *error);

/* Chooses the launch of row_lanes for so many rows. */
void gr_shape_lanes(gr_axis_plan *plan, size_t rows);
