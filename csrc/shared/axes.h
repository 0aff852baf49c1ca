/* The dimensions of an array that is added up along some of its axes: those that are kept, which
 * are the dimensions of the result, and those that are reduced. The functions bring them to the
 * form in which memory is read best. For the processors and for a device's host code: in the common
 * subset of C and C++. */
#ifndef GPUREDUCE_AXES_H
#define GPUREDUCE_AXES_H

#include "shared/dtypes.h"

#include <stdbool.h>

enum { GR_MOST_AXES = 65 }; /* NumPy's 64, and one for the parts of complex numbers */

/* A dimension: its size, and the bytes from one entry to the next in the array, in the mask and in
 * the result. Reduced dimensions have no steps in the result. */
typedef struct {
    size_t size;
    ptrdiff_t in, mask, out;
} gr_axis;

typedef struct {
    int count;
    gr_axis dim[GR_MOST_AXES]; /* the slowest-varying first */
} gr_axis_list;

/* What is added up of each element. */
typedef enum {
    GR_TERM_ELEMENT,
    GR_TERM_MAGNITUDE,
    GR_TERM_SQUARE,
    GR_TERM_PRODUCT, /* with the other array's element */
    /* Kernels only: */
    GR_TERM_WEIGHTED,  /* the same, and that element alone */
    GR_TERM_COMPLEX,   /* x y of complex numbers. The last kept dimension counts the parts of the
                          result: its step in `mask` is 1. The last reduced one counts the parts of
                          elements */
    GR_TERM_CONJUGATED /* conj(x) y, likewise */
} gr_term;

/* Which elements along the only reduced dimension belong to a group: all of them, those between two
 * adjacent offsets, a window, or the elements from a start to an end. */
typedef enum { GR_RANGE_ALL, GR_RANGE_OFFSETS, GR_RANGE_WINDOWS, GR_RANGE_PAIRS } gr_range_kind;

/* The groups form a kept dimension, whose step in the mask is 1. With offsets, group k has the
 * elements offset[k] to offset[k + 1] - 1, and there are `size` groups. With windows, it has the
 * `size` elements from k `step` + first on, as far as they exist. With pairs, it has the elements
 * offset[2 k] to offset[2 k + 1] - 1, usually `size` of them. */
typedef struct {
    gr_range_kind kind;
    const int64_t *offset;
    int64_t first, size, step; /* `step`: of offsets 1, and of pairs 2 */
} gr_ranges;

typedef struct {
    const unsigned char *in;   /* the first element */
    const unsigned char *mask; /* the first byte of the mask; NULL: all elements are added. Of
                                  products, the first element of the other array */
    unsigned char *out;        /* the first sum */
    gr_axis_list kept, reduced;
    gr_ranges ranges; /* on devices only */
    gr_load load;
    gr_term term;
    int components;      /* 2: complex elements, whose parts are added up separately */
    ptrdiff_t part_step; /* bytes from the real to the imaginary part of a sum, or from one to the
                            next number of an unrounded one */
    bool swapped;        /* the bytes of each element, or part, are in reverse order */
} gr_axes;

enum { GR_MOST_TERMS = 40 }; /* 2^1024 takes 20 float64 numbers */

/* A number that is added to each sum. Sums of integers take `integer`. Sums of floats take float64
 * numbers that add up to the real part, and others that add up to the imaginary part. */
typedef struct {
    uint64_t integer;
    int count[2];
    double terms[2][GR_MOST_TERMS];
} gr_initial;

static inline size_t gr_axes_size(const gr_axis_list *list)
{
    size_t n = 1;
    for (int i = 0; i < list->count; i++)
        n *= list->dim[i].size;
    return n;
}

/* Adds a dimension as the fastest-varying one, unless its size is 1. */
static inline void gr_axes_push(gr_axis_list *list, gr_axis dim)
{
    if (dim.size != 1)
        list->dim[list->count++] = dim;
}

static inline ptrdiff_t gr_axis_distance(ptrdiff_t step)
{
    return step < 0 ? -step : step;
}

