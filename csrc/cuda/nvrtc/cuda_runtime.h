/* For NVRTC, which knows CUDA's own functions without a header, except these two. */
#ifndef GPUREDUCE_NVRTC_CUDA_RUNTIME_H
#define GPUREDUCE_NVRTC_CUDA_RUNTIME_H

static __device__ __forceinline__ void cudaTriggerProgrammaticLaunchCompletion()
{
    asm volatile("griddepcontrol.launch_dependents;" ::);
}

static __device__ __forceinline__ void cudaGridDependencySynchronize()
{
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

#endif
