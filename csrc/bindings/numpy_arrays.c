/* NumPy arrays that C reads, and NumPy scalars that it returns. */
#define GR_IMPORTS_NUMPY
#include "bindings/numpy_arrays.h"

#include "cpu/bools.h"
#include "shared/how.h"

#include <string.h>

/* NumPy's highest built-in type number. */
enum { LAST_TYPE = NPY_HALF };

/* Indexed by gr_dtype. bfloat16's result is -1 until ml_dtypes is imported; it is set and read
 * atomically. */
static gr_numpy_type types[GR_DTYPE_COUNT];
static gr_numpy_type *const bfloat16 = &types[GR_DTYPE_bfloat16];

/* By NumPy's type number: one of these rows, or NULL. */
static const gr_numpy_type *by_number[LAST_TYPE + 1];

/* Returns NumPy's type number, or -1 if NumPy does not know the type. */
static int number_of(const char *name)
{
    PyArray_Descr *found = NULL;
    PyObject *text = PyUnicode_FromString(name);
    if (!text || !PyArray_DescrConverter(text, &found))
        PyErr_Clear();
    Py_XDECREF(text);
    int number = found && found->type_num < NPY_USERDEF ? found->type_num : -1;
    Py_XDECREF((PyObject *)found);
    return number;
}

int gr_kind_of(const gr_numpy_type *type)
{
    return type == bfloat16 ? 'B' : gr_dtype_rows[type - types].name[0];
}

const gr_numpy_type *gr_numpy_type_of_kind(int kind, int bytes)
{
    for (int i = 0; i < GR_DTYPE_COUNT; i++)
        if (gr_kind_of(&types[i]) == kind &&
            (int)gr_load_size(types[i].load) * types[i].components == bytes)
            return &types[i];
    return NULL;
}

int gr_dtype_of(const gr_numpy_type *type)
{
    return (int)(type - types);
}

const gr_numpy_type *gr_numpy_type_of_line(int dtype)
{
    return &types[dtype];
}

int gr_import_numpy(void)
{
    if (PyArray_ImportNumPyAPI() < 0)
        return -1;
    for (int i = 0; i < GR_DTYPE_COUNT; i++) {
        const gr_dtype_row *row = &gr_dtype_rows[i];
        int number = number_of(row->name), result = number_of(gr_dtype_rows[row->result].name);
        types[i] = (gr_numpy_type){row->load, row->acc, row->parts, result};
        if (number >= 0 && number <= LAST_TYPE)
            by_number[number] = &types[i];
    }
    return 0;
}

static bool is_bfloat16(const PyArray_Descr *type)
{
    if (type->type_num == __atomic_load_n(&bfloat16->result, __ATOMIC_RELAXED))
        return true;
    PyObject *name = PyUnicode_FromString("ml_dtypes");
    PyObject *module = name ? PyImport_GetModule(name) : NULL;
    PyObject *found = module ? PyObject_GetAttrString(module, "bfloat16") : NULL;
    bool same = found == (PyObject *)type->typeobj;
    Py_XDECREF(name);
    Py_XDECREF(module);
    Py_XDECREF(found);
    PyErr_Clear();
    if (same)
        __atomic_store_n(&bfloat16->result, type->type_num, __ATOMIC_RELAXED);
    return same;
}

int gr_bfloat16_number(void)
{
    enum { UNKNOWN = -2 };
    static int kept = UNKNOWN;
    int number = __atomic_load_n(&kept, __ATOMIC_RELAXED);
    if (number != UNKNOWN)
        return number;
    PyArray_Descr *found = NULL;
    PyObject *module = PyImport_ImportModule("ml_dtypes"); /* makes NumPy know it */
    PyObject *type = module ? PyObject_GetAttrString(module, "bfloat16") : NULL;
    if (type && PyArray_DescrConverter(type, &found)) {
        number = found->type_num;
    } else if (PyErr_ExceptionMatches(PyExc_ImportError)) {
        PyErr_Clear();
        number = -1;
    }
    __atomic_store_n(&kept, number, __ATOMIC_RELAXED);
    Py_XDECREF((PyObject *)found);
    Py_XDECREF(type);
    Py_XDECREF(module);
    return number;
}

const gr_numpy_type *gr_numpy_type_of_dtype(const PyArray_Descr *dtype)
{
    int number = dtype->type_num;
    if (number >= NPY_USERDEF)
        return is_bfloat16(dtype) ? bfloat16 : NULL;
    if (number == NPY_LONGLONG || number == NPY_ULONGLONG)
        number -= NPY_LONGLONG - NPY_LONG; /* the same type on 64-bit Linux */
    return number >= 0 && number <= LAST_TYPE ? by_number[number] : NULL;
}

