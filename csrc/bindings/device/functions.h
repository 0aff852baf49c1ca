/* The functions of a device's module, for its table in module.c. */
#pragma once

#include "bindings/python.h"

/* The functions for counters and race detection, which only the traced build has. Ends with an
 * empty entry. */
extern PyMethodDef gr_trace_methods[];

PyObject *gr_py_add_kernel(PyObject *module, PyObject *args);
PyObject *gr_py_load_kernels(PyObject *module, PyObject *args);
PyObject *gr_py_guard_memory(PyObject *module, PyObject *none);
PyObject *gr_py_sum(PyObject *module, PyObject *args);
PyObject *gr_py_sum_host_untimed(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *gr_py_measure(PyObject *module, PyObject *args);
PyObject *gr_py_write_pinned(PyObject *module, PyObject *args);
PyObject *gr_py_sum_gpu(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *gr_py_exact_gpu(PyObject *module, PyObject *args);
PyObject *gr_py_allocate(PyObject *module, PyObject *args);

PyObject *gr_py_begin_parts(PyObject *module, PyObject *args);

/* Makes the type of what gr_py_begin_parts() returns. Returns 0, or -1 with an exception set. */
int gr_make_parts_type(PyObject *module);

/* Makes the type View (views.h). Returns 0, or -1 with an exception set. */
int gr_make_view_type(PyObject *module);

/* Makes the type Elapsed. Returns 0, or -1 with an exception set. */
int gr_make_elapsed_type(PyObject *module);

/* Makes the type Memory. Returns 0, or -1 with an exception set. */
int gr_make_memory_type(PyObject *module);

PyObject *gr_py_request(PyObject *module, PyObject *args, PyObject *named);
PyObject *gr_py_run(PyObject *module, PyObject *args);
PyObject *gr_py_view(PyObject *module, PyObject *args);
PyObject *gr_py_view_index(PyObject *module, PyObject *args);
PyObject *gr_py_largest_id(PyObject *module, PyObject *index);
PyObject *gr_py_sum_samples(PyObject *module, PyObject *args);
PyObject *gr_py_takes_samples(PyObject *module, PyObject *args);
PyObject *gr_py_set_choices(PyObject *module, PyObject *args);
PyObject *gr_py_get_choices(PyObject *module, PyObject *args);
