/* The type SumResult. It unpacks into the pair (value, timing), and otherwise acts as the value. */
#include "bindings/host/functions.h"

#include "bindings/results.h"

#include <structmember.h>

/* Py_TPFLAGS_SEQUENCE, which the headers of the stable ABI leave out: `case value, timing`. */
#define MATCHES_SEQUENCES (1UL << 5)

/* Kept for the life of the process: all modules of this name share the type. */
static PyObject *sum_result_type;

static bool is_result(PyObject *object)
{
    return (PyObject *)Py_TYPE(object) == sum_result_type;
}

/* The value of a SumResult, or any other object itself, as a borrowed reference. */
static PyObject *value_of(PyObject *object)
{
    return is_result(object) ? ((gr_sum_result *)object)->value : object;
}

static PyObject *result_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"value", "timing", NULL};
    PyObject *value, *timing;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OO:SumResult", names, &value, &timing))
        return NULL;
    if (is_result(timing)) {
        PyErr_SetString(PyExc_TypeError, "timing must be a Timing or None, not a SumResult");
        return NULL;
    }
    gr_sum_result *self = (gr_sum_result *)PyType_GenericAlloc(type, 0);
    if (!self)
        return NULL;
    self->value = Py_NewRef(value_of(value));
    self->timing = Py_NewRef(timing);
    return (PyObject *)self;
}

/* There is no tp_clear, as for tuples: a cycle has a mutable object, too, which breaks it. */
static int result_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(((gr_sum_result *)object)->value);
    Py_VISIT(((gr_sum_result *)object)->timing);
    return 0;
}

static void result_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    Py_XDECREF(((gr_sum_result *)object)->value);
    Py_XDECREF(((gr_sum_result *)object)->timing);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

/* --- the pair --------------------------------------------------------------------------------- */

static PyObject *pair(PyObject *object)
{
    gr_sum_result *self = (gr_sum_result *)object;
    return PyTuple_Pack(2, self->value, self->timing);
}

static PyObject *result_iter(PyObject *self)
{
    PyObject *both = pair(self), *iterator = both ? PyObject_GetIter(both) : NULL;
    Py_XDECREF(both);
    return iterator;
}

static Py_ssize_t result_length(PyObject *Py_UNUSED(self))
{
    return 2;
}

static PyObject *result_item(PyObject *object, PyObject *key)
{
    gr_sum_result *self = (gr_sum_result *)object;
    PyObject *number = PyNumber_Index(key); /* arrays with dimensions have none */
    if (!number && !PyErr_ExceptionMatches(PyExc_TypeError))
        return NULL;
    PyObject *error = number ? PyExc_IndexError : PyExc_TypeError;
    PyErr_Clear();
    Py_ssize_t i = number ? PyNumber_AsSsize_t(number, NULL) : 2;
    Py_XDECREF(number);
    if (i == 0 || i == -2)
        return Py_NewRef(self->value);
    if (i == 1 || i == -1)
        return Py_NewRef(self->timing);
    PyErr_SetString(error,
                    "a SumResult has two items, [0] the value and [1] the timing: for elements of "
                    "the value write .value[...]");
    return NULL;
}

static PyObject *result_reduce(PyObject *object, PyObject *Py_UNUSED(none))
{
    PyObject *both = pair(object);
    return both ? Py_BuildValue("(ON)", sum_result_type, both) : NULL;
}

/* --- the value -------------------------------------------------------------------------------- */

/* clang-format off */
#define UNARY_SLOTS(X)                                                                             \
    X(negative, Negative) X(positive, Positive) X(absolute, Absolute) X(invert, Invert)            \
    X(int, Long) X(float, Float) X(index, Index)
#define BINARY_SLOTS(X)                                                                            \
    X(add, Add) X(subtract, Subtract) X(multiply, Multiply) X(remainder, Remainder)                \
    X(divmod, Divmod) X(lshift, Lshift) X(rshift, Rshift) X(and, And) X(xor, Xor) X(or, Or)        \
    X(floor_divide, FloorDivide) X(true_divide, TrueDivide) X(matrix_multiply, MatrixMultiply)
/* clang-format on */

/* Either operand may be the SumResult. */
#define DEFINE_UNARY(slot, name)                                                                   \
    static PyObject *result_##slot(PyObject *self)                                                 \
    {                                                                                              \
        return PyNumber_##name(value_of(self));                                                    \
    }
#define DEFINE_BINARY(slot, name)                                                                  \
    static PyObject *result_##slot(PyObject *left, PyObject *right)                                \
    {                                                                                              \
        return PyNumber_##name(value_of(left), value_of(right));                                   \
    }
UNARY_SLOTS(DEFINE_UNARY)
BINARY_SLOTS(DEFINE_BINARY)

static PyObject *result_power(PyObject *base, PyObject *exponent, PyObject *modulus)
{
    return PyNumber_Power(value_of(base), value_of(exponent), value_of(modulus));
}

static PyObject *result_compare(PyObject *left, PyObject *right, int operation)
{
    return PyObject_RichCompare(value_of(left), value_of(right), operation);
}

