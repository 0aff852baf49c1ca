/* Includes Python.h and NumPy's headers. Only for files in this folder. */
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
/* numpy_arrays.c imports NumPy's function table once, for all files. */
#define PY_ARRAY_UNIQUE_SYMBOL gr_numpy_api
#ifndef GR_IMPORTS_NUMPY
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>

/* The modules need no GIL: see locks.h. */
#ifdef Py_GIL_DISABLED
#define GR_WITHOUT_GIL {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#else
#define GR_WITHOUT_GIL
#endif

/* Defines the init function of the module GR_MODULE, a name that setup.py defines. `exec` adds the
 * module's contents. */
#define GR_DEFINE_MODULE(methods, exec)                                                            \
    static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, (void *)(exec)},                       \
                                              GR_WITHOUT_GIL{0, NULL}};                            \
    static struct PyModuleDef module_definition = {                                                \
        PyModuleDef_HEAD_INIT,                                                                     \
        .m_name = "gpureduce." GR_STRING(GR_MODULE),                                               \
        .m_methods = (methods),                                                                    \
        .m_slots = module_slots,                                                                   \
    };                                                                                             \
    PyMODINIT_FUNC GR_JOIN(PyInit_, GR_MODULE)(void)                                               \
    {                                                                                              \
        return PyModuleDef_Init(&module_definition);                                               \
    }
/* Defines a function that makes the type that `slots` describe, keeps it in `type` and adds it to a
 * module. It returns 0, or -1 with an exception set. */
#define GR_TYPE(make, type, type_name, object, more_flags)                                         \
    static PyType_Spec spec = {                                                                    \
        .name = "gpureduce." type_name,                                                            \
        .basicsize = sizeof(object),                                                               \
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | (more_flags),                     \
        .slots = slots,                                                                            \
    };                                                                                             \
    int make(PyObject *module)                                                                     \
    {                                                                                              \
        type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);                      \
        return type ? PyModule_AddType(module, type) : -1;                                         \
    }
/* For types that Python code cannot make objects of. */
#define GR_MADE_BY_C Py_TPFLAGS_DISALLOW_INSTANTIATION

/* Frees an object of such a type, at the end of its Py_tp_dealloc. */
static inline void gr_free_object(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_Free(object);
    Py_DECREF(type);
}

#define GR_STRING_(x) #x
#define GR_STRING(x) GR_STRING_(x)
#define GR_JOIN_(a, b) a##b
#define GR_JOIN(a, b) GR_JOIN_(a, b)
