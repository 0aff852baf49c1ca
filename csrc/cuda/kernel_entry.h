/* Converts a kernel to the pointer that cudaLaunchKernelExC takes, for the table of kernels. The
 * emulator has its own version of this file. */
#ifndef GPUREDUCE_KERNEL_ENTRY_H
#define GPUREDUCE_KERNEL_ENTRY_H

template <typename... Parameters> const void *kernel_entry(void (*kernel)(Parameters...))
{
    return reinterpret_cast<const void *>(kernel);
}

#endif
