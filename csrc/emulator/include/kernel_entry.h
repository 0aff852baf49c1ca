/* Turns a kernel into what cudaLaunchKernelExC launches. Its twin is csrc/cuda/kernel_entry.h. */
#ifndef GPUREDUCE_EMULATOR_KERNEL_ENTRY_H
#define GPUREDUCE_EMULATOR_KERNEL_ENTRY_H

#include <stddef.h>
#include <type_traits>
#include <utility>

#include "lane.h"

typedef void (*gr_any_kernel)();
typedef void (*gr_kernel_caller)(gr_any_kernel kernel, void **args);

/* The kernel's handle: made at its first registration, the same ever after. `pointees` says of each
 * parameter how many bytes that has which it points to, or 0. */
const void *gr_register_kernel(gr_any_kernel kernel, gr_kernel_caller caller,
                               const unsigned *pointees, unsigned parameters);

template <typename P> struct gr_pointee {
    static constexpr unsigned bytes = 0;
};
template <typename T> struct gr_pointee<T *> {
    static constexpr unsigned bytes = sizeof(T);
};

/* Calls the kernel with arguments of its own types; what `args` holds beyond them is not read. */
template <typename... P, size_t... I>
GR_INTRINSIC void gr_call_with(void (*kernel)(P...), void **args, std::index_sequence<I...>)
{
    (void)args; /* a kernel may have no parameters */
    kernel(*static_cast<std::remove_reference_t<P> *>(args[I])...);
}

template <typename... P> GR_UNTRACED void gr_call_kernel(gr_any_kernel kernel, void **args)
{
    gr_call_with(reinterpret_cast<void (*)(P...)>(kernel), args, std::index_sequence_for<P...>());
}

template <typename... P> const void *kernel_entry(void (*kernel)(P...))
{
    static constexpr unsigned pointees[] = {gr_pointee<P>::bytes..., 0};
    return gr_register_kernel(reinterpret_cast<gr_any_kernel>(kernel), gr_call_kernel<P...>,
                              pointees, sizeof...(P));
}

#endif
