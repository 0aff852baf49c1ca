/* Arrays that are added up along axes, as kernels get them: as rows and columns where the array is
 * laid out like that, or as dimensions with any steps. */
#ifndef GPUREDUCE_MATRIX_H
#define GPUREDUCE_MATRIX_H

#include "shared/axes.h"
#include "shared/elements.h"
#include "shared/host_device.h"

/* Elements of float16 whose sum is exact in float64: multiples of 2^-24 below 2^16. */
enum { GR_SHORT_F16 = 1 << 13 };

/* Rows and columns, for sums along one of the two: `outer` times `batches` matrices. Steps are in
 * elements. Where a group of elements lies in several pieces, the pieces are rows, or the matrices
 * of the outer dimension, and each gives a partial sum. */
typedef struct {
    const void *base;
    uint64_t outer, batches, rows, columns;
    int64_t outer_step, batch_step, row_step, column_step;
    int64_t factors; /* for products: bytes from an element to that of the other array */
} gr_matrix;

/* Whether each row begins at a multiple of `count` elements and has a multiple of `count`. */
GR_HOST_DEVICE int gr_matrix_has_packs(const gr_matrix *of, size_t element_bytes, uint64_t count)
{
    uint64_t steps =
        of->columns | (uint64_t)of->row_step | (uint64_t)of->batch_step | (uint64_t)of->outer_step;
    return of->column_step == 1 && ((uintptr_t)of->base / element_bytes | steps) % count == 0;
}

/* The most dimensions that cannot be merged: with two entries each, 2^32 elements. */
enum { GR_LAYOUT_DIMS = 32 };

/* A dimension: its size, and the bytes from one entry to the next in the array, in the mask and
 * among the sums. Reduced dimensions have no steps among the sums. */
typedef struct {
    uint64_t size;
    int64_t in, mask, out;
} gr_layout_dim;

typedef struct {
    const void *base;
    const uint8_t *mask; /* NULL: all elements are added */
    int load;            /* a gr_load, or GR_ELEMENTS_I64 */
    gr_term term;        /* what is added up; for products, `mask` is the other array */
    int64_t imaginary;   /* bytes from a real part to its imaginary part, for exact_terms; or 0 */
    gr_ranges ranges;
    const void *chunks;                /* any_ranges: sums of each `chunk` elements, or NULL; .. */
    uint64_t chunk, chunk_count;       /* .. groups of the last kept dimension share so many */
    int kept, reduced;                 /* how many dimensions */
    gr_layout_dim dim[GR_LAYOUT_DIMS]; /* those that are kept, then those that are added up; each
                                          with the slowest-varying first */
} gr_layout;

/* What sums are divided by. */
typedef enum { GR_OVER_ONE, GR_OVER_COUNT, GR_OVER_WEIGHTS } gr_over;

/* What is made of sums before they are rounded (exact/finish.h). `is_made` 0: nothing. Variances
 * are made of the sums of x and of x^2. */
typedef struct {
    int is_made, kind, root, over; /* `kind`: a gr_finish_kind; `over`: a gr_over */
    double ddof, n, mean;
    double inverse; /* 1 / n, rounded */
} gr_made;

/* Numbers per result that differ: n, or offsets whose differences are n, and the mean; NULL if all
 * results share them. Number k belongs to the result at results + k apart. */
typedef struct {
    const int64_t *counts, *offsets;
    const double *means;
    const void *results;
    int64_t apart;
    int64_t least; /* results with fewer elements are nan */
} gr_made_numbers;

/* Where and how sums are stored. The initial number is added to each sum first. */
typedef struct {
    void *base;
    int is_partial;  /* these are partial sums of shares: only the next line applies */
    unsigned *zeros; /* words that later launches need as zeros: partial sum k sets .. */
    uint64_t zero_count, zero_step; /* .. words k, k + zero_step, .. of `zero_count` */
    gr_load type;                   /* type that sums are converted to */
    unsigned bytes;                 /* of a stored sum */
    int is_native;                  /* `type` is the accumulator's type */
    unsigned parts;      /* 2 for complex sums, whose real and imaginary parts alternate; else 1 */
    gr_value initial[2]; /* one per part; float64 for sums that prove their rounding */
    int has_initial;     /* sums that prove their rounding: an initial number is not 0 */
    double additions;    /* the same: bound of the additions with rounding in one sum */
    unsigned *unproven;  /* the same: a bit for each unproven sum */
    unsigned *any_unproven; /* nonzero if any such bit is set */
    int as_digits;          /* a sum is stored as words (exact/words.h), not rounded; .. */
    uint64_t count;         /* .. the number of elements of each sum along axes, .. */
    const uint64_t *counts; /* .. and of each segment */
    gr_made made;
    gr_made_numbers numbers;
} gr_sums;

#endif
