/* What the files of the Python face share: the only ones that know Python.h and NumPy. */
#ifndef GPUREDUCE_MODULE_H
#define GPUREDUCE_MODULE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
/* NumPy's table of functions is fetched once, by module.c, for all files. */
#define PY_ARRAY_UNIQUE_SYMBOL gr_numpy_api
#ifndef GR_IMPORTS_NUMPY
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>

#include "engine/engine.h"

/* Sets the Python exception that the engine's error stands for; returns NULL. */
PyObject *gr_raise(const gr_error *error);

/* SumResult(value, None), what a call without timing returns; NULL where `value` is. Takes over the
 * reference. */
PyObject *gr_untimed(PyObject *value);

/* Python flattens, aligns and converts; here it is only made sure that it did. NULL with an
 * exception if not. */
PyArrayObject *gr_check_array(PyObject *object, int load, int acc, int components);

/* gr_sum without the GIL: 0, or -1 with an exception. */
int gr_run_sum(gr_request *request, int choose, int order, unsigned long long seed,
               gr_outcome *outcome);

/* gr_measure for Python: the times' bytes, block, grid and strategy; NULL with an exception. */
PyObject *gr_measured(gr_request *request, int choose, const gr_measurement *how);

/* Adds the type Exact to the module: 0, or -1 with an exception. */
int gr_add_exact_type(PyObject *module);

/* Counting what kernels do: functions that only the traced build has; ends with an empty entry. */
extern PyMethodDef gr_trace_methods[];

/* Fills in what quick_sum knows of NumPy's types. */
void gr_learn_dtypes(void);

PyObject *gr_py_sum(PyObject *module, PyObject *args);
PyObject *gr_py_quick_sum(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *gr_py_quick_sum_sent(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *gr_py_environment(PyObject *module, PyObject *name);
PyObject *gr_py_sum_gpu(PyObject *module, PyObject *args);
PyObject *gr_py_quick_sum_gpu(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *gr_py_exact_gpu(PyObject *module, PyObject *args);
PyObject *gr_py_sum_samples(PyObject *module, PyObject *args);
PyObject *gr_py_cpu_sum_samples(PyObject *module, PyObject *args);
PyObject *gr_py_integrands(PyObject *module, PyObject *none);
PyObject *gr_py_takes_samples(PyObject *module, PyObject *args);

#endif
