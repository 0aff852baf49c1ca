/* Sums of arrays in host memory by kernels. */
#include "bindings/device/functions.h"

#include "bindings/device/run.h"
#include "bindings/gil.h"
#include "bindings/numpy_arrays.h"
#include "bindings/results.h"

#include <limits.h>

/* Fills in a request for a host array. Returns NULL with an exception set if the array does not fit
 * the launch's element type. */
static PyArrayObject *read_array(PyObject *object, const gr_launch_request *launch,
                                 gr_request *request)
{
    PyArrayObject *array = gr_check_array(object, launch->load, launch->acc, 1);
    *request = gr_request_of(launch);
    if (array) {
        request->data = PyArray_DATA(array);
        request->n = (size_t)PyArray_SIZE(array);
    }
    return array;
}

PyObject *gr_py_sum(PyObject *Py_UNUSED(self), PyObject *args)
{
    PyObject *object, *asked;
    gr_launch_request launch;
    gr_request request;
    if (!PyArg_ParseTuple(args, "OO", &object, &asked) ||
        gr_read_launch(asked, GR_HOST_ARRAY, &launch) < 0 || !read_array(object, &launch, &request))
        return NULL;
    return gr_summed(&request, &launch);
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
    int strategy, choose = gr_pick(asked, gr_adds_integers(type), &strategy);
    gr_request request = {
        .data = PyArray_DATA(array),
        .n = (size_t)PyArray_SIZE(array),
        .load = type->load,
        .acc = type->acc,
        .strategy = strategy,
        .device = (int)device,
    };
    gr_outcome outcome;
    if (gr_run_sum(&request, choose, 0, 0, &outcome, NULL) < 0)
        return NULL;
    gr_scalar scalar;
    if (gr_strategy_at(request.strategy)->traits & DIGITS)
        gr_round_sums(&outcome.exact, type, &scalar);
    else
        gr_convert_sums(&outcome.value, type, &scalar);
    return gr_untimed(gr_scalar_object(&scalar, type));
}

PyObject *gr_py_measure(PyObject *Py_UNUSED(self), PyObject *args)
{
    PyObject *object, *asked;
    gr_launch_request launch;
    gr_request request;
    unsigned copies, repeats, warmups;
    Py_ssize_t offset;
    int apart, load_only;
    if (!PyArg_ParseTuple(args, "OOIIInpp", &object, &asked, &copies, &warmups, &repeats, &offset,
                          &apart, &load_only) ||
        gr_read_launch(asked, GR_HOST_ARRAY, &launch) < 0 || !read_array(object, &launch, &request))
        return NULL;
    if (!copies || !repeats || offset < 0 || !request.n) {
        PyErr_SetString(PyExc_ValueError, "copies, repeats and the array must be at least 1 long");
        return NULL;
    }
    request.on_device = 1;
    gr_measurement how = {copies, warmups, repeats, (size_t)offset, apart, load_only};
    return gr_measured(&request, launch.strategy < 0, &how);
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
