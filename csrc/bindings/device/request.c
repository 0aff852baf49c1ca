#include "bindings/device/request.h"

#include <stdbool.h>

static bool is_load(int load, gr_read_from read_from)
{
    if (read_from == GR_HOST_ARRAY)
        return load >= 0 && load < GR_LOAD_COUNT;
    return load == -1;
}

static bool is_acc(int acc, gr_read_from read_from)
{
    if (read_from == GR_SAMPLES)
        return acc == GR_ACC_f32 || acc == GR_ACC_f64;
    return acc < GR_ACC_COUNT && (acc >= 0 || (acc == -1 && read_from == GR_GPU_ARRAY));
}

int gr_read_launch(PyObject *object, gr_read_from read_from, gr_launch_request *launch)
{
    enum { ORDERS = 4 }; /* backend/backend.h lists them */
    gr_request *request = &launch->request;
    int load, acc, finish, least = read_from == GR_GPU_ARRAY ? GR_AUTO : GR_CHOOSE;
    *launch = (gr_launch_request){.asked = 0};
    if (PyLong_Check(object) && read_from == GR_GPU_ARRAY)
        return gr_strategy_of(object, &launch->asked);
    if (!PyTuple_Check(object)) {
        PyErr_SetString(PyExc_TypeError, "a launch is a tuple");
        return -1;
    }
    if (!PyArg_ParseTuple(object, "iiiIIiiiKp", &launch->asked, &load, &acc, &request->block,
                          &request->grid, &finish, &request->device, &launch->order, &launch->seed,
                          &launch->timed))
        return -1;
    if (launch->asked < least || launch->asked >= gr_strategy_count() ||
        !is_load(load, read_from) || !is_acc(acc, read_from) || finish < 0 ||
        finish > GR_FINISH_SINGLE || request->device < 0 || launch->order < 0 ||
        launch->order >= ORDERS) {
        PyErr_SetString(PyExc_ValueError, "no such strategy, element type, accumulator, finish, "
                                          "device or order of threads");
        return -1;
    }
    request->load = (gr_load)load;
    request->acc = (gr_acc)acc;
    request->finish = (gr_finish)finish;
    request->choose = launch->asked < 0;
    request->strategy = request->choose ? 0 : launch->asked;
    return 0;
}

int gr_strategy_of(PyObject *number, int *asked)
{
    long found = PyLong_AsLong(number);
    if (PyErr_Occurred())
        return -1;
    if (found < GR_AUTO || found >= gr_strategy_count()) {
        PyErr_Format(PyExc_ValueError, "no such strategy as %ld", found);
        return -1;
    }
    *asked = (int)found;
    return 0;
}

int gr_is_exact(int asked)
{
    return asked == GR_AUTO || (asked >= 0 && gr_strategy_at(asked)->traits & DIGITS);
}

int gr_exact_strategy(void)
{
    int i = 0;
    while (!gr_is_exact(i))
        i++;
    return i;
}

void gr_pick(int asked, int integers, gr_request *request)
{
    int exact = gr_is_exact(asked);
    request->choose = asked == GR_CHOOSE || (exact && integers);
    request->strategy = request->choose ? 0 : exact ? gr_exact_strategy() : asked;
}
