/* What the tasks for rows (axis_job.c) and for columns (axis_columns.c) share. */
#pragma once

#include "cpu/axis_job.h"
#include "shared/sizes.h"

enum { GR_AXIS_TASK_BYTES = 1 << 17 }; /* of input; smaller units of work are joined */

/* Whether elements are added as they are: in their own byte order, and without a mask. */
bool gr_axis_is_plain(const gr_axes *axes);

/* Runs tasks, on one thread if they are small. */
void gr_axis_run_tasks(gr_axis_job *job, size_t tasks, void (*run)(size_t task, void *context));

/* Notes that there is too little memory. */
void gr_axis_fail(gr_axis_job *job);

/* Calls `each` with runs of the sums first to first + n. */
void gr_axis_for_runs(const gr_axis_job *job, size_t first, size_t n,
                      void (*each)(const gr_axis_job *job, gr_axis_run *run, void *context),
                      void *context);

/* Adds up columns. Returns false if there is too little memory. */
bool gr_axis_run_columns(gr_axis_job *job);
