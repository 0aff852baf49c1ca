/* Kernels of users: libraries that are compiled and loaded while the program runs. */
#include "bindings/device/functions.h"

#include "backend/backend.h"
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

PyObject *gr_py_add_kernel(PyObject *Py_UNUSED(module), PyObject *args)
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

PyObject *gr_py_guard_memory(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    gr_backend_guard_memory();
    Py_RETURN_NONE;
}
