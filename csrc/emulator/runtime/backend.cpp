/* The emulator's implementation of backend/backend.h. */
#include "backend/backend.h"

#include "emulator/runtime/emulator.h"
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

const char *gr_backend_fault(void)
{
    const char *fault = gr_emulator_fault();
    return fault ? fault : "";
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

/* Checks the first and the last byte on every call and caches nothing, because other code of the
 * process may free its memory at any time. */
int gr_backend_can_read(gr_range bytes, gr_range *known)
{
    *known = {1, 0};
    return gr_emulator_can_read(bytes.first) && gr_emulator_can_read(bytes.last);
}

size_t gr_backend_elements_at_once(void)
{
    return 1 << 23; /* some tenths of a second on one processor */
}

int gr_backend_reads_host_memory(void)
{
    return 1;
}

void *gr_backend_put_aside(void)
{
    return gr_emulator_put_aside();
}

void gr_backend_take_up(void *aside)
{
    gr_emulator_take_up(aside);
}

void gr_backend_schedule(int order, uint64_t seed)
{
    gr_emulator_schedule(static_cast<gr_schedule>(order), seed);
}

int gr_backend_memory_limit(uint64_t token, size_t bytes)
{
    return gr_emulator_memory_limit(token, bytes);
}

size_t gr_backend_live_bytes(void)
{
    return gr_emulator_live_bytes();
}

int gr_backend_traced(void)
{
    return gr_emulator_traced();
}
}
