/* Integrals by kernels: sums over the samples of a compiled-in function. */
#include "bindings/device/functions.h"

#include "bindings/device/run.h"
#include "bindings/samples.h"
#include "engine/compiled_kernels.h"

PyObject *gr_py_sum_samples(PyObject *Py_UNUSED(self), PyObject *args)
{
    int integrand;
    double from, to;
    Py_ssize_t n;
    PyObject *asked;
    unsigned repeats;
    gr_launch_request launch;
    gr_samples samples;
    if (!PyArg_ParseTuple(args, "iddnOI", &integrand, &from, &to, &n, &asked, &repeats) ||
        gr_make_samples(&samples, integrand, from, to, n) < 0 ||
        gr_read_launch(asked, GR_SAMPLES, &launch) < 0)
        return NULL;
    launch.request.n = (size_t)n;
    launch.request.load = GR_LOAD_samples;
    launch.request.on_device = 1;
    launch.request.samples = &samples;
    if (repeats) {
        gr_measurement how = {.copies = 1, .warmups = 2, .repeats = repeats};
        return gr_measured(&launch.request, &how);
    }
    return gr_summed(&launch);
}

PyObject *gr_py_takes_samples(PyObject *Py_UNUSED(self), PyObject *args)
{
    PyObject *number;
    int strategy;
    if (!PyArg_ParseTuple(args, "O", &number) || gr_strategy_of(number, &strategy) < 0)
        return NULL;
    if (strategy < 0)
        Py_RETURN_FALSE;
    return PyBool_FromLong(gr_find_kernel(strategy, GR_LOAD_samples, GR_ACC_f64, 256) != NULL);
}
