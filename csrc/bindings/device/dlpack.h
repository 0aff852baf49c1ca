/* The structs of DLPack's specification 1.x. */
#pragma once

#include <stdint.h>

typedef struct {
    int32_t type, id;
} dl_device;

typedef struct {
    uint8_t code, bits;
    uint16_t lanes;
} dl_type;

typedef struct {
    void *data;
    dl_device device;
    int32_t ndim;
    dl_type dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} dl_tensor;

typedef struct dl_managed {
    dl_tensor tensor;
    void *context;
    void (*deleter)(struct dl_managed *);
} dl_managed;

typedef struct {
    uint32_t major, minor;
} dl_version;

typedef struct dl_versioned {
    dl_version version;
    void *context;
    void (*deleter)(struct dl_versioned *);
    uint64_t flags;
    dl_tensor tensor;
} dl_versioned;

enum { DL_CUDA = 2, DL_CUDA_MANAGED = 13 };