static Py_hash_t result_hash(PyObject *self)
{
    return PyObject_Hash(value_of(self));
}

static int result_bool(PyObject *self)
{
    return PyObject_IsTrue(value_of(self));
}

static int result_contains(PyObject *self, PyObject *item)
{
    return PySequence_Contains(value_of(self), item);
}

/* Public attributes, and the protocols of arrays that the value may lack. */
static bool is_of_value(PyObject *name)
{
    return PyUnicode_ReadChar(name, 0) != '_' ||
           PyUnicode_CompareWithASCIIString(name, "__dlpack__") == 0 ||
           PyUnicode_CompareWithASCIIString(name, "__dlpack_device__") == 0 ||
           PyUnicode_CompareWithASCIIString(name, "__cuda_array_interface__") == 0;
}

static PyObject *result_getattro(PyObject *self, PyObject *name)
{
    PyObject *found = PyObject_GenericGetAttr(self, name), *type, *error, *trace;
    if (found || !PyErr_ExceptionMatches(PyExc_AttributeError) || !PyUnicode_GetLength(name))
        return found;
    PyErr_Fetch(&type, &error, &trace);
    found = is_of_value(name) ? PyObject_GetAttr(value_of(self), name) : NULL;
    if (!found && (!PyErr_Occurred() || PyErr_ExceptionMatches(PyExc_AttributeError))) {
        PyErr_Restore(type, error, trace); /* of the SumResult, with its attributes as hints */
        return NULL;
    }
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(trace);
    return found;
}

static PyObject *result_str(PyObject *object)
{
    gr_sum_result *self = (gr_sum_result *)object;
    return self->timing == Py_None ? PyObject_Str(self->value)
                                   : PyUnicode_FromFormat("%S\n%S", self->value, self->timing);
}

static PyObject *result_repr(PyObject *object)
{
    gr_sum_result *self = (gr_sum_result *)object;
    return PyUnicode_FromFormat("SumResult(%R, %S)", self->value, self->timing);
}

static PyObject *result_format(PyObject *self, PyObject *spec)
{
    return PyObject_Format(value_of(self), spec);
}

static PyObject *result_complex(PyObject *self, PyObject *Py_UNUSED(none))
{
    return PyObject_CallFunctionObjArgs((PyObject *)&PyComplex_Type, value_of(self), NULL);
}

/* Calls module.name(value, more), or module.name(value) if `more` is NULL. */
static PyObject *call(PyObject *self, const char *module, const char *name, PyObject *more)
{
    PyObject *found = PyImport_ImportModule(module);
    PyObject *function = found ? PyObject_GetAttrString(found, name) : NULL;
    PyObject *result =
        function ? PyObject_CallFunctionObjArgs(function, value_of(self), more, NULL) : NULL;
    Py_XDECREF(function);
    Py_XDECREF(found);
    return result;
}

static PyObject *result_trunc(PyObject *self, PyObject *Py_UNUSED(none))
{
    return call(self, "math", "trunc", NULL);
}

static PyObject *result_round(PyObject *self, PyObject *args)
{
    PyObject *digits = NULL;
    return PyArg_ParseTuple(args, "|O:__round__", &digits) ? call(self, "builtins", "round", digits)
                                                           : NULL;
}

static PyObject *result_array(PyObject *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"dtype", "copy", NULL};
    PyArray_Descr *dtype = NULL;
    PyObject *copy = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|O&O:__array__", names,
                                     PyArray_DescrConverter2, &dtype, &copy))
        return NULL;
    int copies = copy == Py_None ? 0 : PyObject_IsTrue(copy);
    int flags = copies ? NPY_ARRAY_ENSURECOPY : copy == Py_None ? 0 : NPY_ARRAY_ENSURENOCOPY;
    if (copies >= 0)
        return PyArray_FromAny(value_of(self), dtype, 0, 0, flags | NPY_ARRAY_FORCECAST, NULL);
    Py_XDECREF((PyObject *)dtype);
    return NULL;
}

/* A new tuple, in which values replace SumResults; value_of() of other objects. */
static PyObject *values_of(PyObject *object)
{
    if (!PyTuple_Check(object))
        return Py_NewRef(value_of(object));
    Py_ssize_t count = PyTuple_Size(object);
    PyObject *values = PyTuple_New(count);
    for (Py_ssize_t i = 0; values && i < count; i++)
        PyTuple_SetItem(values, i, Py_NewRef(value_of(PyTuple_GetItem(object, i))));
    return values;
}

/* NumPy calls this for a ufunc with a SumResult among its operands, such as array + result. The
 * ufunc then gets the value of each SumResult in its place. */