/* Sorts by the step in the array, the largest first. Keeps the order of equal steps. */
static inline void gr_axes_sort(gr_axis_list *list)
{
    for (int i = 1; i < list->count; i++) {
        gr_axis dim = list->dim[i];
        int k = i;
        for (; k > 0 && gr_axis_distance(list->dim[k - 1].in) < gr_axis_distance(dim.in); k--)
            list->dim[k] = list->dim[k - 1];
        list->dim[k] = dim;
    }
}

/* Reverses each dimension whose step in the input is negative, to start from its last element. */
static inline void gr_axes_flip(gr_axes *axes, gr_axis_list *list)
{
    for (int i = 0; i < list->count; i++) {
        gr_axis *dim = &list->dim[i];
        ptrdiff_t last = (ptrdiff_t)dim->size - 1;
        if (dim->in >= 0 || last < 0)
            continue;
        axes->in += last * dim->in;
        if (axes->mask)
            axes->mask += last * dim->mask;
        if (axes->out)
            axes->out += last * dim->out;
        dim->in = -dim->in;
        dim->mask = -dim->mask;
        dim->out = -dim->out;
    }
}

/* Whether one step of `outer` leads to where `inner` would continue after its last entry. */
static inline bool gr_axis_continues(const gr_axis *outer, const gr_axis *inner)
{
    ptrdiff_t n = (ptrdiff_t)inner->size;
    return outer->in == n * inner->in && outer->mask == n * inner->mask &&
           outer->out == n * inner->out;
}

/* Merges neighbouring dimensions that can be walked as one. */
static inline void gr_axes_merge(gr_axis_list *list)
{
    int last = 0;
    for (int i = 1; i < list->count; i++) {
        gr_axis dim = list->dim[i];
        if (gr_axis_continues(&list->dim[last], &dim)) {
            dim.size *= list->dim[last].size;
            list->dim[last] = dim;
        } else {
            list->dim[++last] = dim;
        }
    }
    if (list->count > 0)
        list->count = last + 1;
}

/* Brings all dimensions to their best form. The sizes must not be 0. */
static inline void gr_axes_simplify(gr_axes *axes)
{
    gr_axes_sort(&axes->reduced);
    gr_axes_sort(&axes->kept);
    gr_axes_flip(axes, &axes->reduced);
    gr_axes_flip(axes, &axes->kept);
    gr_axes_merge(&axes->reduced);
    gr_axes_merge(&axes->kept);
}

/* A multi-index: a position in the first `count` dimensions of a list of dimensions. */
typedef struct {
    const gr_axis_list *list;
    int count;
    size_t at[GR_MOST_AXES];
    ptrdiff_t in, mask, out; /* bytes from the first entry */
} gr_axes_place;

static inline void gr_axes_go(gr_axes_place *place, const gr_axis_list *list, int count,
                              size_t index)
{
    place->list = list;
    place->count = count;
    place->in = place->mask = place->out = 0;
    for (int i = count - 1; i >= 0; i--) {
        const gr_axis *dim = &list->dim[i];
        size_t at = place->at[i] = index % dim->size;
        index /= dim->size;
        place->in += (ptrdiff_t)at * dim->in;
        place->mask += (ptrdiff_t)at * dim->mask;
        place->out += (ptrdiff_t)at * dim->out;
    }
}

/* Goes to the next entry; after the last one, to the first. */
static inline void gr_axes_next(gr_axes_place *place)
{
    for (int i = place->count - 1; i >= 0; i--) {
        const gr_axis *dim = &place->list->dim[i];
        place->in += dim->in;
        place->mask += dim->mask;
        place->out += dim->out;
        if (++place->at[i] < dim->size)
            return;
        ptrdiff_t n = (ptrdiff_t)dim->size;
        place->at[i] = 0;
        place->in -= n * dim->in;
        place->mask -= n * dim->mask;
        place->out -= n * dim->out;
    }
}

#endif
