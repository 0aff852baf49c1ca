/* A call's resources on a device apart from the data: a stream, scratch memory and a result slot.
 * Workspaces are kept for the next call. Each concurrent call has its own. */
#pragma once

#include "exact/device_layout.h"
#include "engine/internal.h"

typedef struct {
    void *data;
    size_t bytes;
} gr_buffer;

typedef struct {
    void *values; /* the values that are left */
    unsigned count, launches;
} gr_reduced;

/* A sum under way, of which one piece after the other is on the stream. */
typedef struct {
    gr_request request; /* its samples and elements are the members below */
    gr_samples samples;
    gr_elements elements;
    gr_plan plan;
    size_t piece, at; /* elements of a piece, and the first one of the present piece */
    gr_reduced reduced;
} gr_progress;

struct gr_workspace {
    struct gr_workspace *next;
    int device;
    cudaStream_t stream;     /* our own; a call may use the caller's instead */
    gr_buffer in;            /* a copy of a host array */
    gr_buffer out[2];        /* block sums, and the sums of those */
    gr_buffer work;          /* the kernels' argument `work` */
    gr_buffer marked;        /* marked sums of blocks, zero between launches */
    unsigned *ticket;        /* zero between launches */
    void *totals;            /* GR_EXACT_WORDS words, zero between launches */
    volatile gr_value *slot; /* GR_EXACT_WORDS values in pinned host memory, for kernels */
    gr_progress progress;
};

/* Makes a buffer of at least `bytes` bytes. If it grows, its contents are lost. */
gr_status gr_reserve(gr_buffer *buffer, size_t bytes, gr_error *error);

/* The same for a buffer that is zero between launches. */
gr_status gr_reserve_zeros(gr_workspace *workspace, gr_buffer *buffer, size_t bytes,
                           gr_error *error);

/* The size up to which a buffer is kept for the next call. */
size_t gr_kept_bytes(int device);

/* Frees the workspace's device buffers that are larger than `most` bytes. */
void gr_shrink(gr_workspace *workspace, size_t most);
