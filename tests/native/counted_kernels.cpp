/* Counts what a few kernels do and prints it, line by line of the source.
 * tests/native/test_explain_compilers.py compiles this with several compilers and options, which
 * must make no difference. */
#include <stdio.h>
#include <string.h>

#include "emulator/trace/counters.h"
#include "kernel_entry.h"

#include "coop_groups.cu"
#include "interleaved_idx.cu"
#include "last_block.cu"
#include "unroll_warp.cu"
#include "vector_load.cu"
#include "warp_shfl.cu"

alignas(256) static unsigned in[5000], out[64], work[64];
static unsigned ticket;

template <typename... P> static int count(const char *name, void (*kernel)(P...), unsigned grid)
{
    const unsigned *first = in;
    unsigned *sums = out, *scratch = work, *drawn = &ticket;
    size_t n = sizeof in / sizeof *in;
    void *args[] = {&first, &sums, &n, &scratch, &drawn};
    cudaLaunchConfig_t config;
    memset(&config, 0, sizeof config);
    config.gridDim = dim3(grid, 1, 1);
    config.blockDim = dim3(128, 1, 1);
    config.dynamicSmemBytes = 128 * sizeof(unsigned);
    gr_sample all = {0, grid, 1, 0};
    gr_arrivals arrivals = {&ticket, nullptr, 0, 0, nullptr, 0};
    gr_recorder *recorder = gr_recorder_new(&all, 1, &arrivals, 0);
    gr_record(recorder);
    cudaError_t error = cudaLaunchKernelExC(&config, kernel_entry(kernel), args);
    gr_record(nullptr);
    gr_recording results;
    size_t found = gr_recorded(recorder, &results) ? results.line_count : 0;
    const gr_counted_line *lines = results.lines;
    for (size_t i = 0; i < found; ++i) {
        const char *file = lines[i].file ? strrchr(lines[i].file, '/') : nullptr;
        printf("%s %s:%d", name, file ? file + 1 : "?", lines[i].line);
        for (uint64_t counted : lines[i].counters.count)
            printf(" %llu", (unsigned long long)counted);
        printf("\n");
    }
    gr_recorder_free(recorder);
    return error != cudaSuccess || !found;
}

int main()
{
    return count("interleaved_idx", interleaved_idx<const unsigned *, unsigned>, 40) |
           count("unroll_warp", unroll_warp<const unsigned *, unsigned>, 40) |
           count("warp_shfl", warp_shfl<const unsigned *, unsigned>, 3) |
           count("coop_groups", coop_groups<const unsigned *, unsigned>, 3) |
           count("last_block", last_block<const unsigned *, unsigned>, 12) |
           count("vector_load", vector_load<const unsigned *, unsigned>, 3);
}
