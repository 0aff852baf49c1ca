/* Results that are made of exact sums, and rounded once: quotients of sums, variances, and their
 * roots. */
#pragma once

#include "shared/axes.h"

/* How sums make a result. S: the sums of the list `first`. Q: the total of the list `second`. */
typedef enum {
    GR_FINISH_RATIO,    /* (sum of S) / Q, or / n if there is no Q */
    GR_FINISH_VARIANCE, /* (n Q - sum of the squares of S's parts) / (n (n - ddof)) */
    GR_FINISH_DEVIATION /* (Q - 2 mean S + n mean^2) / (n - ddof) */
} gr_finish_kind;

enum {
    GR_FINISH_SUMS = 8,  /* in a list, at most */
    GR_FINISH_BATCH = 64 /* results that are finished at once */
};

typedef struct {
    gr_finish_kind kind;
    bool root; /* of the result */
    int first_count, second_count;
    int parts; /* of S: 2 for complex numbers, with as many sums each */
    double ddof;
    gr_load target;
} gr_finish_how;

/* Of each group: its unrounded sums (exact/axis_exact.h), n and the mean. A sum has four numbers,
 * `stride` numbers apart. Without n, the results are the sums themselves. */
typedef struct {
    const double *first[GR_FINISH_SUMS], *second[GR_FINISH_SUMS];
    const double *n, *mean;
    size_t stride;
} gr_finish_planes;

/* The sums of terms of an array. `other` is a mask or NULL, or the other array of products. */
typedef struct {
    const unsigned char *in, *other;
    ptrdiff_t in_step[GR_MOST_AXES], other_step[GR_MOST_AXES];
    gr_term term;
    gr_load load; /* of the elements: a float type */
} gr_finish_sum;

/* The results of all groups along some axes of arrays of one shape. */
typedef struct {
    gr_finish_how how;
    int dims;
    size_t size[GR_MOST_AXES]; /* none is 0 */
    bool reduced[GR_MOST_AXES];
    const gr_finish_sum *sums; /* first those of S, then those of Q */
    const double *n;           /* of each group, or one for all of them */
    bool one_n;
    const double *mean; /* of each group, or NULL */
    unsigned char *out; /* the results, one after the other */
} gr_finish_job;

/* Rounds each result once, to nearest, and stores it. n - ddof counts as 0 if negative; a number
 * over 0 is an infinity, and 0 over 0 a nan. Returns false if there is too little memory. After an
 * interruption (threads/interrupts.h) the results are invalid. */
bool gr_finish_axes(gr_finish_job *job);

/* Computes a result that the sums do not prove. Returns false if there is no memory. */
typedef bool gr_finish_unproven(void *context, size_t group, double n, double mean,
                                unsigned char *out);

/* The same for sums that exist already, on this thread. `n` has one number, or one per group;
 * means, or NULL, are one per group. The planes have room for GR_FINISH_BATCH numbers after the
 * last group's. The floating-point mode must be plain (cpu/floating_point_mode.h). */
bool gr_finish_groups(const gr_finish_how *how, gr_finish_planes from, bool one_n, size_t groups,
                      unsigned char *out, gr_finish_unproven *unproven, void *context);

/* The same, but sets unknown[i] to 1 if the sums do not prove result i. Returns the number of
 * these. */
size_t gr_finish_sums_of(const gr_finish_how *how, gr_finish_planes planes, size_t groups,
                         unsigned char *out, unsigned char *unknown);
