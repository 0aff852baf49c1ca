/* The modules _cuda, _emulator and _emulator_traced: sums by the kernels of one backend. GR_MODULE
 * is the module's name. Python interprets the arguments of public calls. The functions here check
 * them, drop the GIL and call the engine. */
#include "bindings/device/functions.h"

#include "backend/backend.h"
#include "bindings/device/run.h"
#include "bindings/gil.h"
#include "bindings/numpy_arrays.h"
#include "engine/compiled_kernels.h"

#include <limits.h>

static void release_scratch(void)
{
    int device = gr_current_device();
    Py_BEGIN_ALLOW_THREADS; /* threads that hold its locks may wait for the GIL */
    gr_release();
    Py_END_ALLOW_THREADS;
    gr_backend_return_to(device);
}

static PyObject *py_free_scratch(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(none))
{
    release_scratch();
    Py_RETURN_NONE;
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

static PyObject *py_device_count(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(none))
{
    gr_error error;
    int count;
    return gr_device_count(&count, &error) == GR_OK ? PyLong_FromLong(count) : gr_raise(&error);
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
    release_scratch(); /* memory kept for later calls would escape the new limit */
    if (!gr_backend_memory_limit(token, (size_t)bytes))
        return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyObject *py_set_device_count(PyObject *Py_UNUSED(self), PyObject *count)
{
    long number = PyLong_AsLong(count);
    if (PyErr_Occurred())
        return NULL;
    if (number < 0 || number > INT_MAX || !gr_backend_device_count((int)number)) {
        PyErr_Format(PyExc_ValueError, "the %s cannot play %ld devices", gr_backend_name(), number);
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *py_live_bytes(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(none))
{
    return PyLong_FromSize_t(gr_backend_live_bytes());
}

static PyMethodDef methods[] = {
    {"sum", gr_py_sum, METH_VARARGS,
     "sum(array, launch)\n--\n\n"
     "The engine's sum of a flat array: (value bits, kernel, h2d, d2h and init ms, block, grid, "
     "launches, finish, strategy). Strategy -1: what `fast` chooses. Of `exact`, the value bits "
     "are what Exact.add_state takes."},
    {"sum_gpu", (PyCFunction)(void (*)(void))gr_py_sum_gpu, METH_FASTCALL,
     "sum_gpu(array, dtype, launch, stream, common, check=None)\n--\n\n"
     "The SumResult of an array on a GPU; None if it does not lie there. dtype: of the sum, in "
     "native byte order, or None for NumPy's choice. launch: a Launch, or a strategy's number, or "
     "-1 for `fast`, or -2 for `auto`. common(backend, device, strategy, kind, bytes, finish) "
     "returns the fields of a Timing that such sums have in common; None: the sum is not timed. "
     "check(kind, bytes, device) is called before the launch."},
    {"begin_parts", gr_py_begin_parts, METH_VARARGS,
     "begin_parts(arrays, dtype, launch, streams, timed)\n--\n\n"
     "Begins the sums of a tuple of arrays, each on its GPU. dtype and launch: as of sum_gpu. "
     "streams: a tuple of numbers, or None. end() of what this returns waits for the sums."},
    {"exact_gpu", gr_py_exact_gpu, METH_VARARGS,
     "exact_gpu(array, check, stream)\n--\n\n"
     "The exact sums of an array on a GPU, for Exact.add_state; None if it does not lie there."},
    {"view", gr_py_view, METH_VARARGS,
     "view(array, stream, waits=False)\n--\n\n"
     "A View of an array on a GPU, for work on a stream (0: the producer's); None if it does not "
     "lie there. waits: raises if the stream is being captured into a CUDA graph."},
    {"request", (PyCFunction)(void (*)(void))gr_py_request, METH_VARARGS | METH_KEYWORDS,
     "request(kind, bytes, acc, exactly, target, initial, timed, *, axes=0, keepdims=False, "
     "segments=-1, by_offsets=False, sorted=-1, check=False, as_digits=False, block=0, grid=0, "
     "strategy=-1)\n--\n\n"
     "What is decided about sums of elements of a kind, for run(): along the axes of a bit mask, "
     "or by segment if their number is given. initial: a pair of numbers, for the real and the "
     "imaginary part. strategy: a kernel, or -1."},
    {"run", gr_py_run, METH_VARARGS,
     "run(request, values, mask or ids or offsets, out, device=0, order=0, seed=0)\n--\n\n"
     "Stores the sums: (strategy, block, grid, launches, times, problem). Of Views, puts the "
     "launches on their stream and does not wait, unless ids are checked; the times are None, or "
     "to be read later. Of NumPy arrays, which are sent to the device, they are (h2d, kernel, d2h) "
     "in "
     "ms. problem: None, or (whether ids are not sorted, place, number there, number beside it)."},
    {"view_index", gr_py_view_index, METH_VARARGS,
     "view_index(values, ids or offsets, name)\n--\n\n"
     "A View of ids or offsets that lie on the GPU of a View."},
    {"largest_id", gr_py_largest_id, METH_O,
     "largest_id(ids)\n--\n\nThe largest id of a View, or -1 without ids. Waits for it."},
    {"allocate", gr_py_allocate, METH_VARARGS,
     "allocate(bytes, device, stream)\n--\n\nDevice memory: pointer, read() and dlpack()."},
    {"measure", gr_py_measure, METH_VARARGS,
     "measure(array, launch, copies, warmups, repeats, offset, apart, load_only)\n--\n\n"
     "Time only the launches: (repeats float64 ms as bytes, block, grid, strategy)."},
    {"write_pinned", gr_py_write_pinned, METH_VARARGS,
     "write_pinned(to, array)\n--\n\nCopy an array as for a device that reads it there."},
    {"set_choices", gr_py_set_choices, METH_VARARGS,
     "set_choices(device, rows)\n--\n\nThe table of `fast` for a device; [] for the defaults."},
    {"get_choices", gr_py_get_choices, METH_VARARGS,
     "get_choices(device)\n--\n\nThe table of `fast` in use: (max_bytes, element_bytes, strategy, "
     "block, grid, blocks per SM)."},
    {"free_scratch", py_free_scratch, METH_NOARGS,
     "Free the device memory that is kept for the next call."},
    {"sum_host_untimed", (PyCFunction)(void (*)(void))gr_py_sum_host_untimed, METH_FASTCALL,
     "sum_host_untimed(array, strategy, device)\n--\n\n"
     "The sum of an array that is sent to a device, not timed, by defaults: a SumResult; None for "
     "arrays that take the long way. strategy: its number, or -1 for `fast`, or -2 for `auto`."},
    {"sum_samples", gr_py_sum_samples, METH_VARARGS,
     "sum_samples(integrand, from, to, n, launch, repeats)\n--\n\n"
     "The sum of n weighted samples, as sum() tells it; with repeats, as measure() does."},
    {"takes_samples", gr_py_takes_samples, METH_VARARGS,
     "takes_samples(strategy)\n--\n\nWhether a strategy is compiled for samples."},
    {"devices", py_devices, METH_NOARGS, "What devices this backend has."},
    {"device_count", py_device_count, METH_NOARGS, "How many devices this backend has."},
    {"build", py_build, METH_NOARGS, "How this backend was built."},
    {"memory_limit", py_memory_limit, METH_VARARGS,
     "The emulated device's memory in bytes; 0 for the default."},
    {"set_device_count", py_set_device_count, METH_O,
     "set_device_count(count)\n--\n\nHow many devices the emulator plays."},
    {"add_kernel", gr_py_add_kernel, METH_VARARGS,
     "add_kernel(name, traits, paths)\n--\n\n"
     "Add a strategy that runs the kernels of these libraries. Returns its number."},
    {"load_kernels", gr_py_load_kernels, METH_VARARGS,
     "load_kernels(strategy, image, kernels)\n--\n\n"
     "Load kernels out of a cubin, for an added strategy. kernels: tuples of a symbol, its element "
     "type, its accumulator and its block size (0: any)."},
    {"guard_memory", gr_py_guard_memory, METH_NOARGS,
     "From now on, report a kernel's access outside its memory as a failed launch."},
    {"live_bytes", py_live_bytes, METH_NOARGS, "Bytes now allocated on the emulated device."},
    {NULL, NULL, 0, NULL},
};

static int exec_module(PyObject *module)
{
    gr_save_around_handlers(gr_backend_put_aside, gr_backend_take_up);
    if (PyModule_AddStringConstant(module, "BACKEND", gr_backend_name()) < 0 ||
        PyModule_AddFunctions(module, gr_trace_methods) < 0 || gr_import_numpy() < 0 ||
        gr_make_elapsed_type(module) < 0 || gr_make_memory_type(module) < 0 ||
        gr_make_parts_type(module) < 0 || gr_make_view_type(module) < 0)
        return -1;
    if (!gr_list_kernels()) {
        PyErr_NoMemory();
        return -1;
    }
    return gr_remember_main_thread();
}

GR_DEFINE_MODULE(methods, exec_module)