static PyObject *result_ufunc(PyObject *Py_UNUSED(self), PyObject *args, PyObject *keywords)
{
    Py_ssize_t count = PyTuple_Size(args), at = 0;
    PyObject *method = count < 2 ? NULL : PyTuple_GetItem(args, 1), *name, *given;
    if (!method) {
        PyErr_SetString(PyExc_TypeError, "__array_ufunc__ takes a ufunc, a method and operands");
        return NULL;
    }
    PyObject *function = PyObject_GetAttr(PyTuple_GetItem(args, 0), method), *result = NULL;
    PyObject *operands = PyTuple_GetSlice(args, 2, count);
    PyObject *values = operands ? values_of(operands) : NULL;
    PyObject *options = PyDict_New();
    int failed = !function || !values || !options;
    while (!failed && keywords && PyDict_Next(keywords, &at, &name, &given)) {
        PyObject *value = values_of(given);
        failed = !value || PyDict_SetItem(options, name, value) < 0;
        Py_XDECREF(value);
    }
    if (!failed)
        result = PyObject_Call(function, values, options);
    Py_XDECREF(function);
    Py_XDECREF(operands);
    Py_XDECREF(values);
    Py_XDECREF(options);
    return result;
}

/* --- the type --------------------------------------------------------------------------------- */

#define WITH_KEYWORDS(function) ((PyCFunction)(void (*)(void))(function))

static PyMethodDef methods[] = {
    {"__array__", WITH_KEYWORDS(result_array), METH_VARARGS | METH_KEYWORDS,
     "__array__($self, dtype=None, copy=None)\n--\n\nThe value as a NumPy array."},
    {"__array_ufunc__", WITH_KEYWORDS(result_ufunc), METH_VARARGS | METH_KEYWORDS,
     "The ufunc of the value."},
    {"__complex__", result_complex, METH_NOARGS, "complex(value)"},
    {"__format__", result_format, METH_O, "format(value, spec)"},
    {"__reduce__", result_reduce, METH_NOARGS, "For pickle and copy."},
    {"__round__", result_round, METH_VARARGS, "round(value[, digits])"},
    {"__trunc__", result_trunc, METH_NOARGS, "math.trunc(value)"},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
    {"value", T_OBJECT_EX, offsetof(gr_sum_result, value), READONLY,
     "The sum, a NumPy scalar, or an array of sums."},
    {"timing", T_OBJECT_EX, offsetof(gr_sum_result, timing), READONLY, "The Timing, or None."},
    {NULL, 0, 0, 0, NULL},
};

static const char doc[] =
    "SumResult(value, timing)\n--\n\n"
    "The sum and its timing.\n\n"
    "``value, timing = result`` unpacks it, and ``result[0]`` and ``result[1]`` are the same two.\n"
    "Everything else is the value's: arithmetic, comparison, formatting, conversion, NumPy's\n"
    "functions, and attributes such as ``shape``. ``str`` and ``repr`` add a line of timing.\n\n"
    "Attributes\n----------\n"
    "value\n"
    "    The sum, a NumPy scalar. Along axes and by segment, an array of the sums: a NumPy array,\n"
    "    or for arrays on a GPU one on that GPU.\n"
    "timing\n"
    "    Its `Timing`; None with ``timing=False``.\n\n"
    "Examples\n--------\n"
    ">>> import gpureduce\n"
    ">>> result = gpureduce.sum([1.5, 2.5])\n"
    ">>> result == 4, float(result), f\"{result:.2f}\"\n"
    "(np.True_, 4.0, '4.00')\n"
    ">>> value, timing = result\n"
    ">>> timing.n\n"
    "2\n";

#define SLOT(slot, name) {Py_nb_##slot, (void *)result_##slot},
static PyType_Slot slots[] = {
    UNARY_SLOTS(SLOT) BINARY_SLOTS(SLOT){Py_nb_power, (void *)result_power},
    {Py_nb_bool, (void *)result_bool},
    {Py_mp_length, (void *)result_length},
    {Py_mp_subscript, (void *)result_item},
    {Py_sq_contains, (void *)result_contains},
    {Py_tp_new, (void *)result_new},
    {Py_tp_dealloc, (void *)result_dealloc},
    {Py_tp_traverse, (void *)result_traverse},
    {Py_tp_iter, (void *)result_iter},
    {Py_tp_richcompare, (void *)result_compare},
    {Py_tp_hash, (void *)result_hash},
    {Py_tp_getattro, (void *)result_getattro},
    {Py_tp_str, (void *)result_str},
    {Py_tp_repr, (void *)result_repr},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {Py_tp_doc, (void *)doc},
    {0, NULL},
};

/* Pickles of earlier versions name the type so. */
static PyType_Spec spec = {
    .name = "gpureduce.core.results.SumResult",
    .basicsize = sizeof(gr_sum_result),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | MATCHES_SEQUENCES,
    .slots = slots,
};

int gr_add_sum_result_type(PyObject *module)
{
    if (!sum_result_type) {
        PyObject *type = PyType_FromSpec(&spec), *names = Py_BuildValue("(ss)", "value", "timing");
        int set = type && names ? PyObject_SetAttrString(type, "__match_args__", names) : -1;
        Py_XDECREF(names);
        if (set < 0) {
            Py_XDECREF(type);
            return -1;
        }
        sum_result_type = type;
    }
    return PyModule_AddObjectRef(module, "SumResult", sum_result_type);
}
