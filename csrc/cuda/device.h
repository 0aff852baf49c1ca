/* What CUDA C has no plain word for, as small named functions. The emulator has a twin of this
 * file, csrc/emulator/include/device.h, so that kernels compile for both without a change. */
#ifndef GPUREDUCE_DEVICE_H
#define GPUREDUCE_DEVICE_H

#include <cuda_runtime.h>

/* The block's dynamic shared memory, as an array of T; its size is chosen at the launch. (A plain
 * `extern __shared__ T name[]` cannot stand in a template: all T would share one name.) */
template <typename T> __device__ __forceinline__ T *shared_array()
{
    extern __shared__ __align__(16) unsigned char gr_shared_bytes[];
    return reinterpret_cast<T *>(gr_shared_bytes);
}

#endif
