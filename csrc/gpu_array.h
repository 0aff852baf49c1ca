/* Arrays that lie on a GPU, by DLPack or __cuda_array_interface__. Includes Python.h. */
#ifndef GPUREDUCE_GPU_ARRAY_H
#define GPUREDUCE_GPU_ARRAY_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "engine/elements.h"

enum { GR_ARRAY_MAX_DIMS = 64 };

/* An array as its producer describes it, for the length of a call. */
typedef struct {
    const char *base;
    int device; /* CUDA's number of it; -1: not known yet */
    int kind;   /* 'b', 'i', 'u', 'f', 'c', or 'B' for bfloat16 */
    int bytes;  /* of an element */
    int dims;
    int64_t size[GR_ARRAY_MAX_DIMS];
    int64_t step[GR_ARRAY_MAX_DIMS]; /* in elements */
    void *stream;    /* where its contents are being made; NULL: nowhere, or already waited for */
    PyObject *owner; /* what keeps it alive beyond the object itself; may be NULL */
} gr_gpu_array;

/* 1: `object` lies on a GPU and is described; 0: it does not; -1: a Python exception is set.
 * `our_stream(context, device)` is asked for the stream that a DLPack producer shall make wait. */
int gr_gpu_array_of(PyObject *object, void *(*our_stream)(void *context, int device), void *context,
                    gr_gpu_array *array);

void gr_gpu_array_done(gr_gpu_array *array);

/* Merges what lies side by side. Returns 1 if the elements are contiguous (then `elements->base`
 * and the count are all there is to it), 0 if strided; -1 with an exception if it has too many
 * dims. */
int gr_flatten(const gr_gpu_array *array, gr_elements *elements, size_t *count);

#endif
