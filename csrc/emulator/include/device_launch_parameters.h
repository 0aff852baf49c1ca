/* Visual Studio projects include this file, so that the editor finds CUDA's variables. */
#include <cuda_runtime.h>
