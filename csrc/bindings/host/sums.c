/* CPU sums. */
#include "bindings/host/functions.h"

#include "bindings/gil.h"
#include "bindings/numpy_arrays.h"
#include "bindings/results.h"
#include "bindings/samples.h"
#include "cpu/bools.h"
#include "cpu/cpu_samples.h"
#include "cpu/cpu_sum.h"
#include "exact/exact.h"
#include "threads/clock.h"

static void add(const void *data, size_t n, const gr_numpy_type *type, bool exactly,
                gr_scalar *scalar)
{
    if (exactly && !gr_adds_integers(type)) {
        gr_exact sum[2];
        gr_exact_sum_array(data, n, type->load, type->components, 0, sum);
        gr_round_sums(sum, type, scalar);
        return;
    }
    gr_value values[2];
    gr_cpu_sum(data, n, type->load, type->acc, type->components, 0, values);
    gr_convert_sums(values, type, scalar);
}

static int add_array(PyArrayObject *array, const gr_numpy_type *type, bool exactly,
                     gr_scalar *scalar)
{
    const void *data = PyArray_DATA(array);
    size_t n = (size_t)PyArray_SIZE(array);
    if (PyArray_NBYTES(array) <= GR_KEEPS_GIL_BYTES) {
        add(data, n, type, exactly, scalar);
        return 0;
    }
    gr_without_gil call;
    gr_drop_gil(&call);
    add(data, n, type, exactly, scalar);
    return gr_take_gil(&call);
}

gr_call_facts gr_facts_of_call(PyArrayObject *array, bool rounds_once)
{
    return (gr_call_facts){
        .n = PyArray_SIZE(array),
        .nbytes = PyArray_NBYTES(array),
        .kind = (unsigned)PyArray_TYPE(array) * 2U + rounds_once,
        .dtype = Py_NewRef((PyObject *)PyArray_DESCR(array)),
        .rounds_once = rounds_once,
        .start_ms = gr_now_ms(),
    };
}

PyObject *gr_timed_on_host(PyObject *value, gr_call_facts *facts, PyObject *make, double kernel_ms)
{
    PyObject *common =
        value ? gr_common_fields(facts->kind, make, "Oi", facts->dtype, facts->rounds_once) : NULL;
    Py_CLEAR(facts->dtype);
    PyObject *const fields[GR_FIELDS] = {
        [GR_KERNEL_MS] = PyFloat_FromDouble(kernel_ms),
        [GR_N] = PyLong_FromSsize_t(facts->n),
        [GR_NBYTES] = PyLong_FromSsize_t(facts->nbytes),
        [GR_TOTAL_MS] = PyFloat_FromDouble(gr_now_ms() - facts->start_ms),
    };
    return gr_timed(value, common, fields);
}

/* The fast path for NumPy arrays that need no conversion. Returns None for all other objects, which
 * gpureduce/core/run_host.py handles. Both paths give the same bits. */
PyObject *gr_py_sum_array(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (count != 3) {
        PyErr_SetString(PyExc_TypeError, "expected an array, a truth value, and what makes a "
                                         "timing's fields or None");
        return NULL;
    }
    const gr_numpy_type *type = gr_numpy_type_of(args[0]);
    if (!type)
        Py_RETURN_NONE;
    PyArrayObject *array = (PyArrayObject *)args[0];
    bool exactly = args[1] == Py_True, is_timed = args[2] != Py_None;
    gr_scalar scalar;
    if (!is_timed)
        return add_array(array, type, exactly, &scalar) < 0
                   ? NULL
                   : gr_untimed(gr_scalar_object(&scalar, type));
    gr_call_facts facts = gr_facts_of_call(array, exactly && !gr_adds_integers(type));
    PyObject *value = NULL;
    double kernel_ms = 0;
    if (add_array(array, type, exactly, &scalar) == 0) {
        kernel_ms = gr_now_ms() - facts.start_ms;
        value = gr_scalar_object(&scalar, type);
    }
    return gr_timed_on_host(value, &facts, args[2], kernel_ms);
}

PyObject *gr_py_are_bools(PyObject *Py_UNUSED(self), PyObject *object)
{
    PyArrayObject *array = gr_check_array(object, GR_LOAD_u8, GR_ACC_u64, 1);
    if (!array)
        return NULL;
    const void *data = PyArray_DATA(array);
    size_t n = (size_t)PyArray_SIZE(array);
    gr_without_gil call;
    gr_drop_gil(&call);
    bool are = gr_cpu_are_bools(data, n);
    return gr_take_gil(&call) < 0 ? NULL : PyBool_FromLong(are);
}

PyObject *gr_py_cpu_error_factor(PyObject *Py_UNUSED(self), PyObject *args)
{
    Py_ssize_t n;
    int load, acc;
    if (!PyArg_ParseTuple(args, "nii", &n, &load, &acc))
        return NULL;
    if (n < 0 || load < 0 || load >= GR_LOAD_COUNT || acc < 0 || acc >= GR_ACC_COUNT) {
        PyErr_SetString(PyExc_ValueError, "no such size, element type or accumulator");
        return NULL;
    }
    return PyFloat_FromDouble(gr_cpu_error_factor((size_t)n, (gr_load)load, (gr_acc)acc));
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
        gr_make_samples(&samples, integrand, from, to, n) < 0)
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
