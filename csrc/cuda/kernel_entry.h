/* Converts a kernel to the pointer that cudaLaunchKernelExC takes. In the emulator's version,
 * csrc/emulator/include/kernel_entry.h, the pointer is a handle of the emulator. */
#ifndef GPUREDUCE_KERNEL_ENTRY_H
#define GPUREDUCE_KERNEL_ENTRY_H

template <typename... Parameters> const void *kernel_entry(void (*kernel)(Parameters...))
{
    return reinterpret_cast<const void *>(kernel);
}

#endif
