/* Converts the table behind `fast` from and to Python. */
#include "bindings/device/functions.h"

#include "bindings/device/run.h"

#include <limits.h>
#include <stdbool.h>

/* Reads integers from 0 to `most`. Returns false with an exception set on failure. The formats I
 * and K of PyArg_ParseTuple would silently truncate larger integers. */
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
