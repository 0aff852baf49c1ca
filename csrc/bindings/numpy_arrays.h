/* NumPy arrays that C reads, and NumPy scalars that it returns. */
#pragma once

#include "bindings/python.h"

#include "exact/exact.h"
#include "shared/dtypes.h"

#include <stdbool.h>

/* Imports NumPy's C API and looks up its types. Every module calls this once, when it is loaded.
 * Returns 0, or -1 with an exception set. */
int gr_import_numpy(void);

/* Returns the array if it is contiguous, aligned and in native byte order, and if its elements
 * consist of `components` values of type `load`. Returns NULL with an exception set otherwise.
 * gpureduce/core/arrays.py makes such arrays. */
PyArrayObject *gr_check_array(PyObject *object, int load, int acc, int components);

/* Whether the elements are Python objects, whose bytes are not ours to read or write. */
bool gr_holds_objects(PyArrayObject *array);

/* How elements of a NumPy type are read and added up. */
typedef struct {
    gr_load load;
    gr_acc acc;
    int components; /* 2 if complex; 0 for types that C does not read */
    int result;     /* NumPy's number of the sum's type */
} gr_numpy_type;

/* Returns NULL for objects that Python must first convert to an array, or to another layout or
 * type. */
const gr_numpy_type *gr_numpy_type_of(PyObject *object);

/* The same for arrays with any strides and alignment. */
const gr_numpy_type *gr_numpy_type_of_elements(PyObject *object);

/* The same for elements of a kind ('b', 'i', 'u', 'f', 'c', or 'B' for bfloat16) and a size. The
 * `result` of bfloat16 may be -1. */
const gr_numpy_type *gr_numpy_type_of_kind(int kind, int bytes);

/* The kind of such a row. */
int gr_kind_of(const gr_numpy_type *type);

/* The same for a dtype in native byte order. */
const gr_numpy_type *gr_numpy_type_of_dtype(const PyArray_Descr *dtype);

/* Converts between one of these rows and its gr_dtype. */
int gr_dtype_of(const gr_numpy_type *type);
const gr_numpy_type *gr_numpy_type_of_line(int dtype);

/* Returns NumPy's number of ml_dtypes' bfloat16; -1 without ml_dtypes; -2 with an exception set. */
int gr_bfloat16_number(void);

/* The dtype of the sum, as a new reference; NULL with an exception set. */
PyArray_Descr *gr_result_type(const gr_numpy_type *type);

static inline bool gr_adds_integers(const gr_numpy_type *type)
{
    return type->acc == GR_ACC_u32 || type->acc == GR_ACC_u64;
}

/* The bits of a NumPy scalar. */
typedef union {
    unsigned char bytes[16];
    gr_value values[2];
} gr_scalar;

/* Rounds exact sums, one per component, to the type. */
void gr_round_sums(const gr_exact *sums, const gr_numpy_type *type, gr_scalar *scalar);

/* Converts sums in accumulators, one per component, to the type that numpy.sum returns. */
void gr_convert_sums(const gr_value *values, const gr_numpy_type *type, gr_scalar *scalar);

/* Returns the scalar as a Python object. It does not read the array again, whose dtype another
 * thread may have set since. */
PyObject *gr_scalar_object(const gr_scalar *scalar, const gr_numpy_type *type);
