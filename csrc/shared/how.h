/* How elements of one dtype are added up to sums of another: the rules for Python and C. Includes
 * neither Python nor CUDA. */
#ifndef GPUREDUCE_HOW_H
#define GPUREDUCE_HOW_H

#include "shared/dtypes.h"

#include <stdbool.h>

/* The lines of dtypes.def. */
typedef enum {
#define DTYPE(name, load, acc, result) GR_DTYPE_##name,
#define COMPLEX DTYPE
#include "dtypes.def"
#undef DTYPE
    GR_DTYPE_COUNT
} gr_dtype;

typedef struct {
    const char *name;
    gr_load load; /* for complex numbers, of a real or imaginary part */
    gr_acc acc;
    int parts;       /* 2 for complex numbers */
    gr_dtype result; /* of numpy.sum */
} gr_dtype_row;

extern const gr_dtype_row gr_dtype_rows[GR_DTYPE_COUNT];

/* Where sums are computed, and where their elements lie. */
typedef enum { GR_ON_PROCESSORS, GR_SENT_TO_GPU, GR_ON_GPU, GR_PLACE_COUNT } gr_place;

typedef enum {
    GR_GROUPS_ALL,
    GR_GROUPS_AXES,
    GR_GROUPS_OFFSETS,
    GR_GROUPS_IDS,
    GR_GROUPS_COUNT
} gr_grouping;

/* Why there is no such sum. gpureduce/core/dtypes.py has the texts. */
typedef enum {
    GR_ALLOWED,
    GR_NO_DTYPE,     /* the dtype, place or grouping does not exist */
    GR_NO_SUM,       /* the result's dtype cannot hold sums */
    GR_LOSES_PART,   /* the result would lose the fraction or the imaginary part */
    GR_REAL_AS_PAIR, /* kernels do not read real elements in place as complex ones */
    GR_TOO_WIDE,     /* 64-bit integers as floats, which are narrower */
    GR_NO_CAST,      /* kernels cast elements in place to the accumulator's type only */
    GR_NO_INTEGERS   /* segment kernels do not cast integers in place to floats */
} gr_refusal;

typedef struct {
    gr_refusal refusal;
    gr_dtype result;
    int elements; /* the dtype that elements are converted to before they are read; -1 for none */
    bool halves;  /* 64-bit integers are read as two float64 */
    gr_load load; /* of an element, or of its parts */
    gr_acc acc;
    int parts, sum_parts; /* of an element and of a sum: 2 if it is complex */
    gr_load target;       /* the type of a sum, or of its parts */
    bool exactly;         /* sums are rounded once */
} gr_how;

/* `wanted` is the dtype of the sums, or -1 for that of numpy.sum. `exactly`: sums of floats are
 * rounded once. Sums by ids always are, and so are sums by offsets on processors; for integers it
 * has no effect. */
gr_how gr_how_of(int source, int wanted, bool exactly, int place, int groups);

#endif
