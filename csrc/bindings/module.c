/* The Python face of one backend. It checks what it is handed, releases the GIL, and calls the
 * engine; what arguments mean is gpureduce's business.
 *
 * GR_MODULE is the name that this build goes by: _cuda, _emulator or _emulator_traced. */
#define GR_IMPORTS_NUMPY
#include "bindings/request.h"

#include "threads/clock.h"
#include "cpu/cpu_sum.h"
#include "shared/backend.h"
#include "bindings/gil.h"

#include <limits.h>
#include <stdbool.h>
#include <string.h>

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

/* As a named tuple's own constructor does in the end, but for the way to it through Python. */
PyObject *gr_untimed(PyObject *value)
{
    static PyTypeObject *type; /* the GIL guards it */
    if (value && !type) {
        PyObject *module = PyImport_ImportModule("gpureduce.core.results");
        type = module ? (PyTypeObject *)PyObject_GetAttrString(module, "SumResult") : NULL;
        Py_XDECREF(module);
    }
    PyObject *result = value && type ? PyType_GenericAlloc(type, 2) : NULL;
    if (!result) {
        Py_XDECREF(value);
        return NULL;
    }
    PyTuple_SetItem(result, 0, value);
    PyTuple_SetItem(result, 1, Py_NewRef(Py_None));
    return result;
}

PyArrayObject *gr_check_array(PyObject *object, int load, int acc, int components)
{
    if (load < 0 || load >= GR_LOAD_COUNT || acc < 0 || acc >= GR_ACC_COUNT || components < 1 ||
        components > 2) {
        PyErr_SetString(PyExc_ValueError, "no such element type, accumulator or component count");
        return NULL;
    }
    if (!PyArray_Check(object)) {
        PyErr_SetString(PyExc_TypeError, "expected a NumPy array");
        return NULL;
    }
    PyArrayObject *array = (PyArrayObject *)object;
    if (!PyArray_CHKFLAGS(array, NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED) ||
        !PyArray_ISNOTSWAPPED(array) ||
        (size_t)PyArray_ITEMSIZE(array) != gr_load_size((gr_load)load) * (size_t)components) {
        PyErr_SetString(PyExc_ValueError,
                        "expected a contiguous, aligned array in native byte order");
        return NULL;
    }
    return array;
}

int gr_run_sum(gr_request *request, int choose, int order, unsigned long long seed,
               gr_outcome *outcome)
{
    gr_error error;
    gr_status status;
    gr_without_gil call;
    gr_drop_gil(&call);
    gr_backend_schedule(order, seed);
    status = gr_sum(request, choose, outcome, &error);
    if (gr_take_gil(&call) < 0)
        return -1;
    if (status != GR_OK)
        gr_raise(&error);
    return status == GR_OK ? 0 : -1;
}

PyObject *gr_summed(gr_request *request, const gr_launch *launch)
{
    gr_outcome outcome;
    if (gr_run_sum(request, launch->strategy < 0, launch->order, launch->seed, &outcome) < 0)
        return NULL;
    int digits = gr_strategy_at(request->strategy)->traits & DIGITS;
    return Py_BuildValue("y#ddddIIIii", digits ? (char *)&outcome.exact : (char *)&outcome.value,
                         (Py_ssize_t)(digits ? sizeof outcome.exact : sizeof outcome.value),
                         outcome.kernel_ms, outcome.h2d_ms, outcome.d2h_ms, outcome.init_ms,
                         outcome.block, outcome.grid, outcome.launches, (int)outcome.finish,
                         request->strategy);
}

/* The data of a host array; NULL with an exception where C cannot read it as the launch says. */
static PyArrayObject *read_array(PyObject *object, const gr_launch *launch, gr_request *request)
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
    gr_launch launch;
    gr_request request;
    if (!PyArg_ParseTuple(args, "OO", &object, &asked) ||
        gr_read_launch(asked, GR_HOST_ARRAY, &launch) < 0 || !read_array(object, &launch, &request))
        return NULL;
    return gr_summed(&request, &launch);
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
    gr_drop_gil(&call);
    gr_backend_schedule(0, 0); /* forward: what a sum of this thread had set does not count */
    gr_status status = gr_measure(request, choose, how, ms, &outcome, &error);
    int broken_off = gr_take_gil(&call) < 0;
    if (broken_off || status != GR_OK) {
        Py_DECREF(times);
        return broken_off ? NULL : gr_raise(&error);
    }
    return Py_BuildValue("NIIi", times, outcome.block, outcome.grid, request->strategy);
}

