/* Marks small functions that the processors and kernels share. */
#ifndef GPUREDUCE_HOST_DEVICE_H
#define GPUREDUCE_HOST_DEVICE_H

#ifdef __CUDACC__
#define GR_HOST_DEVICE static __host__ __device__ __forceinline__
#else
#define GR_HOST_DEVICE static inline __attribute__((always_inline))
#endif

#endif
