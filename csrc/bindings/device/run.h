/* Runs engine requests without the GIL and turns their errors into exceptions. */
#ifndef GPUREDUCE_BINDINGS_DEVICE_RUN_H
#define GPUREDUCE_BINDINGS_DEVICE_RUN_H

#include "bindings/device/request.h"

/* Sets the Python exception for an engine error. Returns NULL. */
PyObject *gr_raise(const gr_error *error);

/* Calls gr_sum. Also times the sum, unless `ms` is NULL. Returns 0, or -1 with an exception set. */
int gr_run_sum(gr_request *request, int choose, int order, unsigned long long seed,
               gr_outcome *outcome, gr_milliseconds *ms);

/* Calls gr_sum for Python. Returns the sum's bits, its times and its launch, or NULL with an
 * exception set. */
PyObject *gr_summed(gr_request *request, const gr_launch_request *launch);

/* Calls gr_measure for Python. Returns the times as bytes, block, grid and strategy, or NULL with
 * an exception set. */
PyObject *gr_measured(gr_request *request, int choose, const gr_measurement *how);

#endif
