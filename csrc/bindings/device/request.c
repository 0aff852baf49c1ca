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
    gr_launch_request found;
    if (PyLong_Check(object) && read_from == GR_GPU_ARRAY) {
        *launch = (gr_launch_request){.load = -1, .acc = -1};
        return gr_strategy_of(object, &launch->strategy);
    }
    if (!PyTuple_Check(object)) {
        PyErr_SetString(PyExc_TypeError, "a launch is a tuple");
        return -1;
    }
    if (!PyArg_ParseTuple(object, "iiiIIiiiKp", &found.strategy, &found.load, &found.acc,
                          &found.block, &found.grid, &found.finish, &found.device, &found.order,
                          &found.seed, &found.timed))
        return -1;
    int least = read_from == GR_GPU_ARRAY ? GR_AUTO : GR_CHOOSE;
    if (found.strategy < least || found.strategy >= gr_strategy_count() ||
        !is_load(found.load, read_from) || !is_acc(found.acc, read_from) || found.finish < 0 ||
        found.finish > GR_FINISH_SINGLE || found.device < 0 || found.order < 0 ||
        found.order >= ORDERS) {
        PyErr_SetString(PyExc_ValueError, "no such strategy, element type, accumulator, finish, "
                                          "device or order of threads");
        return -1;
    }
    *launch = found;
    return 0;
}

gr_request gr_request_of(const gr_launch_request *launch)
{
    return (gr_request){
        .load = (gr_load)launch->load,
        .acc = (gr_acc)launch->acc,
        .strategy = launch->strategy < 0 ? 0 : launch->strategy,
        .block = launch->block,
        .grid = launch->grid,
        .finish = (gr_finish)launch->finish,
        .device = launch->device,
    };
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

int gr_pick(int asked, int integers, int *strategy)
{
    int exact = gr_is_exact(asked), choose = asked == GR_CHOOSE || (exact && integers);
    *strategy = choose ? 0 : exact ? gr_exact_strategy() : asked;
    return choose;
}
