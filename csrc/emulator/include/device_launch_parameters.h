/* Included by projects of Visual Studio, for an editor that knows no CUDA. */
#include <cuda_runtime.h>
