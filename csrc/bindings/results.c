#include "bindings/results.h"

static const char *const names[GR_FIELDS] = {
    [GR_KERNEL_MS] = "kernel_ms",
    [GR_ELAPSED] = "_elapsed",
    [GR_TOTAL_MS] = "total_ms",
    [GR_BLOCK] = "block",
    [GR_GRID] = "grid",
    [GR_LAUNCHES] = "launches",
    [GR_N] = "n",
    [GR_NBYTES] = "nbytes",
};

/* The GIL guards these. */
static PyTypeObject *sum_result_type, *timing_type;
static PyObject *interned[GR_FIELDS];
static PyObject *common_fields; /* by key */

static int find_types(void)
{
    if (timing_type)
        return 0;
    for (int i = 0; i < GR_FIELDS; i++)
        if (!interned[i] && !(interned[i] = PyUnicode_InternFromString(names[i])))
            return -1;
    PyObject *module = PyImport_ImportModule("gpureduce.core.results");
    if (module && !sum_result_type)
        sum_result_type = (PyTypeObject *)PyObject_GetAttrString(module, "SumResult");
    if (module && sum_result_type)
        timing_type = (PyTypeObject *)PyObject_GetAttrString(module, "Timing");
    Py_XDECREF(module);
    return timing_type ? 0 : -1;
}

PyObject *gr_common_fields(unsigned long long key, PyObject *make, const char *format, ...)
{
    if (!common_fields && !(common_fields = PyDict_New()))
        return NULL;
    PyObject *number = PyLong_FromUnsignedLongLong(key);
    PyObject *found = number ? PyDict_GetItemWithError(common_fields, number) : NULL;
    if (number && !found && !PyErr_Occurred()) {
        va_list values;
        va_start(values, format);
        PyObject *arguments = Py_VaBuildValue(format, values);
        va_end(values);
        found = arguments ? PyObject_CallObject(make, arguments) : NULL;
        int is_kept = found && PyDict_SetItem(common_fields, number, found) == 0;
        Py_XDECREF(arguments);
        Py_XDECREF(found);
        found = is_kept ? found : NULL;
    }
    Py_XDECREF(number);
    return found;
}

/* Steals both references; `timing` may be NULL. */
static PyObject *result_of(PyObject *value, PyObject *timing)
{
    PyObject *result =
        value && timing && find_types() == 0 ? PyType_GenericAlloc(sum_result_type, 2) : NULL;
    if (!result) {
        Py_XDECREF(value);
        Py_XDECREF(timing);
        return NULL;
    }
    PyTuple_SetItem(result, 0, value);
    PyTuple_SetItem(result, 1, timing);
    return result;
}

PyObject *gr_untimed(PyObject *value)
{
    return result_of(value, Py_NewRef(Py_None));
}

static PyObject *timing_of(PyObject *attributes)
{
    PyObject *timing = find_types() == 0 ? PyType_GenericAlloc(timing_type, 0) : NULL;
    if (timing && PyObject_GenericSetDict(timing, attributes, NULL) < 0)
        Py_CLEAR(timing);
    return timing;
}

PyObject *gr_timed(PyObject *value, PyObject *common, PyObject *const fields[GR_FIELDS])
{
    int failed = !value || !common || find_types() < 0;
    PyObject *attributes = failed ? NULL : PyDict_Copy(common), *timing = NULL;
    failed = !attributes;
    for (int i = 0; i < GR_FIELDS; i++) {
        failed = failed || (fields[i] && PyDict_SetItem(attributes, interned[i], fields[i]) < 0);
        Py_XDECREF(fields[i]);
    }
    if (!failed && !PyErr_Occurred()) /* a field whose object was not made is NULL */
        timing = timing_of(attributes);
    Py_XDECREF(attributes);
    return result_of(value, timing);
}
