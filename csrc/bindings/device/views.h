/* The other arrays of a sum (masks, ids, results): their dimensions, and checks. For sums whose
 * result is an array. Includes Python.h. */
#pragma once

#include "bindings/device/gpu_array.h"
#include "bindings/numpy_arrays.h"
#include "engine/groups.h"

/* Describes a NumPy array, and the memory that it lies in. Returns 0, or -1 with an exception set
 * if it is no aligned array in native byte order, or if there are more bytes than elements have.
 * Elements may share memory unless they are `for_sums`. */
int gr_numpy_checked(PyObject *object, bool for_sums, gr_array *array, gr_span *span);

/* Describes an array that must be on the same device as another one. `name` is for errors. Returns
 * 0, or -1 with an exception set. */
int gr_view_beside(PyObject *object, const char *name, void *stream, int device, gr_array *array);

/* For gr_gpu_array_of(): the context is the stream. */
void *gr_callers_stream(void *context, int device);

/* Returns -1 with an exception set if the stream is being captured into a CUDA graph: waiting for
 * it would destroy the capture. */
int gr_refuse_capture(void *stream);

/* The Python type View: an array on a GPU as its producer described it, once. Never changes. */
typedef struct {
    PyObject_HEAD gr_array array;
    void *stream; /* for work on the array */
} gr_view_object;

extern PyTypeObject *gr_view_type;

/* Returns a View, which takes over the array; NULL with an exception set. */
PyObject *gr_new_view(gr_array *array, void *stream);

/* An array that `out` must not overlap. `array` may be NULL. */
typedef struct {
    const char *name;
    const gr_array *array;
} gr_input;

/* Checks that sums of so many bytes can be written to `out`. The inputs end with one without a
 * name. Returns 0, or -1 with an exception set. */
int gr_check_out(unsigned bytes, const gr_array *out, const gr_input *inputs);

/* Removes the last dimension of an array for digits, which has the words of one sum. Returns
 * whether it was one. */
bool gr_drop_words(gr_array *out, unsigned parts);

/* The bytes from the real part of a sum to the imaginary one. */
int gr_part_bytes(const gr_sums *sums);

/* Takes over the times of a sum, if there are any. If they have passed, returns milliseconds: (h2d,
 * kernel, d2h). Otherwise an object that reads them later, or None. NULL: an exception is set. */
PyObject *gr_times_of(gr_times *times, bool have_passed);

/* Converts a pair of numbers, for the real and the imaginary part, to sums. */
void gr_take_values(PyObject *const pair[2], gr_acc acc, gr_value value[2]);
