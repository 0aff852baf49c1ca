/* NumPy arrays that C reads, and NumPy scalars that it returns. */
#ifndef GPUREDUCE_BINDINGS_NUMPY_ARRAYS_H
#define GPUREDUCE_BINDINGS_NUMPY_ARRAYS_H

#include "bindings/python.h"

#include "exact/exact.h"
#include "shared/dtypes.h"

#include <stdbool.h>

/* Fetches NumPy's functions and looks its types up. Every module calls it once, when it is loaded:
 * 0, or -1 with an exception. */
int gr_import_numpy(void);

/* The array, if it is contiguous, aligned and in native byte order and its elements have the size
 * that `load` has; NULL with an exception if not. gpureduce/core/arrays.py makes such arrays. */
PyArrayObject *gr_check_array(PyObject *object, int load, int acc, int components);

/* How elements of a NumPy type are read and added up. */
typedef struct {
    gr_load load;
    gr_acc acc;
    int components; /* 2 if complex; 0 for types that C does not read */
    int result;     /* NumPy's number of the sum's type; -1: the array's own type */
} gr_numpy_type;

/* NULL for objects that Python must make into an array, or convert, first. */
const gr_numpy_type *gr_numpy_type_of(PyObject *object);

static inline bool gr_adds_integers(const gr_numpy_type *type)
{
    return type->acc == GR_ACC_u32 || type->acc == GR_ACC_u64;
}

/* The bits of a NumPy scalar. */
typedef union {
    unsigned char bytes[16];
    gr_value values[2];
} gr_scalar;

/* Exact sums, one per component, rounded to the type. */
void gr_round_sums(const gr_exact *sums, const gr_numpy_type *type, gr_scalar *scalar);

/* Sums in accumulators, one per component, as the type that numpy.sum returns. */
void gr_convert_sums(const gr_value *values, const gr_numpy_type *type, gr_scalar *scalar);

/* The scalar as a Python object. `array` is the one that was summed. */
PyObject *gr_scalar_object(const gr_scalar *scalar, const gr_numpy_type *type, PyObject *array);

/* SumResult(value, None), the result of a call without timing; NULL if `value` is. Steals the
 * reference to `value`. */
PyObject *gr_untimed(PyObject *value);

#endif
