/* The functions of the module _host, for its table in module.c. */
#pragma once

#include "bindings/numpy_arrays.h"
#include "bindings/python.h"
#include "shared/axes.h"

#include <stdbool.h>

/* Facts of a timed call. They are read before the sum, during which another thread may change the
 * array's dtype or shape. */
typedef struct {
    Py_ssize_t n, nbytes;
    unsigned kind;   /* of sums whose timings have most fields in common */
    PyObject *dtype; /* a reference, which gr_timed_on_host() drops */
    bool rounds_once;
    double start_ms;
} gr_call_facts;

gr_call_facts gr_facts_of_call(PyArrayObject *array, bool rounds_once);

/* Returns SumResult(value, Timing), or NULL with an exception set. Steals `value`, which is NULL if
 * the sum failed. `make` makes the fields that such sums have in common. */
PyObject *gr_timed_on_host(PyObject *value, gr_call_facts *facts, PyObject *make, double kernel_ms);

/* Adds the type Exact to the module. Returns 0, or -1 with an exception set. */
int gr_add_exact_type(PyObject *module);

/* Adds the types ContextValue and SumResult, likewise. */
int gr_add_context_value_type(PyObject *module);
int gr_add_sum_result_type(PyObject *module);

/* Returns 0 if there is no error, or -1 with an exception set. `added` is the first word. */
int gr_check_words(gr_words_error error, long long added);

/* Takes over an int, or a pair of tuples of floats. Returns 0, or -1 with an exception set. */
int gr_take_initial(PyObject *initial, gr_initial *taken);

/* The data of a contiguous array of exactly this many bytes; NULL for other objects. */
void *gr_data_of(PyObject *object, size_t bytes);

/* Marks the axes of an array of `dims` dimensions: None, a number, or a tuple of numbers. Returns
 * false, without an exception, if one is no whole number, is a bool, does not exist or comes twice.
 */
bool gr_take_axes(PyObject *axis, int dims, bool *reduced);

PyObject *gr_py_sum_digits(PyObject *module, PyObject *args);
PyObject *gr_py_round_digits(PyObject *module, PyObject *args);
PyObject *gr_py_finish_digits(PyObject *module, PyObject *args);
PyObject *gr_py_sum_array(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *gr_py_unrounded_axes(PyObject *module, PyObject *args);
PyObject *gr_py_sum_axis(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *gr_py_finish_sums(PyObject *module, PyObject *args);
PyObject *gr_py_finish_plainly(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *gr_py_finish(PyObject *module, PyObject *args);
PyObject *gr_py_rolling(PyObject *module, PyObject *args);
PyObject *gr_py_running_sums(PyObject *module, PyObject *args);
PyObject *gr_py_sum_segments(PyObject *module, PyObject *args);
PyObject *gr_py_number_groups(PyObject *module, PyObject *args);
PyObject *gr_py_sum_levels(PyObject *module, PyObject *args);
PyObject *gr_py_finish_segments(PyObject *module, PyObject *args);
PyObject *gr_py_cpu_error_factor(PyObject *module, PyObject *args);
PyObject *gr_py_are_bools(PyObject *module, PyObject *array);
PyObject *gr_py_cpu_sum_samples(PyObject *module, PyObject *args);
