/* Sums of arrays in host memory by kernels. */
#include "bindings/device/functions.h"

#include "bindings/device/run.h"
#include "bindings/gil.h"
#include "bindings/numpy_arrays.h"
#include "bindings/results.h"

#include <limits.h>

/* Reads a Launch, and the host array that it is for. Returns 0, or -1 with an exception set. */
static int read_array(PyObject *object, PyObject *how, gr_launch_request *launch)
{
    gr_request *request = &launch->request;
    if (gr_read_launch(how, GR_HOST_ARRAY, launch) < 0)
        return -1;
    PyArrayObject *array = gr_check_array(object, (int)request->load, (int)request->acc, 1);
    if (!array)
        return -1;
    request->data = PyArray_DATA(array);
    request->n = (size_t)PyArray_SIZE(array);
    return 0;
}

PyObject *gr_py_sum(PyObject *Py_UNUSED(self), PyObject *args)
{
    PyObject *object, *how;
    gr_launch_request launch;
    if (!PyArg_ParseTuple(args, "OO", &object, &how) || read_array(object, how, &launch) < 0)
        return NULL;
    return gr_summed(&launch);
}

/* The fast path for NumPy arrays that need no conversion: an untimed sum with all defaults. Returns
 * None for all other objects, which gpureduce/core/on_device.py handles. Both paths give the same
 * bits. */
PyObject *gr_py_sum_host_untimed(PyObject *Py_UNUSED(module), PyObject *const *args,
                                 Py_ssize_t count)
{
    if (count != 3) {
        PyErr_SetString(PyExc_TypeError, "expected an array, a strategy's number and a device's");
        return NULL;
    }
    int asked;
    if (gr_strategy_of(args[1], &asked) < 0)
        return NULL;
    long device = PyLong_AsLong(args[2]);
    if (!PyErr_Occurred() && (device < 0 || device > INT_MAX))
        PyErr_Format(PyExc_ValueError, "there is no device %ld", device);
    if (PyErr_Occurred())
        return NULL;
    const gr_numpy_type *type = gr_numpy_type_of(args[0]);
    if (!type || type->components != 1)
        Py_RETURN_NONE;
    PyArrayObject *array = (PyArrayObject *)args[0];
    gr_launch_request launch = {.request = {
                                    .data = PyArray_DATA(array),
                                    .n = (size_t)PyArray_SIZE(array),
                                    .load = type->load,
                                    .acc = type->acc,
                                    .device = (int)device,
                                }};
    gr_pick(asked, gr_adds_integers(type), &launch.request);
    gr_outcome outcome;
    if (gr_run_sum(&launch, &outcome, NULL) < 0)
        return NULL;
    return gr_untimed(gr_scalar_of(&outcome, launch.request.strategy, type));
}

PyObject *gr_py_measure(PyObject *Py_UNUSED(self), PyObject *args)
{
    PyObject *object, *asked;
    gr_launch_request launch;
    unsigned copies, repeats, warmups;
    Py_ssize_t offset;
    int apart, load_only;
    if (!PyArg_ParseTuple(args, "OOIIInpp", &object, &asked, &copies, &warmups, &repeats, &offset,
                          &apart, &load_only) ||
        read_array(object, asked, &launch) < 0)
        return NULL;
    if (!copies || !repeats || offset < 0 || !launch.request.n) {
        PyErr_SetString(PyExc_ValueError,
                        "copies, repeats and the length of the array must be at least 1");
        return NULL;
    }
    launch.request.on_device = 1;
    gr_measurement how = {copies, warmups, repeats, (size_t)offset, apart, load_only};
    return gr_measured(&launch.request, &how);
}

PyObject *gr_py_write_pinned(PyObject *Py_UNUSED(self), PyObject *args)
{
    Py_buffer to, from;
    if (!PyArg_ParseTuple(args, "w*y*", &to, &from))
        return NULL;
    int failed = to.len != from.len || to.len == 0;
    if (failed) {
        PyErr_SetString(PyExc_ValueError, "expected two arrays of as many bytes, at least 1");
    } else {
        gr_without_gil call;
        gr_drop_gil(&call);
        gr_write_pinned(to.buf, from.buf, (size_t)to.len);
        failed = gr_take_gil(&call);
    }
    PyBuffer_Release(&to);
    PyBuffer_Release(&from);
    return failed ? NULL : Py_NewRef(Py_None);
}
