/* Sums, means and variances of windows of rows, each rounded once. */
#pragma once

#include "exact/finish.h"

enum { GR_ROLL_ROWS = 8 }; /* so many rows may have any `step` */

/* Window k of a row has its elements starts[k] to ends[k] - 1. Without these arrays it has `size`
 * elements, the last of them k + after; at the row's ends it has fewer. */
typedef struct {
    gr_finish_how how;   /* one sum of elements; and one of squares, or none */
    bool divides;        /* means divide by a number of elements, sums do not */
    const double *in;    /* numbers; a nan is no element of a window */
    ptrdiff_t row, step; /* between rows, and between elements of a row: 1 for fewer than
                            GR_ROLL_ROWS rows, or with `starts` */
    size_t rows, n, windows;
    const int64_t *starts, *ends;
    ptrdiff_t size, after;
    ptrdiff_t least;    /* windows with fewer elements than this, or than `ddof`, give nan */
    unsigned char *out; /* the results */
    ptrdiff_t out_row, out_step; /* bytes between rows and windows; one is the size of a result */
} gr_rolling;

/* Uses gr_thread_count() threads at most. Returns false if there is too little memory. After an
 * interruption (threads/interrupts.h) the results are invalid. */
bool gr_rolling_results(const gr_rolling *of);
