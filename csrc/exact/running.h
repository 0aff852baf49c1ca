/* Running sums: entry i is the sum of the elements 0 to i, rounded once. */
#pragma once

#include "exact/exact.h"
#include "shared/axes.h"

/* Arrays of one shape. Sums begin anew with each segment of the axis. `axis` is the dimension that
 * is added up along; its `in` and `out` steps may be negative. `kept` are the other dimensions. No
 * size is 0. */
typedef struct {
    const unsigned char *in;
    unsigned char *out;
    gr_axis axis;
    gr_axis_list kept;
    const int64_t *offsets; /* where segments begin, and the last one's end; NULL: one segment */
    size_t segments;
    gr_exact *before; /* the sum before each row, in the order of `kept`, or NULL; is overwritten.
                         Without offsets */
    gr_load load, target; /* floats */
    bool swapped;         /* the bytes of each element are in reverse order */
} gr_running;

/* Uses at most `threads` threads, or gr_thread_count() if `threads` <= 0. Returns false if there is
 * too little memory. After an interruption (threads/interrupts.h) the sums are invalid. */
bool gr_running_sums(const gr_running *of, int threads);
