/* The engine: from a host array and the number of a strategy to the sum. No Python. */
#ifndef GPUREDUCE_ENGINE_H
#define GPUREDUCE_ENGINE_H

#include "engine/registry.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum { GR_OK, GR_BAD_VALUE, GR_BAD_DTYPE, GR_NO_MEMORY, GR_CUDA_ERROR } gr_status;

typedef struct {
    gr_status status;
    char name[64]; /* CUDA's name of the error, where it has one */
    char message[700];
} gr_error;

/* How block sums become one number. */
typedef enum { GR_FINISH_DEFAULT, GR_FINISH_HOST, GR_FINISH_RELAUNCH, GR_FINISH_SINGLE } gr_finish;

typedef struct {
    const void *data; /* host memory, contiguous, naturally aligned */
    size_t n;
    gr_load load;
    gr_acc acc;
    int strategy;
    unsigned block, grid; /* 0: the default */
    gr_finish finish;
    int device;
} gr_request;

typedef struct {
    gr_value value;
    double kernel_ms, h2d_ms, d2h_ms, init_ms;
    unsigned block, grid; /* of the first launch */
    unsigned launches;
    gr_finish finish;
} gr_outcome;

typedef struct {
    char name[256];
    int major, minor, sms;
    size_t memory_bytes, l2_bytes;
    double peak_gb_s; /* memory clock times bus width; 0 where unknown */
    double clock_mhz;
} gr_device;

gr_status gr_sum(const gr_request *request, gr_outcome *outcome, gr_error *error);

/* How many devices there are; an error says why there is none. */
gr_status gr_device_count(int *count, gr_error *error);
gr_status gr_device_at(int index, gr_device *device, gr_error *error);

/* Versions as CUDA counts them, 13000 for 13.0; driver is 0 without one. */
void gr_versions(int *runtime, int *driver);

#ifdef __cplusplus
}
#endif
#endif
