/* The shortest way for an array in host memory: one call that looks at the array itself, adds it
 * up, by the processors or by a device, and returns the result. It serves what needs no thought;
 * all else takes the long way, by gpureduce/core/summation.py, and the two give the same bits. */
#include "bindings/request.h"

#include "threads/clock.h"
#include "cpu/cpu_sum.h"
#include "exact/exact.h"
#include "bindings/gil.h"

#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Up to here a sum is over before another thread would have had the GIL. */
enum { KEEPS_GIL_BYTES = 1 << 16 };

/* NumPy's last number of a type of its own. */
enum { LAST_TYPE = NPY_HALF };

typedef struct {
    gr_load load;
    gr_acc acc;
    int components; /* 2 if complex; 0 for types that are not for here */
    int result;     /* NumPy's number of the sum's type */
} reading;

typedef union {
    unsigned char bytes[16];
    gr_value values[2];
} scalar;

/* By NumPy's numbers. bfloat16 has none until ml_dtypes is imported. */
static reading readings[LAST_TYPE + 1];
static reading bfloat16 = {.components = 1, .result = -1};

/* NumPy's number of a type; -1 if NumPy alone does not know it. */
static int number_of(const char *name)
{
    PyArray_Descr *found = NULL;
    PyObject *text = PyUnicode_FromString(name);
    if (!text || !PyArray_DescrConverter(text, &found))
        PyErr_Clear();
    Py_XDECREF(text);
    int number = found ? found->type_num : -1;
    Py_XDECREF((PyObject *)found);
    return number;
}

static void learn(const char *name, gr_load load, gr_acc acc, const char *result, int components)
{
    int number = number_of(name);
    reading *row = number < 0 || number > LAST_TYPE ? &bfloat16 : &readings[number];
    *row = (reading){load, acc, components, number_of(result)};
}

void gr_learn_dtypes(void)
{
#define DTYPE(name, load, acc, result) learn(#name, GR_LOAD_##load, GR_ACC_##acc, #result, 1);
#include "dtypes.def"
#undef DTYPE
    learn("complex64", GR_LOAD_f32, GR_ACC_f32, "complex64", 2);
    learn("complex128", GR_LOAD_f64, GR_ACC_f64, "complex128", 2);
}

static bool is_bfloat16(const PyArray_Descr *type)
{
    static int number = -1; /* guarded by the GIL */
    if (type->type_num == number)
        return true;
    PyObject *name = PyObject_GetAttrString((PyObject *)type->typeobj, "__name__");
    bool same = name && PyUnicode_CompareWithASCIIString(name, "bfloat16") == 0;
    Py_XDECREF(name);
    if (!name)
        PyErr_Clear();
    if (same)
        number = type->type_num;
    return same;
}

static const reading *reading_of(PyObject *object)
{
    if (!PyArray_CheckExact(object))
        return NULL;
    PyArrayObject *array = (PyArrayObject *)object;
    int flags = PyArray_FLAGS(array), number = PyArray_TYPE(array);
    if (!(flags & (NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_F_CONTIGUOUS)) ||
        !(flags & NPY_ARRAY_ALIGNED) || !PyArray_ISNOTSWAPPED(array))
        return NULL;
    if (number >= NPY_USERDEF)
        return is_bfloat16(PyArray_DESCR(array)) ? &bfloat16 : NULL;
    if (number == NPY_LONGLONG || number == NPY_ULONGLONG)
        number -= NPY_LONGLONG - NPY_LONG; /* the same, where Linux is 64 bits wide */
    bool known = number >= 0 && number <= LAST_TYPE && readings[number].components;
    size_t size = known ? gr_load_size(readings[number].load) : 0;
    bool fits =
        size * (size_t)readings[known ? number : 0].components == (size_t)PyArray_ITEMSIZE(array);
    return known && fits ? &readings[number] : NULL;
}

static bool is_integer(const reading *how)
{
    return how->acc == GR_ACC_u32 || how->acc == GR_ACC_u64;
}

/* Little-endian, as the processors that this builds for: the low bytes come first. */
static void store_rounded(const gr_exact *sum, const reading *how, scalar *out)
{
    size_t size = gr_load_size(how->load);
    for (int i = 0; i < how->components; i++) {
        uint64_t bits = gr_exact_round(&sum[i], how->load);
        memcpy(out->bytes + (size_t)i * size, &bits, size);
    }
}

