/* The Python face's half for integrals: sums over the samples of a compiled-in function. */
#include "bindings/request.h"

#include "threads/clock.h"
#include "cpu/cpu_samples.h"
#include "shared/backend.h"
#include "bindings/gil.h"

static int make_samples(gr_samples *samples, int integrand, double from, double to, Py_ssize_t n)
{
    if (integrand < 0 || integrand >= GR_INTEGRAND_COUNT || n < 2) {
        PyErr_SetString(PyExc_ValueError, "no such integrand, or fewer than 2 points");
        return -1;
    }
    samples->from = from;
    samples->to = to;
    samples->step = (to - from) / (double)(n - 1);
    samples->last = (uint64_t)n - 1;
    samples->integrand = integrand;
    samples->first = 0;
    return 0;
}

PyObject *gr_py_sum_samples(PyObject *Py_UNUSED(self), PyObject *args)
{
    int integrand;
    double from, to;
    Py_ssize_t n;
    PyObject *asked;
    unsigned repeats;
    gr_launch launch;
    gr_samples samples;
    if (!PyArg_ParseTuple(args, "iddnOI", &integrand, &from, &to, &n, &asked, &repeats) ||
        make_samples(&samples, integrand, from, to, n) < 0 ||
        gr_read_launch(asked, GR_SAMPLES, &launch) < 0)
        return NULL;
    gr_request request = gr_request_of(&launch);
    request.n = (size_t)n;
    request.load = GR_LOAD_samples;
    request.on_device = 1;
    request.samples = &samples;
    if (repeats) {
        gr_measurement how = {.copies = 1, .warmups = 2, .repeats = repeats};
        return gr_measured(&request, launch.strategy < 0, &how);
    }
    return gr_summed(&request, &launch);
}

PyObject *gr_py_cpu_sum_samples(PyObject *Py_UNUSED(self), PyObject *args)
{
    int integrand, acc, threads, failed;
    double from, to;
    Py_ssize_t n;
    gr_samples samples;
    gr_value value = {.u64 = 0};
    gr_without_gil call;
    if (!PyArg_ParseTuple(args, "iddnii", &integrand, &from, &to, &n, &acc, &threads) ||
        make_samples(&samples, integrand, from, to, n) < 0)
        return NULL;
    gr_drop_gil(&call);
    double start = gr_now_ms();
    failed = gr_cpu_sum_samples(&samples, (gr_acc)acc, threads, &value);
    double ms = gr_now_ms() - start;
    if (gr_take_gil(&call) < 0)
        return NULL;
    if (failed)
        return PyErr_NoMemory();
    return Py_BuildValue("y#d", (char *)&value, (Py_ssize_t)sizeof value, ms);
}

PyObject *gr_py_integrands(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(none))
{
    static const struct {
        const char *name, *formula, *exact, *lesson;
        double from, to;
    } rows[] = {
#define INTEGRAND(name, formula, from, to, exact, lesson)                                          \
    {#name, #formula, #exact, lesson, from, to},
#include "integrands.def"
#undef INTEGRAND
    };
    PyObject *list = PyList_New(GR_INTEGRAND_COUNT);
    for (int i = 0; list && i < GR_INTEGRAND_COUNT; i++) {
        PyObject *row = Py_BuildValue("ssddss", rows[i].name, rows[i].formula, rows[i].from,
                                      rows[i].to, rows[i].exact, rows[i].lesson);
        if (!row || PyList_SetItem(list, i, row) < 0)
            Py_CLEAR(list);
    }
    return list;
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