const gr_numpy_type *gr_numpy_type_of(PyObject *object)
{
    if (!PyArray_CheckExact(object))
        return NULL;
    int flags = PyArray_FLAGS((PyArrayObject *)object);
    if (!(flags & (NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_F_CONTIGUOUS)) ||
        !(flags & NPY_ARRAY_ALIGNED))
        return NULL;
    return gr_numpy_type_of_elements(object);
}

/* Whether the elements are bytes 0 and 1 without gaps. Python looks at others. */
static bool holds_bools(PyArrayObject *array)
{
    enum { KEEPS_GIL_BYTES = 1 << 16 };
    const void *data = PyArray_DATA(array);
    size_t n = (size_t)PyArray_NBYTES(array);
    bool found;
    if (!(PyArray_FLAGS(array) & (NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_F_CONTIGUOUS)))
        return false;
    if (n <= KEEPS_GIL_BYTES)
        return gr_cpu_are_bools(data, n);
    Py_BEGIN_ALLOW_THREADS;
    found = gr_cpu_are_bools(data, n);
    Py_END_ALLOW_THREADS;
    return found;
}

const gr_numpy_type *gr_numpy_type_of_elements(PyObject *object)
{
    if (!PyArray_CheckExact(object))
        return NULL;
    PyArrayObject *array = (PyArrayObject *)object;
    if (PyArray_TYPE(array) == NPY_BOOL && !holds_bools(array))
        return NULL;
    if (!PyArray_ISNOTSWAPPED(array))
        return NULL;
    const gr_numpy_type *type = gr_numpy_type_of_dtype(PyArray_DESCR(array));
    size_t size = type ? gr_load_size(type->load) * (size_t)type->components : 0;
    return size == (size_t)PyArray_ITEMSIZE(array) ? type : NULL;
}

/* Copies the low bytes first: all processors that this builds for are little-endian. */
void gr_round_sums(const gr_exact *sums, const gr_numpy_type *type, gr_scalar *scalar)
{
    size_t size = gr_load_size(type->load);
    for (int i = 0; i < type->components; i++) {
        uint64_t bits = gr_exact_round(&sums[i], type->load);
        memcpy(scalar->bytes + (size_t)i * size, &bits, size);
    }
}

void gr_convert_sums(const gr_value *values, const gr_numpy_type *type, gr_scalar *scalar)
{
    gr_exact wide;
    size_t size = gr_acc_size(type->acc);
    if (gr_load_size(type->load) == 2 && !gr_adds_integers(type)) {
        gr_exact_init(&wide); /* rounds once, to nearest */
        gr_exact_add_f64(&wide, (double)values[0].f32);
        gr_round_sums(&wide, type, scalar);
        return;
    }
    for (int i = 0; i < type->components; i++)
        memcpy(scalar->bytes + (size_t)i * size, &values[i], size);
}

PyArray_Descr *gr_result_type(const gr_numpy_type *type)
{
    return PyArray_DescrFromType(__atomic_load_n(&type->result, __ATOMIC_RELAXED));
}

PyObject *gr_scalar_object(const gr_scalar *scalar, const gr_numpy_type *type)
{
    PyArray_Descr *found = gr_result_type(type);
    PyObject *value = found ? PyArray_Scalar((void *)scalar->bytes, found, NULL) : NULL;
    Py_XDECREF((PyObject *)found);
    return value;
}

bool gr_holds_objects(PyArrayObject *array)
{
    return PyDataType_REFCHK(PyArray_DESCR(array));
}

PyArrayObject *gr_check_array(PyObject *object, int load, int acc, int components)
{
    if (load < 0 || load >= GR_LOAD_COUNT || acc < 0 || acc >= GR_ACC_COUNT || components < 1 ||
        components > 2) {
        PyErr_SetString(PyExc_ValueError, "no such element type, accumulator or component count");
        return NULL;
    }
    if (!PyArray_Check(object)) {
        PyErr_SetString(PyExc_TypeError, "expected a NumPy array");
        return NULL;
    }
    PyArrayObject *array = (PyArrayObject *)object;
    if (!PyArray_CHKFLAGS(array, NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED) ||
        !PyArray_ISNOTSWAPPED(array) || gr_holds_objects(array) ||
        (size_t)PyArray_ITEMSIZE(array) != gr_load_size((gr_load)load) * (size_t)components) {
        PyErr_SetString(PyExc_ValueError,
                        "expected a contiguous, aligned array in native byte order");
        return NULL;
    }
    return array;
}
