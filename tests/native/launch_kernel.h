/* A launch of a kernel on the emulator, from C++. */
#ifndef LAUNCH_KERNEL_H
#define LAUNCH_KERNEL_H

#include <string.h>
#include <tuple>

#include "kernel_entry.h"

template <typename... P, typename... A>
static cudaError_t launch(void (*kernel)(P...), unsigned grid, unsigned block, size_t shared,
                          A... a)
{
    std::tuple<P...> values(a...);
    void *args[sizeof...(P) + 1];
    size_t i = 0;
    std::apply([&](auto &...v) { ((args[i++] = &v), ...); }, values);
    cudaLaunchConfig_t config;
    memset(&config, 0, sizeof config);
    config.gridDim = dim3(grid, 1, 1);
    config.blockDim = dim3(block, 1, 1);
    config.dynamicSmemBytes = shared;
    return cudaLaunchKernelExC(&config, kernel_entry(kernel), args);
}

#endif
