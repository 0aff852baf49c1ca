/* Converts the table behind `fast` from and to Python. */
#include "bindings/device/functions.h"

#include "bindings/device/run.h"

#include <stdbool.h>

static bool read_choice(PyObject *object, gr_choice *row)
{
    PyObject *most;
    int element_bytes, block, grid, per_sm; /* signed: format I checks no range */
    if (!PyTuple_Check(object)) {
        PyErr_SetString(PyExc_TypeError, "a row of a table is a tuple");
        return false;
    }
    if (!PyArg_ParseTuple(object, "Oiiiii", &most, &element_bytes, &row->strategy, &block, &grid,
                          &per_sm))
        return false;
    row->max_bytes = (size_t)PyLong_AsUnsignedLongLong(most);
    if (!PyErr_Occurred() && (element_bytes < 0 || block < 0 || grid < 0 || per_sm < 0))
        PyErr_SetString(PyExc_OverflowError, "the numbers of a table are at least 0");
    row->element_bytes = (unsigned)element_bytes;
    row->block = (unsigned)block;
    row->grid = (unsigned)grid;
    row->blocks_per_sm = (unsigned)per_sm;
    return !PyErr_Occurred();
}

/* Sets the table of `fast`: rows of (max_bytes, element_bytes, strategy, block, grid, blocks per
 * SM). */
PyObject *gr_py_set_choices(PyObject *Py_UNUSED(self), PyObject *args)
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

PyObject *gr_py_get_choices(PyObject *Py_UNUSED(self), PyObject *args)
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
