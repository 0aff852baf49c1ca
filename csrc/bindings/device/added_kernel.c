/* Kernels of users: compiled and loaded while the program runs, as libraries of the emulator or as
 * a card's machine code. */
#include "bindings/device/functions.h"

#include "backend/backend.h"
#include "bindings/device/run.h"
#include "bindings/locks.h"
#include "engine/compiled_kernels.h"
#include "shared/registry.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static int add_strategy(const char *name, unsigned traits)
{
    gr_strategy strategy = {
        .name = strdup(name),
        .kind = GR_KIND_KERNEL,
        .traits = traits,
        .dtypes = GR_DTYPES_ALL,
        .aliases = "",
        .lesson = "",
    };
    if (!strategy.name) {
        PyErr_NoMemory();
        return -1;
    }
    int index = gr_add_strategy(&strategy);
    if (index < 0)
        PyErr_Format(PyExc_RuntimeError, "at most %d kernels can be added to a process",
                     GR_MAX_ADDED_STRATEGIES);
    return index;
}

static PyObject *add_kernel(PyObject *args)
{
    const char *name;
    unsigned traits;
    PyObject *paths;
    if (!PyArg_ParseTuple(args, "sIO!", &name, &traits, &PyTuple_Type, &paths))
        return NULL;
    int index = add_strategy(name, traits);
    for (Py_ssize_t i = 0; index >= 0 && i < PyTuple_Size(paths); i++) {
        PyObject *path = PyUnicode_EncodeFSDefault(PyTuple_GetItem(paths, i));
        void *library = path ? dlopen(PyBytes_AsString(path), RTLD_NOW | RTLD_LOCAL) : NULL;
        void (*fill)(gr_kernel_list *) = NULL;
        void *symbol = library ? dlsym(library, "gr_user_kernels") : NULL;
        memcpy(&fill, &symbol, sizeof fill); /* ISO C has no cast from an object to a function */
        Py_XDECREF(path);
        if (!path)
            return NULL;
        if (!fill)
            return PyErr_Format(PyExc_ImportError, "a compiled kernel cannot be loaded: %s",
                                dlerror());
        if (!gr_add_kernels(index, fill))
            return PyErr_NoMemory();
    }
    return index < 0 ? NULL : PyLong_FromLong(index);
}

PyObject *gr_py_add_kernel(PyObject *module, PyObject *args)
{
    PyObject *added;
    Py_BEGIN_CRITICAL_SECTION(module);
    added = add_kernel(args);
    Py_END_CRITICAL_SECTION();
    return added;
}

/* Reads a tuple (symbol, load, acc, block). Returns 0, or -1 with an exception set. */
static int read_kernel(PyObject *row, const char **symbol, gr_kernel *kernel)
{
    int load, acc;
    if (!PyTuple_Check(row)) {
        PyErr_SetString(PyExc_TypeError, "a kernel is a tuple of symbol, load, acc and block");
        return -1;
    }
    if (!PyArg_ParseTuple(row, "siiI", symbol, &load, &acc, &kernel->block))
        return -1;
    if (load < 0 || load >= GR_LOAD_COUNT || acc < 0 || acc >= GR_ACC_COUNT) {
        PyErr_SetString(PyExc_ValueError, "no such element type or accumulator");
        return -1;
    }
    kernel->load = (gr_load)load;
    kernel->acc = (gr_acc)acc;
    return 0;
}

static gr_status load_image(const void *image, const char *const *symbol, int count,
                            const void **entry, gr_error *error)
{
    error->status = GR_OK;
    TRY(gr_backend_load_kernels(image, symbol, count, entry));
done:
    return error->status;
}

static PyObject *load_kernels(PyObject *args)
{
    enum { MOST = 8 }; /* an instance for each block size */
    int strategy;
    const char *image, *symbol[MOST];
    const void *entry[MOST];
    gr_kernel kernel[MOST] = {0};
    Py_ssize_t bytes;
    PyObject *rows;
    gr_error error;
    if (!PyArg_ParseTuple(args, "iy#O!", &strategy, &image, &bytes, &PyTuple_Type, &rows))
        return NULL;
    int count = (int)PyTuple_Size(rows);
    if (count > MOST || strategy >= gr_strategy_count() || !gr_is_added_strategy(strategy)) {
        PyErr_Format(PyExc_ValueError, "an added strategy gets at most %d kernels at once", MOST);
        return NULL;
    }
    for (int i = 0; i < count; i++)
        if (read_kernel(PyTuple_GetItem(rows, i), &symbol[i], &kernel[i]) < 0)
            return NULL;
    if (load_image(image, symbol, count, entry, &error) != GR_OK)
        return gr_raise(&error);
    for (int i = 0; i < count; i++) {
        kernel[i].entry = entry[i];
        if (!gr_add_kernel(strategy, &kernel[i]))
            return PyErr_NoMemory();
    }
    Py_RETURN_NONE;
}

PyObject *gr_py_load_kernels(PyObject *module, PyObject *args)
{
    PyObject *none;
    Py_BEGIN_CRITICAL_SECTION(module);
    none = load_kernels(args);
    Py_END_CRITICAL_SECTION();
    return none;
}

PyObject *gr_py_guard_memory(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    gr_backend_guard_memory();
    Py_RETURN_NONE;
}
