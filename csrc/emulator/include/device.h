/* What CUDA C has no word for, as the emulator does it. Its twin is csrc/cuda/device.h. */
#ifndef GPUREDUCE_EMULATOR_DEVICE_H
#define GPUREDUCE_EMULATOR_DEVICE_H

#include "cuda_runtime.h"

/* The block's dynamic shared memory. */
template <typename T> GR_INTRINSIC T *shared_array()
{
    return reinterpret_cast<T *>(gr_shared);
}

#endif
