/* Runs engine requests without the GIL and turns their errors into exceptions. */
#pragma once

#include "bindings/device/request.h"
#include "bindings/gil.h"
#include "bindings/numpy_arrays.h"

/* Sets the Python exception for an engine error. Returns NULL. */
PyObject *gr_raise(const gr_error *error);

/* A call of the engine without the GIL, which stores errors in `error`. */
typedef struct {
    gr_without_gil gil;
    int device; /* the thread's current one before the call */
    gr_error error;
} gr_call;

/* Starts a call. `order` and `seed` are of the emulator's threads. 0 is the forward order, also if
 * an earlier call of this thread has set another order. */
void gr_begin_call(gr_call *call, int order, unsigned long long seed);

/* Ends it. Returns 0, or -1 with an exception set. */
int gr_end_call(gr_call *call);

/* Calls gr_sum, and times it if the launch is timed. Returns 0, or -1 with an exception set. */
int gr_run_sum(gr_launch_request *launch, gr_outcome *outcome, gr_milliseconds *ms);

/* Calls gr_sum for Python. Returns the sum's bits, its times and its launch, or NULL with an
 * exception set. */
PyObject *gr_summed(gr_launch_request *launch);

/* The sum of these outcomes, one per part of complex numbers, as a NumPy scalar; NULL with an
 * exception set. */
PyObject *gr_scalar_of(const gr_outcome *outcome, int strategy, const gr_numpy_type *type);

/* Whether a strategy leaves digits, which must be rounded. */
bool gr_makes_digits(int strategy);

/* Returns an Elapsed, or NULL with an exception set. Takes over `times` in either case. */
PyObject *gr_elapsed_of(gr_times *times);

/* Calls gr_measure for Python. Returns the times as bytes, block, grid and strategy, or NULL with
 * an exception set. */
PyObject *gr_measured(gr_request *request, const gr_measurement *how);