static PyObject *py_measure(PyObject *Py_UNUSED(self), PyObject *args)
{
    PyObject *object, *asked;
    gr_launch launch;
    gr_request request;
    unsigned copies, repeats, warmups;
    Py_ssize_t offset;
    int apart;
    if (!PyArg_ParseTuple(args, "OOIIInp", &object, &asked, &copies, &warmups, &repeats, &offset,
                          &apart) ||
        gr_read_launch(asked, GR_HOST_ARRAY, &launch) < 0 || !read_array(object, &launch, &request))
        return NULL;
    if (!copies || !repeats || offset < 0 || !request.n) {
        PyErr_SetString(PyExc_ValueError, "copies, repeats and the array must be at least 1 long");
        return NULL;
    }
    request.on_device = 1;
    gr_measurement how = {copies, warmups, repeats, (size_t)offset, apart};
    return gr_measured(&request, launch.strategy < 0, &how);
}

static PyObject *py_write_pinned(PyObject *Py_UNUSED(self), PyObject *args)
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

/* Whole numbers from 0 to `most`: PyArg_ParseTuple's I and K would take the low bits of larger
 * ones. */
static bool read_numbers(PyObject *const *objects, int count, unsigned long long most,
                         unsigned long long *numbers)
{
    for (int i = 0; i < count; i++) {
        numbers[i] = PyLong_AsUnsignedLongLong(objects[i]);
        if (PyErr_Occurred())
            return false;
        if (numbers[i] > most) {
            PyErr_Format(PyExc_OverflowError, "%llu is above %llu", numbers[i], most);
            return false;
        }
    }
    return true;
}

static bool read_choice(PyObject *object, gr_choice *row)
{
    enum { COUNTS = 4 };
    PyObject *most, *count[COUNTS];
    unsigned long long bytes, number[COUNTS];
    if (!PyTuple_Check(object)) {
        PyErr_SetString(PyExc_TypeError, "a row of a table is a tuple");
        return false;
    }
    if (!PyArg_ParseTuple(object, "OOiOOO", &most, &count[0], &row->strategy, &count[1], &count[2],
                          &count[3]) ||
        !read_numbers(&most, 1, SIZE_MAX, &bytes) || !read_numbers(count, COUNTS, UINT_MAX, number))
        return false;
    row->max_bytes = (size_t)bytes;
    row->element_bytes = (unsigned)number[0];
    row->block = (unsigned)number[1];
    row->grid = (unsigned)number[2];
    row->blocks_per_sm = (unsigned)number[3];
    return true;
}

/* A table of `fast`: rows of (max_bytes, element_bytes, strategy, block, grid, blocks per SM). */
static PyObject *py_set_choices(PyObject *Py_UNUSED(self), PyObject *args)
{
    gr_choice rows[GR_MAX_CHOICES];
    gr_error error;
    PyObject *list;
    int device;
    if (!PyArg_ParseTuple(args, "iO!", &device, &PyList_Type, &list))
        return NULL;
    Py_ssize_t count = PyList_Size(list);
    if (count > GR_MAX_CHOICES)
        return PyErr_Format(PyExc_ValueError, "a table has at most %d rows", GR_MAX_CHOICES);
    PyObject *kept = PyList_AsTuple(list); /* a number's __index__ may change the list */
    if (!kept)
        return NULL;
    Py_ssize_t read = 0;
    while (read < count && read_choice(PyTuple_GetItem(kept, read), &rows[read]))
        read++;
    Py_DECREF(kept);
    if (read < count)
        return NULL;
    if (gr_set_choices(device, rows, (int)count, &error) != GR_OK)
        return gr_raise(&error);
    Py_RETURN_NONE;
}

