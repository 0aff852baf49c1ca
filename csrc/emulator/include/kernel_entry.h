/* Registers a kernel with the emulator and returns the handle that its cudaLaunchKernelExC takes.
 * The version for GPUs is csrc/cuda/kernel_entry.h. */
#pragma once

#include <stddef.h>
#include <type_traits>
#include <utility>

#include "shared_variables.h"

typedef void (*gr_any_kernel)();
typedef void (*gr_kernel_caller)(gr_any_kernel kernel, void **args);

/* Returns the kernel's handle, which is created by the first registration and never changes. For
 * each parameter: its name, and the size of the type that it points to, or 0. */
__attribute__((visibility("default"))) const void *
gr_register_kernel(gr_any_kernel kernel, gr_kernel_caller caller, const char *const *names,
                   const unsigned *pointees, unsigned parameters, const gr_variable *variables);

/* The names of parameters, which end with NULL. A kernel of sums by key has keys as the second. */
static const char *const gr_usual_names[] = {"in", "out", "n", "work", "ticket", nullptr};
static const char *const gr_key_names[] = {"in",   "key",  "out",    "n",
                                           "keys", "word", "ticket", nullptr};

template <typename... P> struct gr_names {
    static constexpr auto list = gr_usual_names;
};
template <typename In, typename... P> struct gr_names<In, const unsigned *, P...> {
    static constexpr auto list = gr_key_names;
};

template <typename P> struct gr_pointee {
    static constexpr unsigned bytes = 0;
};
template <typename T> struct gr_pointee<T *> {
    static constexpr unsigned bytes = sizeof(T);
};

/* Calls the kernel with arguments of its parameter types; further entries of `args` are not
 * read. */
template <typename... P, size_t... I>
GR_INTRINSIC void gr_call_with(void (*kernel)(P...), void **args, std::index_sequence<I...>)
{
    (void)args; /* unused if the kernel has no parameters */
    kernel(*static_cast<std::remove_reference_t<P> *>(args[I])...);
}

template <typename... P> GR_UNTRACED void gr_call_kernel(gr_any_kernel kernel, void **args)
{
    gr_call_with(reinterpret_cast<void (*)(P...)>(kernel), args, std::index_sequence_for<P...>());
}

template <typename... P>
const void *kernel_entry(void (*kernel)(P...), const char *const *names = gr_names<P...>::list)
{
    static constexpr unsigned pointees[] = {gr_pointee<P>::bytes..., 0};
    return gr_register_kernel(reinterpret_cast<gr_any_kernel>(kernel), gr_call_kernel<P...>, names,
                              pointees, sizeof...(P), gr_variables);
}
