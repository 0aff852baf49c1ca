/* Replaces a kernel that none of the chosen architectures can run (GPUREDUCE_CUDA_ARCHS). */
#include "engine/compiled_kernels.h"

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define TABLE(name) JOIN(gr_kernels_, name)

void TABLE(KERNEL)(gr_kernel_list *list);

void TABLE(KERNEL)(gr_kernel_list *list)
{
    list->count = 0;
}
