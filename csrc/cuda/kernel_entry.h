/* How the table of kernels names a kernel for cudaLaunchKernelExC. The emulator has a twin. */
#ifndef GPUREDUCE_KERNEL_ENTRY_H
#define GPUREDUCE_KERNEL_ENTRY_H

template <typename... Parameters> const void *kernel_entry(void (*kernel)(Parameters...))
{
    return reinterpret_cast<const void *>(kernel);
}

#endif
