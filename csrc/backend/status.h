/* The status of a call, and the error that Python raises. */
#pragma once

#include <cuda_runtime_api.h>
#include <stddef.h>

#include "shared/sizes.h"
#include "shared/c_linkage.h"

GR_C_BEGIN

typedef enum { GR_OK, GR_BAD_VALUE, GR_BAD_DTYPE, GR_NO_MEMORY, GR_CUDA_ERROR } gr_status;

typedef struct {
    gr_status status;
    char name[64]; /* CUDA's name of the error; "" for other errors */
    char message[900];
    int lost; /* the context is lost: all later calls of this process on the device fail */
} gr_error;

gr_status gr_fail(gr_error *error, gr_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
gr_status gr_fail_cuda(gr_error *error, cudaError_t code, const char *call, const char *file,
                       int line);

/* Needs a local `gr_error *error` and a label `done`. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        cudaError_t tried = (call);                                                                \
        if (tried != cudaSuccess) {                                                                \
            gr_fail_cuda(error, tried, #call, __FILE__, __LINE__);                                 \
            goto done;                                                                             \
        }                                                                                          \
    } while (0)

GR_C_END