/* Sums in accumulators, as numbers of the result's type. */
static void store_values(const gr_value *values, const reading *how, scalar *out)
{
    gr_exact wide;
    size_t size = gr_acc_size(how->acc);
    if (gr_load_size(how->load) == 2 && !is_integer(how)) {
        gr_exact_init(&wide); /* rounds as it should */
        gr_exact_add_f64(&wide, (double)values[0].f32);
        store_rounded(&wide, how, out);
        return;
    }
    for (int i = 0; i < how->components; i++)
        memcpy(out->bytes + (size_t)i * size, &values[i], size);
}

static void add(const void *data, size_t n, const reading *how, bool exactly, scalar *out)
{
    if (exactly && !is_integer(how)) {
        gr_exact sum[2];
        gr_exact_sum_array(data, n, how->load, how->components, 0, sum);
        store_rounded(sum, how, out);
        return;
    }
    gr_value values[2];
    gr_cpu_sum(data, n, how->load, how->acc, how->components, 0, values);
    store_values(values, how, out);
}

static PyObject *scalar_of(const scalar *sum, const reading *how, PyArrayObject *array)
{
    PyArray_Descr *type = PyArray_DESCR(array);
    if (how->result >= 0)
        type = PyArray_DescrFromType(how->result);
    else
        Py_INCREF((PyObject *)type);
    PyObject *value = type ? PyArray_Scalar((void *)sum->bytes, type, NULL) : NULL;
    Py_XDECREF((PyObject *)type);
    return value;
}

static int add_array(PyArrayObject *array, const reading *how, bool exactly, scalar *sum)
{
    const void *data = PyArray_DATA(array);
    size_t n = (size_t)PyArray_SIZE(array);
    if (PyArray_NBYTES(array) <= KEEPS_GIL_BYTES) {
        add(data, n, how, exactly, sum);
        return 0;
    }
    gr_without_gil call;
    gr_drop_gil(&call);
    add(data, n, how, exactly, sum);
    return gr_take_gil(&call);
}

PyObject *gr_py_quick_sum(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (count != 3) {
        PyErr_SetString(PyExc_TypeError, "expected an array and two truth values");
        return NULL;
    }
    const reading *how = reading_of(args[0]);
    if (!how)
        Py_RETURN_NONE;
    PyArrayObject *array = (PyArrayObject *)args[0];
    bool exactly = args[1] == Py_True, timed = args[2] == Py_True;
    scalar sum;
    double start = timed ? gr_now_ms() : 0;
    if (add_array(array, how, exactly, &sum) < 0)
        return NULL;
    PyObject *value = scalar_of(&sum, how, array);
    return timed && value ? Py_BuildValue("Nd", value, gr_now_ms() - start) : gr_untimed(value);
}

PyObject *gr_py_quick_sum_sent(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (count != 3) {
        PyErr_SetString(PyExc_TypeError, "expected an array, a strategy's number and a device's");
        return NULL;
    }
    int asked;
    if (gr_strategy_of(args[1], &asked) < 0)
        return NULL;
    long device = PyLong_AsLong(args[2]);
    if (!PyErr_Occurred() && (device < 0 || device > INT_MAX))
        PyErr_Format(PyExc_ValueError, "there is no device %ld", device);
    if (PyErr_Occurred())
        return NULL;
    const reading *how = reading_of(args[0]);
    if (!how || how->components != 1)
        Py_RETURN_NONE;
    PyArrayObject *array = (PyArrayObject *)args[0];
    int strategy, choose = gr_pick(asked, is_integer(how), &strategy);
    gr_request request = {
        .data = PyArray_DATA(array),
        .n = (size_t)PyArray_SIZE(array),
        .load = how->load,
        .acc = how->acc,
        .strategy = strategy,
        .device = (int)device,
    };
    gr_outcome outcome;
    if (gr_run_sum(&request, choose, 0, 0, &outcome) < 0)
        return NULL;
    scalar sum;
    if (gr_strategy_at(request.strategy)->traits & DIGITS)
        store_rounded(&outcome.exact, how, &sum);
    else
        store_values(&outcome.value, how, &sum);
    return gr_untimed(scalar_of(&sum, how, array));
}

/* os.environ, which writes through to C's, takes as long to miss a name as the rest of a call's way
 * through Python: a microsecond. */
PyObject *gr_py_environment(PyObject *Py_UNUSED(module), PyObject *name)
{
    const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
    if (!text)
        return NULL;
    const char *value = getenv(text);
    if (value)
        return PyUnicode_DecodeFSDefault(value);
    Py_RETURN_NONE;
}
