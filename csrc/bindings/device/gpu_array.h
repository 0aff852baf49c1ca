/* Arrays on a GPU, described by DLPack, __cuda_array_interface__ or CuPy. Includes Python.h. */
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "shared/elements.h"

#include <stdbool.h>

enum { GR_ARRAY_MAX_DIMS = 64 };

/* An array on a GPU as its producer described it, or a NumPy array. Each call reads the description
 * once. */
typedef struct {
    const char *base;
    int device; /* CUDA's device number; -1: not known yet */
    int kind;   /* 'b', 'i', 'u', 'f', 'c', or 'B' for bfloat16; 0: no number */
    int bytes;  /* per element */
    int dims;
    int64_t size[GR_ARRAY_MAX_DIMS];
    int64_t step[GR_ARRAY_MAX_DIMS]; /* in bytes */
    int64_t count;                   /* elements; if 0, base, first and last mean nothing */
    uintptr_t first, last;           /* addresses of the lowest and the highest byte in use */
    void *stream;    /* the stream that writes the contents; NULL: none, or already waited for */
    int read_only;   /* the producer does not want it to be written */
    PyObject *owner; /* keeps the memory alive beyond the object itself; may be NULL */
} gr_array;

/* Describes `object` in *array. Returns 1 on success, 0 if `object` does not lie on a GPU, or -1
 * with an exception set. `our_stream(context, device)` returns the stream that a DLPack producer
 * makes wait for its own stream, or NULL with an exception set. */
int gr_gpu_array_of(PyObject *object, void *(*our_stream)(void *context, int device), void *context,
                    gr_array *array);

void gr_array_done(gr_array *array);

/* Checks that kernels on this device can reach the memory that the producer described. To be called
 * for each array before its first launch. Returns 0, or -1 with an exception set. */
int gr_check_memory(const gr_array *array, int device);

/* Merges dimensions that are contiguous with each other. Returns 1 if the elements are contiguous
 * (`elements->base` and the count then describe the array), 0 if they are strided, or -1 with an
 * exception set if too many dimensions are left. */
int gr_flatten(const gr_array *array, gr_elements *elements, size_t *count);

/* --- for the files that implement the protocols ---------------------------------------------- */

/* CUDA's explicit handle of the legacy default stream. The engine takes NULL, CUDA's other handle
 * of it, for "a stream of our own". */
#define GR_LEGACY_STREAM ((void *)1)

/* Fills in the steps of a contiguous array of these sizes. */
void gr_fill_steps(gr_array *array);

/* Finds `first` and `last`. Returns false if these addresses do not fit into 64 bits. */
bool gr_find_extent(gr_array *array);

/* Checks the base address, sizes and steps that a library gave for its array; none can be trusted.
 * Computes `count`, `first` and `last`. Returns 1, or -1 with an exception set. */
int gr_check_extent(gr_array *array);

/* Sets *value to a new reference to the attribute, or to NULL if there is none. With `or_broken`,
 * an attribute that raises TypeError or RuntimeError also counts as missing. Returns 0, or -1 with
 * an exception set. */
int gr_optional_attribute(PyObject *object, const char *name, int or_broken, PyObject **value);

/* Each describes an object in *array. Returns 1 on success, 0 if the object does not lie on a GPU,
 * or -1 with an exception set. With `needs_stream`, returns 0 for an interface without a stream. */
int gr_by_exchange(PyObject *object, const void *table, gr_array *array);
int gr_by_dlpack(PyObject *object, void *(*our_stream)(void *context, int device), void *context,
                 gr_array *array);
int gr_by_interface(PyObject *interface, bool needs_stream, gr_array *array);
int gr_by_cupy(PyObject *object, gr_array *array);

/* Sets *table to the type's table of C functions, for gr_by_exchange(), or to NULL if it has none.
 * Returns 0, or -1 with an exception set. */
int gr_find_exchange(PyTypeObject *type, const void **table);

/* Returns 1 if this is CuPy's array type and gr_by_cupy() can read it, 0 if not, or -1 with an
 * exception set. */
int gr_know_cupy(PyTypeObject *type);
