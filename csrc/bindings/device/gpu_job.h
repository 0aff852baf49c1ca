/* Plans of sums of arrays on a GPU, for gpu_sum.c and gpu_parts.c. Includes Python.h. */
#ifndef GPUREDUCE_GPU_JOB_H
#define GPUREDUCE_GPU_JOB_H

#include "bindings/device/gpu_array.h"
#include "bindings/device/request.h"
#include "bindings/numpy_arrays.h"

/* Arguments of gr_py_sum_gpu(), gr_py_exact_gpu() and gr_py_begin_parts(). */
typedef struct {
    PyObject *object;
    PyObject *dtype;  /* of the sum; NULL: NumPy's choice */
    PyObject *common; /* makes the fields for gr_common_fields(); NULL: the sum is not timed */
    PyObject *check;  /* called with (kind, bytes per element, device) before the launch; or NULL or
                         None */
    gr_launch_request launch;
    bool as_digits;            /* integers are added up as float64 */
    unsigned long long stream; /* 0: the producer's */
    double start_ms;           /* gr_now_ms() when the call began */
} gr_asked;

/* The plan and outcome of one sum, or of two for the parts of complex numbers. */
typedef struct {
    gr_numpy_type result; /* of the sum */
    gr_elements elements;
    gr_request request;
    int choose;
    gr_outcome outcome[2];
} gr_job;

/* The workspace of a sum, opened when its device is known. */
typedef struct {
    gr_workspace *workspace;
    gr_error error;
} gr_opening;

/* Returns -1 with an exception set if the stream is being captured into a CUDA graph: waiting for
 * it would destroy the capture. */
int gr_refuse_capture(void *stream);

/* Describes an array and opens a workspace on its device. Returns 1, 0 if the object does not lie
 * on a GPU, or -1 with an exception set. In each case the caller closes the workspace, if there is
 * one, and calls gr_gpu_array_done(). */
int gr_open_array(PyObject *object, unsigned long long stream, gr_opening *opening,
                  gr_gpu_array *array);

/* Returns the name of a kind, which the number of bits completes. */
const char *gr_kind_name(int kind);

/* Takes over the dtype of the sum, or None. Returns 0, or -1 with an exception set. */
int gr_take_dtype(PyObject *dtype, gr_asked *asked);

/* Plans the sum. Returns 0, or -1 with an exception set. */
int gr_plan_job(const gr_asked *asked, const gr_gpu_array *array, gr_job *job);

/* Puts the launches of one part of complex numbers, or of real ones, on the stream. */
gr_status gr_begin_job(gr_workspace *workspace, gr_job *job, int part, gr_error *error);

/* If a kernel has faulted, appends to the message the memory that it read. */
void gr_blame(gr_error *error, const gr_job *job, const gr_gpu_array *array);

#endif
