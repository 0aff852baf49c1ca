/* Runs requests of the engine without the GIL, and turns their errors into exceptions. */
#ifndef GPUREDUCE_BINDINGS_DEVICE_RUN_H
#define GPUREDUCE_BINDINGS_DEVICE_RUN_H

#include "bindings/device/request.h"

/* Sets the Python exception for an error of the engine; returns NULL. */
PyObject *gr_raise(const gr_error *error);

/* gr_sum: 0, or -1 with an exception. */
int gr_run_sum(gr_request *request, int choose, int order, unsigned long long seed,
               gr_outcome *outcome);

/* gr_sum for Python: the sum's bits, times and launch; NULL with an exception. */
PyObject *gr_summed(gr_request *request, const gr_launch *launch);

/* gr_measure for Python: the times' bytes, block, grid and strategy; NULL with an exception. */
PyObject *gr_measured(gr_request *request, int choose, const gr_measurement *how);

#endif
