/* Sums of whole arrays on a GPU: plan, begin, end, close. For gpu_sum.c and gpu_parts.c. Includes
 * Python.h. */
#pragma once

#include "bindings/device/gpu_array.h"
#include "bindings/device/request.h"
#include "bindings/numpy_arrays.h"

/* A request: the arguments of gr_py_sum_gpu(), gr_py_exact_gpu() and gr_py_begin_parts(). */
typedef struct {
    PyObject *dtype; /* of the sum; NULL: NumPy's choice */
    PyObject *check; /* called with (kind, bytes per element, device) before the launch; or NULL or
                        None */
    gr_launch_request launch;
    bool timed;
    bool as_digits;            /* integers are summed as float64 */
    unsigned long long stream; /* 0: the producer's */
} gr_asked;

/* One sum, or two for the parts of complex numbers. Begins as zeros. */
typedef struct {
    gr_array array;
    gr_workspace *workspace; /* opened when the array's device is known */
    gr_error error;          /* of the opening */
    gr_numpy_type result;    /* of the sum */
    gr_elements elements;
    gr_request request;
    gr_outcome outcome[2];
    bool on_gpu, has_begun, has_ended;
} gr_job;

/* Returns the name of a kind, which the number of bits completes. */
const char *gr_kind_name(int kind);

/* Takes over the dtype of the sum, or None, and the launch. Returns 0, or -1 with an exception set.
 */
int gr_read_asked(PyObject *dtype, PyObject *launch, gr_asked *asked);

/* Describes an array, opens a workspace on its device, and plans the sum. Returns 1, 0 if the
 * object does not lie on a GPU, or -1 with an exception set. In each case the caller closes the
 * job.
 */
int gr_plan_job(const gr_asked *asked, PyObject *object, gr_job *job);

/* Puts the launches of one part of complex numbers, or of real ones, on the stream. */
gr_status gr_begin_job(gr_job *job, int part, gr_error *error);

/* Waits for one part's sum. */
gr_status gr_end_job(gr_job *job, int part, gr_error *error);

/* If a kernel has faulted, appends to the message the memory that it read. */
void gr_blame(gr_error *error, const gr_job *job);

/* Gives back what the job holds. May be called again. */
void gr_close_job(gr_job *job);
