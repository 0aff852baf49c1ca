/* Arrays that lie on a GPU, by DLPack, __cuda_array_interface__ or CuPy. Includes Python.h. */
#ifndef GPUREDUCE_GPU_ARRAY_H
#define GPUREDUCE_GPU_ARRAY_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "shared/elements.h"

enum { GR_ARRAY_MAX_DIMS = 64 };

/* An array as its producer described it, once, for the length of a call. */
typedef struct {
    const char *base;
    int device; /* CUDA's number of it; -1: not known yet */
    int kind;   /* 'b', 'i', 'u', 'f', 'c', or 'B' for bfloat16 */
    int bytes;  /* of an element */
    int dims;
    int64_t size[GR_ARRAY_MAX_DIMS];
    int64_t step[GR_ARRAY_MAX_DIMS]; /* in elements */
    int64_t count;                   /* of elements; if it is 0, the rest tells nothing */
    uintptr_t first, last;           /* bytes that elements take, the lowest and the highest */
    void *stream;    /* that makes its contents; NULL: none, or already waited for */
    PyObject *owner; /* keeps the memory alive beyond the object itself; may be NULL */
} gr_gpu_array;

/* 1: `object` lies on a GPU and is described; 0: it does not; -1: a Python exception is set.
 * `our_stream(context, device)` is asked for the stream that a DLPack producer shall make wait. */
int gr_gpu_array_of(PyObject *object, void *(*our_stream)(void *context, int device), void *context,
                    gr_gpu_array *array);

void gr_gpu_array_done(gr_gpu_array *array);

/* Merges dimensions that lie side by side. Returns 1 if the elements are contiguous (then
 * `elements->base` and the count are all there is to it), 0 if strided; -1 with an exception if too
 * many dimensions are left. */
int gr_flatten(const gr_gpu_array *array, gr_elements *elements, size_t *count);

/* --- for the files that read the protocols --------------------------------------------------- */

/* CUDA's names for its default streams; NULL means "a stream of our own" in the engine. */
#define GR_LEGACY_STREAM ((void *)1)

/* Steps of a contiguous array of these sizes. */
void gr_fill_steps(gr_gpu_array *array);

/* Checks what a producer has made of base, sizes and steps, whatever numbers they are, and works
 * out count, first and last: 1, or -1 with an exception. */
int gr_check_extent(gr_gpu_array *array);

/* An attribute, as a new reference, or NULL where there is none: 0; -1 with an exception. Where
 * `or_broken`, an attribute that raises TypeError or RuntimeError counts as none, too. */
int gr_optional_attribute(PyObject *object, const char *name, int or_broken, PyObject **value);

/* Each 1, 0 (not on a GPU) or -1 with an exception. */
int gr_by_exchange(PyObject *object, const void *table, gr_gpu_array *array);
int gr_by_dlpack(PyObject *object, void *(*our_stream)(void *context, int device), void *context,
                 gr_gpu_array *array);
int gr_by_interface(PyObject *interface, gr_gpu_array *array);
int gr_by_cupy(PyObject *object, gr_gpu_array *array);

/* The table of C functions that a type of arrays offers, as gr_by_exchange() takes it; or NULL. -1
 * with an exception. */
int gr_find_exchange(PyTypeObject *type, const void **table);

/* Whether this is CuPy's own type, and all is there to read its arrays with; -1 with an exception.
 */
int gr_know_cupy(PyTypeObject *type);

/* Whether a __cuda_array_interface__ names the stream that makes its contents; -1: an exception. */
int gr_names_stream(PyObject *interface);

#endif
