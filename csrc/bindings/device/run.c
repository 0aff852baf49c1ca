#include "bindings/device/run.h"

#include "backend/backend.h"
#include "bindings/gil.h"

PyObject *gr_raise(const gr_error *error)
{
    switch (error->status) {
    case GR_BAD_VALUE: PyErr_SetString(PyExc_ValueError, error->message); return NULL;
    case GR_BAD_DTYPE: PyErr_SetString(PyExc_TypeError, error->message); return NULL;
    case GR_NO_MEMORY: PyErr_SetString(PyExc_MemoryError, error->message); return NULL;
    default: break;
    }
    PyObject *module = PyImport_ImportModule("gpureduce.errors");
    PyObject *type = module ? PyObject_GetAttrString(module, "CudaError") : NULL;
    PyObject *value = type ? PyObject_CallFunction(type, "ss", error->message, error->name) : NULL;
    if (value)
        PyErr_SetObject(type, value);
    Py_XDECREF(value);
    Py_XDECREF(type);
    Py_XDECREF(module);
    return NULL;
}

int gr_run_sum(gr_request *request, int choose, int order, unsigned long long seed,
               gr_outcome *outcome, gr_milliseconds *ms)
{
    gr_error error;
    gr_status status;
    gr_without_gil call;
    if (ms && !(request->times = gr_take_times(request->device))) {
        PyErr_NoMemory();
        return -1;
    }
    int device = gr_current_device();
    gr_drop_gil(&call);
    gr_backend_schedule(order, seed);
    status = gr_sum(request, choose, outcome, &error);
    if (ms && status == GR_OK && !gr_interrupted())
        status = gr_read_times(request->times, ms, &error);
    gr_backend_return_to(device);
    int broken_off = gr_take_gil(&call) < 0;
    gr_drop_times(request->times, status == GR_OK && !broken_off);
    if (broken_off)
        return -1;
    if (status != GR_OK)
        gr_raise(&error);
    return status == GR_OK ? 0 : -1;
}

PyObject *gr_summed(gr_request *request, const gr_launch_request *launch)
{
    gr_outcome outcome;
    gr_milliseconds ms = {0, 0, 0};
    if (gr_run_sum(request, launch->strategy < 0, launch->order, launch->seed, &outcome,
                   launch->timed ? &ms : NULL) < 0)
        return NULL;
    int digits = gr_strategy_at(request->strategy)->traits & DIGITS;
    return Py_BuildValue("y#ddddIIIii", digits ? (char *)&outcome.exact : (char *)&outcome.value,
                         (Py_ssize_t)(digits ? sizeof outcome.exact : sizeof outcome.value),
                         ms.kernel, ms.h2d, ms.d2h, outcome.init_ms, outcome.block, outcome.grid,
                         outcome.launches, (int)outcome.finish, request->strategy);
}

PyObject *gr_measured(gr_request *request, int choose, const gr_measurement *how)
{
    gr_outcome outcome;
    gr_error error;
    PyObject *times = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(how->repeats * sizeof(double)));
    if (!times)
        return NULL;
    double *ms = (double *)(void *)PyBytes_AsString(times);
    gr_without_gil call;
    int device = gr_current_device();
    gr_drop_gil(&call);
    gr_backend_schedule(0, 0); /* forward, whatever order an earlier sum of this thread set */
    gr_status status = gr_measure(request, choose, how, ms, &outcome, &error);
    gr_backend_return_to(device);
    int broken_off = gr_take_gil(&call) < 0;
    if (broken_off || status != GR_OK) {
        Py_DECREF(times);
        return broken_off ? NULL : gr_raise(&error);
    }
    return Py_BuildValue("NIIi", times, outcome.block, outcome.grid, request->strategy);
}
