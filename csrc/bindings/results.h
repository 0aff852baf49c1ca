/* SumResult (host/sum_result.c) and Timing (gpureduce/core/results.py), made without running Python
 * code, which would take longer than a small sum. */
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* All modules make objects of this layout, of the type that _host defines. */
typedef struct {
    PyObject_HEAD PyObject *value, *timing;
} gr_sum_result;

/* The fields of a Timing that differ from sum to sum. */
typedef enum {
    GR_KERNEL_MS,
    GR_ELAPSED, /* in place of kernel_ms and d2h_ms: an object that reads them later */
    GR_TOTAL_MS,
    GR_BLOCK,
    GR_GRID,
    GR_LAUNCHES,
    GR_N,
    GR_NBYTES,
    GR_FIELDS,
} gr_field;

/* Returns the fields that all sums of a kind have in common: a borrowed dict, or NULL with an
 * exception set. `make` makes it of the arguments when the kind's `key` is first seen. */
PyObject *gr_common_fields(unsigned long long key, PyObject *make, const char *format, ...);

/* Returns SumResult(value, Timing), or NULL with an exception set. Steals `value` and `fields`,
 * each of which may be NULL: the sum failed, or the common fields have it. */
PyObject *gr_timed(PyObject *value, PyObject *common, PyObject *const fields[GR_FIELDS]);

/* Returns SumResult(value, None), the result of an untimed call, or NULL with an exception set.
 * Steals `value`. If `value` is NULL, passes the exception on. */
PyObject *gr_untimed(PyObject *value);
