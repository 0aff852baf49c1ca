/* Checks what a producer says of its array on a GPU. */
#include "bindings/device/gpu_array.h"

#include <stdbool.h>

/* Larger than any address on any CPU or GPU. Up to this limit, arithmetic on addresses and steps
 * cannot overflow. */
static const int64_t HIGHEST_ADDRESS = (int64_t)1 << 61;

static int refuse(const char *what)
{
    PyErr_Format(PyExc_BufferError, "an array on a GPU %s", what);
    return -1;
}

void gr_fill_steps(gr_array *array)
{
    uint64_t step =
        (uint64_t)array->bytes; /* may wrap around for sizes that gr_check_extent() rejects */
    for (int d = array->dims - 1; d >= 0; d--) {
        array->step[d] = (int64_t)step;
        step *= (uint64_t)array->size[d];
    }
}

/* Returns 1 if there are elements, 0 if there are none, or -1 with an exception set. */
static int count_elements(gr_array *array)
{
    bool is_empty = false, overflows = false;
    array->count = 1;
    for (int d = 0; d < array->dims; d++) {
        if (array->size[d] < 0) {
            PyErr_Format(PyExc_BufferError,
                         "an array on a GPU has the negative size %lld in its shape",
                         (long long)array->size[d]);
            return -1;
        }
        is_empty |= array->size[d] == 0;
        overflows |= __builtin_mul_overflow(array->count, array->size[d], &array->count);
    }
    if (is_empty)
        return array->count = 0;
    return overflows ? refuse("has 2^63 elements or more") : 1;
}

bool gr_find_extent(gr_array *array)
{
    int64_t low = 0, high = 0, base = (int64_t)(uintptr_t)array->base;
    bool overflows = false;
    for (int d = 0; d < array->dims; d++) {
        int64_t span, *end = array->step[d] < 0 ? &low : &high;
        overflows |= __builtin_mul_overflow(array->size[d] - 1, array->step[d], &span);
        overflows |= __builtin_add_overflow(*end, span, end);
    }
    overflows |= __builtin_add_overflow(high, array->bytes - 1, &high);
    array->first = (uintptr_t)base + (uintptr_t)low;
    array->last = (uintptr_t)base + (uintptr_t)high;
    return !overflows && base >= 0 && base <= HIGHEST_ADDRESS && high <= HIGHEST_ADDRESS - base &&
           low >= -base;
}

int gr_check_extent(gr_array *array)
{
    int has_elements = count_elements(array);
    if (has_elements <= 0)
        return has_elements < 0 ? -1 : 1;
    for (int d = 0; d < array->dims; d++)
        if (array->size[d] == 1)
            array->step[d] = 0; /* no step is taken: there is one element */
    if (!array->base) {
        PyErr_Format(PyExc_BufferError, "an array on a GPU has %lld elements, but a null pointer",
                     (long long)array->count);
        return -1;
    }
    return gr_find_extent(array) ? 1
                                 : refuse("has a shape or strides that exceed the address space");
}

int gr_optional_attribute(PyObject *object, const char *name, int or_broken, PyObject **value)
{
    *value = PyObject_GetAttrString(object, name);
    if (*value)
        return 0;
    /* Exceptions of other types are passed on: a signal handler may have raised them. */
    PyObject *type = PyErr_Occurred();
    bool is_none = PyErr_ExceptionMatches(PyExc_AttributeError) ||
                   (or_broken && (type == PyExc_TypeError || type == PyExc_RuntimeError));
    if (!is_none)
        return -1;
    PyErr_Clear();
    return 0;
}
