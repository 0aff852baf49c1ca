#include "bindings/device/run.h"

#include "backend/backend.h"

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

void gr_begin_call(gr_call *call, int order, unsigned long long seed)
{
    call->device = gr_current_device();
    gr_drop_gil(&call->gil);
    gr_backend_schedule(order, seed);
}

int gr_end_call(gr_call *call)
{
    gr_backend_return_to(call->device);
    if (gr_take_gil(&call->gil) < 0)
        return -1;
    if (call->error.status != GR_OK)
        gr_raise(&call->error);
    return call->error.status == GR_OK ? 0 : -1;
}

int gr_run_sum(gr_launch_request *launch, gr_outcome *outcome, gr_milliseconds *ms)
{
    gr_request *request = &launch->request;
    gr_call call;
    if (launch->timed && !(request->times = gr_take_times(request->device))) {
        PyErr_NoMemory();
        return -1;
    }
    gr_begin_call(&call, launch->order, launch->seed);
    if (gr_sum(request, outcome, &call.error) == GR_OK && launch->timed && !gr_interrupted())
        gr_read_times(request->times, ms, &call.error);
    int failed = gr_end_call(&call);
    gr_drop_times(request->times, !failed);
    return failed;
}

bool gr_makes_digits(int strategy)
{
    return gr_strategy_at(strategy)->traits & DIGITS;
}

PyObject *gr_scalar_of(const gr_outcome *outcome, int strategy, const gr_numpy_type *type)
{
    gr_scalar bits;
    gr_exact exact[2];
    gr_value values[2];
    bool digits = gr_makes_digits(strategy);
    for (int i = 0; i < type->components; i++)
        if (digits)
            exact[i] = outcome[i].exact;
        else
            values[i] = outcome[i].value;
    if (digits)
        gr_round_sums(exact, type, &bits);
    else
        gr_convert_sums(values, type, &bits);
    return gr_scalar_object(&bits, type);
}

PyObject *gr_summed(gr_launch_request *launch)
{
    const gr_request *request = &launch->request;
    gr_outcome outcome;
    gr_milliseconds ms = {0, 0, 0};
    if (gr_run_sum(launch, &outcome, &ms) < 0)
        return NULL;
    bool digits = gr_makes_digits(request->strategy);
    return Py_BuildValue("y#ddddIIIii", digits ? (char *)&outcome.exact : (char *)&outcome.value,
                         (Py_ssize_t)(digits ? sizeof outcome.exact : sizeof outcome.value),
                         ms.kernel, ms.h2d, ms.d2h, outcome.init_ms, outcome.block, outcome.grid,
                         outcome.launches, (int)outcome.finish, request->strategy);
}

PyObject *gr_measured(gr_request *request, const gr_measurement *how)
{
    gr_outcome outcome;
    gr_call call;
    PyObject *times = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(how->repeats * sizeof(double)));
    if (!times)
        return NULL;
    double *ms = (double *)(void *)PyBytes_AsString(times);
    gr_begin_call(&call, 0, 0);
    gr_measure(request, how, ms, &outcome, &call.error);
    if (gr_end_call(&call) < 0) {
        Py_DECREF(times);
        return NULL;
    }
    return Py_BuildValue("NIIi", times, outcome.block, outcome.grid, request->strategy);
}
