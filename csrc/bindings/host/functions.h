/* The functions of the module _host, for its table in module.c. */
#ifndef GPUREDUCE_BINDINGS_HOST_FUNCTIONS_H
#define GPUREDUCE_BINDINGS_HOST_FUNCTIONS_H

#include "bindings/python.h"

/* Adds the type Exact to the module. Returns 0, or -1 with an exception set. */
int gr_add_exact_type(PyObject *module);

PyObject *gr_py_sum_array(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *gr_py_sum_axis(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *gr_py_cpu_sum(PyObject *module, PyObject *args);
PyObject *gr_py_cpu_error_factor(PyObject *module, PyObject *args);
PyObject *gr_py_cpu_sum_samples(PyObject *module, PyObject *args);

#endif
