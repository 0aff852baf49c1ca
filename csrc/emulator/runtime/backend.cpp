/* The emulator's implementation of backend/backend.h, except for functions on launches (launch.cpp)
 * and memory (memory.cpp). */
#include "backend/backend.h"

#include "threads/interrupts.h"

#include <chrono>
#include <cstring>

extern "C" {

const char *gr_backend_name(void)
{
    return "emulator";
}

const char *gr_backend_clock(void)
{
    return "emulator";
}

int gr_backend_is_lost(cudaError_t)
{
    return 0;
}

cudaError_t gr_backend_cub(const void *, void *, size_t, gr_load, gr_acc, void *, size_t *,
                           cudaStream_t)
{
    return cudaErrorNotSupported;
}

cudaError_t gr_backend_load_kernels(const void *, const char *const *, int, const void **)
{
    return cudaErrorNotSupported;
}

cudaError_t gr_backend_load_only(const void *in, size_t bytes, unsigned *word, cudaStream_t)
{
    unsigned seen = 0, part;
    for (size_t at = 0; at + sizeof part <= bytes; at += sizeof part) {
        memcpy(&part, static_cast<const char *>(in) + at, sizeof part);
        seen ^= part;
    }
    *word = seen;
    return cudaSuccess;
}

cudaError_t gr_backend_replay(cudaStream_t, int (*launch)(void *context), void *context, unsigned,
                              unsigned warmups, unsigned repeats, double *ms)
{
    for (unsigned i = 0; i < warmups + repeats && !gr_ask_for_interrupts(); i++) {
        auto start = std::chrono::steady_clock::now();
        if (launch(context))
            return cudaErrorUnknown;
        std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
        if (i >= warmups)
            ms[i - warmups] = took.count();
    }
    return cudaSuccess;
}

size_t gr_backend_elements_at_once(void)
{
    return 1 << 23; /* some tenths of a second on one processor */
}

int gr_backend_reads_host_memory(void)
{
    return 1;
}

int gr_backend_traced(void)
{
#ifdef GR_EMULATOR_TRACED
    return 1;
#else
    return 0;
#endif
}
}
