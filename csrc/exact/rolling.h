/* Sums, means and variances of windows of rows, each rounded once. */
#ifndef GPUREDUCE_ROLLING_H
#define GPUREDUCE_ROLLING_H

#include "exact/finish.h"

/* Window k of a row has its elements starts[k] to ends[k] - 1. */
typedef struct {
    gr_finish_how how; /* one sum of elements; and one of squares, or none */
    const double *in;  /* rows of n finite numbers, one after the other */
    size_t rows, n, windows;
    const int64_t *starts, *ends;
    const double *counts; /* of each row's windows */
    bool is_wide;         /* numbers have more than 26 bits, so that squares are inexact */
    unsigned char *out;   /* the results of each row's windows */
} gr_rolling;

/* Uses gr_thread_count() threads at most. Returns false if there is too little memory. After an
 * interruption (threads/interrupts.h) the results are invalid. */
bool gr_rolling_results(const gr_rolling *of);

#endif