static PyObject *py_get_choices(PyObject *Py_UNUSED(self), PyObject *args)
{
    gr_choice rows[GR_MAX_CHOICES];
    int device;
    if (!PyArg_ParseTuple(args, "i", &device))
        return NULL;
    int count = gr_get_choices(device, rows);
    PyObject *list = PyList_New(count);
    for (int i = 0; list && i < count; i++) {
        PyObject *row =
            Py_BuildValue("KIiIII", (unsigned long long)rows[i].max_bytes, rows[i].element_bytes,
                          rows[i].strategy, rows[i].block, rows[i].grid, rows[i].blocks_per_sm);
        if (!row || PyList_SetItem(list, i, row) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *py_free_scratch(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(none))
{
    Py_BEGIN_ALLOW_THREADS; /* others may hold its locks and want the GIL */
    gr_release();
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

static PyObject *py_cpu_sum(PyObject *Py_UNUSED(self), PyObject *args)
{
    PyObject *object;
    int load, acc, components, threads;
    if (!PyArg_ParseTuple(args, "Oiiii", &object, &load, &acc, &components, &threads))
        return NULL;
    PyArrayObject *array = gr_check_array(object, load, acc, components);
    if (!array)
        return NULL;

    const void *data = PyArray_DATA(array);
    size_t n = (size_t)PyArray_SIZE(array);
    gr_value values[2];
    memset(values, 0, sizeof values);
    gr_without_gil call;
    gr_drop_gil(&call);
    double start = gr_now_ms();
    gr_cpu_sum(data, n, (gr_load)load, (gr_acc)acc, components, threads, values);
    double ms = gr_now_ms() - start;
    if (gr_take_gil(&call) < 0)
        return NULL;
    return Py_BuildValue("y#d", (char *)values, (Py_ssize_t)sizeof values, ms);
}

static PyObject *py_cpu_error_factor(PyObject *Py_UNUSED(self), PyObject *args)
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

static PyObject *py_strategies(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(none))
{
    static const char *const kinds[] = {"kernel", "broken",     "library",
                                        "host",   "everywhere", "choice"};
    static const char *const dtypes[] = {"all", "int32", "complex"};
    int count = gr_strategy_count();
    PyObject *list = PyList_New(count);
    for (int i = 0; list && i < count; i++) {
        const gr_strategy *s = gr_strategy_at(i);
        PyObject *row = Py_BuildValue("sssssIi", s->name, kinds[s->kind], s->aliases, s->lesson,
                                      dtypes[s->dtypes], s->traits, s->capability);
        if (!row || PyList_SetItem(list, i, row) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *py_dtypes(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(none))
{
    return Py_BuildValue("["
#define DTYPE(name, load, acc, result) "(siis)"
#include "dtypes.def"
#undef DTYPE
                         "]"
#define DTYPE(name, load, acc, result) , #name, GR_LOAD_##load, GR_ACC_##acc, #result
#include "dtypes.def"
#undef DTYPE
    );
}

static PyObject *py_devices(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(none))
{
    gr_error error;
    int count;
    if (gr_device_count(&count, &error) != GR_OK)
        return gr_raise(&error);
    PyObject *list = PyList_New(0);
    for (int i = 0; list && i < count; i++) {
        gr_device device;
        if (gr_device_at(i, &device, &error) != GR_OK) {
            Py_DECREF(list);
            return gr_raise(&error);
        }
        PyObject *row =
            Py_BuildValue("{s:s,s:i,s:i,s:i,s:n,s:n,s:d,s:d}", "name", device.name, "major",
                          device.major, "minor", device.minor, "sms", device.sms, "memory_bytes",
                          (Py_ssize_t)device.memory_bytes, "l2_bytes", (Py_ssize_t)device.l2_bytes,
                          "peak_gb_s", device.peak_gb_s, "clock_mhz", device.clock_mhz);
        if (!row || PyList_Append(list, row) < 0)
            Py_CLEAR(list);
        Py_XDECREF(row);
    }
    return list;
}

static PyObject *py_build(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(none))
{
    int runtime, driver;
    gr_versions(&runtime, &driver);
    return Py_BuildValue("{s:s,s:s,s:i,s:i,s:s,s:i}", "backend", gr_backend_name(), "clock",
                         gr_backend_clock(), "runtime", runtime, "driver", driver, "compiler",
                         __VERSION__, "traced", gr_backend_traced());
}

static PyObject *py_memory_limit(PyObject *Py_UNUSED(self), PyObject *args)
{
    unsigned long long token;
    Py_ssize_t bytes;
    if (!PyArg_ParseTuple(args, "Kn", &token, &bytes))
        return NULL;
    if (bytes < 0) {
        PyErr_SetString(PyExc_ValueError, "a memory limit is at least 0 (0: none)");
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS; /* others may hold its locks and want the GIL */
    gr_release();           /* what is kept for later calls would not be asked for again */
    Py_END_ALLOW_THREADS;
    if (!gr_backend_memory_limit(token, (size_t)bytes))
        return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyObject *py_live_bytes(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(none))
{
    return PyLong_FromSize_t(gr_backend_live_bytes());
}

static PyMethodDef methods[] = {
    {"sum", gr_py_sum, METH_VARARGS,
     "sum(array, load, acc, strategy, block, grid, finish, device, order, seed, timed)\n--\n\n"
     "The engine's sum of a flat array: (value bits, kernel, h2d, d2h and init ms, block, grid, "
     "launches, finish, strategy). Strategy -1: what `fast` chooses. Of `exact`, the value bits "
     "are what Exact.add_state takes."},
    {"sum_gpu", gr_py_sum_gpu, METH_VARARGS,
     "sum_gpu(array, resolve, strategy, block, grid, finish, stream, timed)\n--\n\n"
     "The sum of an array on a GPU; None if it does not lie there. strategy -1: `fast`, -2: "
     "`auto`. "
     "resolve(kind, bytes, device) returns accumulator, whether to cast, NumPy's number of the "
     "result, and what an exact sum is rounded to (-1: the default); None: all by default. (value, "
     "kind, bytes, device, n, nbytes, kernel ms, d2h ms, block, grid, launches, finish, "
     "strategy)."},
    {"quick_sum_gpu", (PyCFunction)(void (*)(void))gr_py_quick_sum_gpu, METH_FASTCALL,
     "quick_sum_gpu(array, strategy, stream)\n--\n\n"
     "The same by defaults and not timed: a SumResult, or (value, kind) of half floats."},
    {"exact_gpu", gr_py_exact_gpu, METH_VARARGS,
     "exact_gpu(array, resolve, stream)\n--\n\n"
     "The exact sums of an array on a GPU, for Exact.add_state; None if it does not lie there."},
    {"measure", py_measure, METH_VARARGS,
     "measure(array, load, acc, strategy, block, grid, finish, device, copies, warmups, repeats, "
     "offset, apart)\n--\n\n"
     "Time only the launches: (repeats float64 ms as bytes, block, grid, strategy)."},
    {"write_pinned", py_write_pinned, METH_VARARGS,
     "write_pinned(to, array)\n--\n\nCopy an array as for a device that reads it there."},
    {"set_choices", py_set_choices, METH_VARARGS,
     "set_choices(device, rows)\n--\n\nThe table of `fast` for a device; [] for the defaults."},
    {"get_choices", py_get_choices, METH_VARARGS,
     "get_choices(device)\n--\n\nThe table of `fast` in use: (max_bytes, element_bytes, strategy, "
     "block, grid, blocks per SM)."},
    {"free_scratch", py_free_scratch, METH_NOARGS,
     "Free the device memory that is kept for the next call."},
    {"cpu_sum", py_cpu_sum, METH_VARARGS,
     "cpu_sum(array, load, acc, components, threads)\n--\n\n"
     "The threaded SIMD sum: (bits of two values, ms)."},
    {"quick_sum", (PyCFunction)(void (*)(void))gr_py_quick_sum, METH_FASTCALL,
     "quick_sum(array, exactly, timed)\n--\n\n"
     "The sum by `exact` or `cpu`, as a SumResult or as (value, ms); None if the array needs the "
     "long way."},
    {"quick_sum_sent", (PyCFunction)(void (*)(void))gr_py_quick_sum_sent, METH_FASTCALL,
     "quick_sum_sent(array, strategy, device)\n--\n\n"
     "The sum of an array that is sent to a device, not timed, by defaults: a SumResult; None for "
     "arrays that take the long way. strategy: its number, or -1 for `fast`, or -2 for `auto`."},
    {"cpu_error_factor", py_cpu_error_factor, METH_VARARGS,
     "cpu_error_factor(n, load, acc)\n--\n\nThe error bound of cpu_sum, as a factor of the sum of "
     "magnitudes."},
    {"sum_samples", gr_py_sum_samples, METH_VARARGS,
     "sum_samples(integrand, from, to, n, acc, strategy, block, grid, finish, device, order, seed, "
     "repeats)\n--\n\n"
     "The sum of n weighted samples, as sum() tells it; with repeats, as measure() does."},
    {"cpu_sum_samples", gr_py_cpu_sum_samples, METH_VARARGS,
     "cpu_sum_samples(integrand, from, to, n, acc, threads)\n--\n\n(value bits, ms)."},
    {"integrands", gr_py_integrands, METH_NOARGS, "The lines of integrands.def."},
    {"takes_samples", gr_py_takes_samples, METH_VARARGS,
     "takes_samples(strategy)\n--\n\nWhether a strategy is compiled for samples."},
    {"strategies", py_strategies, METH_NOARGS, "The lines of strategies.def."},
    {"dtypes", py_dtypes, METH_NOARGS, "The lines of dtypes.def: (name, load, acc, result)."},
    {"devices", py_devices, METH_NOARGS, "What devices this backend has."},
    {"build", py_build, METH_NOARGS, "How this backend was built."},
    {"environment", gr_py_environment, METH_O, "What a name stands for there, or None."},
    {"memory_limit", py_memory_limit, METH_VARARGS,
     "The emulated device's memory in bytes; 0 for the default."},
    {"live_bytes", py_live_bytes, METH_NOARGS, "Bytes now allocated on the emulated device."},
    {NULL, NULL, 0, NULL},
};

static int exec_module(PyObject *module)
{
    static const struct {
        const char *name;
        long value;
    } constants[] = {
        {"ONE", ONE},
        {"TWO", TWO},
        {"MANY", MANY},
        {"PARTIALS", PARTIALS},
        {"FINISHES", FINISHES},
        {"COOPERATIVE", COOPERATIVE},
        {"CLUSTER", CLUSTER},
        {"ALONE", ALONE},
        {"TICKET", TICKET},
        {"DIGITS", DIGITS},
        {"UNORDERED", UNORDERED},
        {"RING", RING},
        {"CLUSTER_BLOCKS", GR_CLUSTER_BLOCKS},
        {"LOAD_F16", GR_LOAD_f16},
        {"LOAD_BF16", GR_LOAD_bf16},
        {"LOAD_F32", GR_LOAD_f32},
        {"LOAD_F64", GR_LOAD_f64},
        {"LOAD_I32", GR_LOAD_i32},
        {"LOAD_U32", GR_LOAD_u32},
        {"ACC_U32", GR_ACC_u32},
        {"ACC_U64", GR_ACC_u64},
        {"ACC_F32", GR_ACC_f32},
        {"ACC_F64", GR_ACC_f64},
    };
    for (size_t i = 0; i < sizeof constants / sizeof constants[0]; i++)
        if (PyModule_AddIntConstant(module, constants[i].name, constants[i].value) < 0)
            return -1;
    if (gr_add_exact_type(module) < 0 || PyModule_AddFunctions(module, gr_trace_methods) < 0)
        return -1;
    if (PyArray_ImportNumPyAPI() < 0)
        return -1;
    gr_learn_dtypes();
    if (!gr_fill_registry()) {
        PyErr_NoMemory();
        return -1;
    }
    return gr_remember_main_thread();
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)exec_module},
    {0, NULL},
};

#define STRING_(x) #x
#define STRING(x) STRING_(x)
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "gpureduce." STRING(GR_MODULE),
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC JOIN(PyInit_, GR_MODULE)(void)
{
    return PyModuleDef_Init(&definition);
}
