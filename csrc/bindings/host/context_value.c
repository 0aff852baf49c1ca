/* The type ContextValue: a value of a context variable, for the length of a with block.
 *
 * A signal handler may raise between any two instructions of Python code, so before the first one
 * of an __exit__ in Python. It cannot raise within these functions, nor between them and the block.
 */
#include "bindings/host/functions.h"

#include "bindings/locks.h"

typedef struct {
    PyObject_HEAD PyObject *variable, *value;
    PyObject *before; /* the value outside the block; NULL if the block is not entered */
} value_object;

static PyObject *value_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *variable, *value;
    if (kwargs && PyDict_Size(kwargs)) {
        PyErr_SetString(PyExc_TypeError, "ContextValue takes no keywords");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "OO", &variable, &value))
        return NULL;
    value_object *self = (value_object *)PyType_GenericAlloc(type, 0);
    if (!self)
        return NULL;
    self->variable = Py_NewRef(variable);
    self->value = Py_NewRef(value);
    return (PyObject *)self;
}

static void value_dealloc(PyObject *object)
{
    value_object *self = (value_object *)object;
    Py_XDECREF(self->variable);
    Py_XDECREF(self->value);
    Py_XDECREF(self->before);
    gr_free_object(object);
}

static int set(value_object *self, PyObject *value)
{
    PyObject *token = PyObject_CallMethod(self->variable, "set", "(O)", value);
    Py_XDECREF(token);
    return token ? 0 : -1;
}

static PyObject *value_enter(PyObject *object, PyObject *Py_UNUSED(none))
{
    value_object *self = (value_object *)object;
    if (self->before) {
        PyErr_SetString(PyExc_RuntimeError, "the block is entered already");
        return NULL;
    }
    PyObject *before = PyObject_CallMethod(self->variable, "get", NULL);
    if (!before || set(self, self->value) < 0) {
        Py_XDECREF(before);
        return NULL;
    }
    PyObject *other;
    Py_BEGIN_CRITICAL_SECTION(object);
    other = self->before; /* of another thread that has entered the block meanwhile */
    self->before = before;
    Py_END_CRITICAL_SECTION();
    Py_XDECREF(other);
    return Py_NewRef(self->value);
}

static PyObject *value_exit(PyObject *object, PyObject *Py_UNUSED(args))
{
    value_object *self = (value_object *)object;
    PyObject *before;
    Py_BEGIN_CRITICAL_SECTION(object);
    before = self->before;
    self->before = NULL;
    Py_END_CRITICAL_SECTION();
    int failed = before ? set(self, before) : 0;
    Py_XDECREF(before);
    return failed ? NULL : Py_NewRef(Py_None);
}

static PyMethodDef methods[] = {
    {"__enter__", value_enter, METH_NOARGS, "__enter__()\n--\n\nSet the value, and return it."},
    {"__exit__", value_exit, METH_VARARGS, "__exit__(*args)\n--\n\nSet the value before."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, (void *)value_new},
    {Py_tp_dealloc, (void *)value_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_doc, "ContextValue(variable, value)\n--\n\nThe value of a context variable for the "
                "length of a with block."},
    {0, NULL},
};

static PyTypeObject *value_type;

GR_TYPE(gr_add_context_value_type, value_type, "_host.ContextValue", value_object, 0)
