#include "bindings/results.h"

#include "bindings/locks.h"

#include <stdbool.h>

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

/* Set once, `timing_type` last. */
static PyTypeObject *sum_result_type, *timing_type;
static PyObject *interned[GR_FIELDS];

/* Fields by key. Entries are never replaced or removed, so borrowed references stay valid. */
static PyObject *common_fields;
static gr_lock common_lock;

/* Sets *place unless another thread already has. Steals the reference; returns -1 if it is NULL. */
static int set_once(PyObject **place, PyObject *value)
{
    PyObject *none = NULL;
    if (value && !__atomic_compare_exchange_n(place, &none, value, false, __ATOMIC_ACQ_REL,
                                              __ATOMIC_ACQUIRE))
        Py_DECREF(value);
    return value ? 0 : -1;
}

static int find_types(void)
{
    if (__atomic_load_n(&timing_type, __ATOMIC_ACQUIRE))
        return 0;
    PyObject *module = PyImport_ImportModule("gpureduce.core.results");
    int found = module ? 0 : -1;
    for (int i = 0; i < GR_FIELDS && found == 0; i++)
        found = set_once(&interned[i], PyUnicode_InternFromString(names[i]));
    if (found == 0)
        found =
            set_once((PyObject **)&sum_result_type, PyObject_GetAttrString(module, "SumResult"));
    if (found == 0)
        found = set_once((PyObject **)&timing_type, PyObject_GetAttrString(module, "Timing"));
    Py_XDECREF(module);
    return found;
}

/* Returns the dict that is kept for a key, which `made` becomes if there is none. A borrowed
 * reference; NULL without an exception: there is none. */
static PyObject *kept_fields(PyObject *key, PyObject *made)
{
    gr_take_lock(&common_lock);
    PyObject *found = PyDict_GetItemWithError(common_fields, key);
    if (!found && made && !PyErr_Occurred() && PyDict_SetItem(common_fields, key, made) == 0)
        found = made;
    gr_drop_lock(&common_lock);
    return found;
}

PyObject *gr_common_fields(unsigned long long key, PyObject *make, const char *format, ...)
{
    if (!__atomic_load_n(&common_fields, __ATOMIC_ACQUIRE) &&
        set_once(&common_fields, PyDict_New()) < 0)
        return NULL;
    PyObject *number = PyLong_FromUnsignedLongLong(key);
    PyObject *found = number ? kept_fields(number, NULL) : NULL;
    if (number && !found && !PyErr_Occurred()) {
        va_list values;
        va_start(values, format);
        PyObject *arguments = Py_VaBuildValue(format, values);
        va_end(values);
        PyObject *made = arguments ? PyObject_CallObject(make, arguments) : NULL;
        found = made ? kept_fields(number, made) : NULL;
        Py_XDECREF(arguments);
        Py_XDECREF(made);
    }
    Py_XDECREF(number);
    return found;
}

/* Steals both references; `timing` may be NULL. */
static PyObject *result_of(PyObject *value, PyObject *timing)
{
    PyObject *result =
        value && timing && find_types() == 0 ? PyType_GenericAlloc(sum_result_type, 0) : NULL;
    if (!result) {
        Py_XDECREF(value);
        Py_XDECREF(timing);
        return NULL;
    }
    ((gr_sum_result *)result)->value = value;
    ((gr_sum_result *)result)->timing = timing;
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
    if (!failed && !PyErr_Occurred()) /* a NULL field means a failed allocation */
        timing = timing_of(attributes);
    Py_XDECREF(attributes);
    return result_of(value, timing);
}
