/* Kernels of no lesson: what the ladder never does, so that the emulator's side of it is tested.
 * tests/native/test_emulator_kernels.py compiles this with the emulator and runs it. */
#include <stdio.h>
#include <string.h>

#include "parts/common.h"
#include "backend/backend.h"
#include "emulator/runtime/launch.h"
#include "launch_kernel.h"
#include "vector_load.cu"

using namespace gr;

static int failures;
#define CHECK(x) ((x) ? (void)0 : (void)(++failures, printf("%s:%d: %s\n", __FILE__, __LINE__, #x)))

__global__ void shuffles(unsigned *out)
{
    unsigned t = threadIdx.x, *row = out + t;
    row[0] = __shfl_up_sync(~0u, t, 3);
    row[32] = __shfl_sync(~0u, t, 7);
    row[64] = __shfl_down_sync(~0u, t, 3, 8);
    row[96] = __shfl_xor_sync(~0u, t, 5, 16);
    row[128] = __ballot_sync(~0u, t % 3 == 0);
    row[160] = (unsigned)__any_sync(~0u, t == 9) * 2 + (unsigned)__all_sync(~0u, t < 31) +
               (unsigned)__any_sync(~0u, t == 99) * 4 + (unsigned)__all_sync(~0u, t < 32) * 8;
    row[192] = __reduce_min_sync(~0u, t + 5);
    row[224] = __reduce_max_sync(~0u, t + 5);
}

/* Lanes that have one number, of each type that CUDA compares. */
__global__ void matches(unsigned *out)
{
    unsigned t = threadIdx.x, even = t % 2;
    out[t] = __match_any_sync(~0u, t % 3);
    out[t + 32] = __match_any_sync(~0u, (unsigned long long)even << 40);
    out[t + 64] = __match_any_sync(~0u, float(even) / 3);
    out[t + 96] = __match_any_sync(~0u, double(even) / 3);
    out[t + 128] = __match_any_sync(~0u, (short)-even);
    out[t + 160] = __match_any_sync(~0u, even != 0);
    if (t < 8)
        out[t + 192] = __match_any_sync(0xffu, 7);
}

/* Each half of the warp on its own: neither may wait for the other, nor take its values. */
__global__ void halves(unsigned *out)
{
    unsigned t = threadIdx.x, mask = t < 16 ? 0x0000ffffu : 0xffff0000u;
    if (t < 16) { /* the upper half comes to this only when the lower has been here */
        out[t] = __reduce_add_sync(mask, t);
        out[t] += __shfl_down_sync(mask, t, 1, 16) * 0;
        __syncwarp(mask);
    }
    if (t >= 16) {
        out[t] = __reduce_add_sync(mask, t);
        __syncwarp(mask);
    }
}

/* Under a mask, what one lane wrote before the meeting is read by another after it. */
__global__ void ordered(unsigned *out)
{
    unsigned *shared = shared_array<unsigned>(), t = threadIdx.x;
    if (t >= 8)
        return; /* ended lanes are awaited by nobody */
    shared[t] = t + 1;
    __syncwarp(0xffu);
    out[t] = shared[(t + 1) % 8];
}

__global__ void ends_early(unsigned *out)
{
    if (threadIdx.x >= 40)
        return;
    __syncthreads();
    if (threadIdx.x == 0)
        *out = 1;
}

__global__ void waits_for_ever()
{
    if (threadIdx.x == 0)
        __syncwarp(0x3u); /* for lane 1, which waits for this one elsewhere */
    else if (threadIdx.x == 1)
        __syncthreads(); /* the others end, some of them after these two have stopped */
}

__global__ void half_shuffles_half_syncs()
{
    if (threadIdx.x % 2)
        __shfl_sync(~0u, 1, 0);
    else
        __syncwarp();
}

__global__ void masks_that_never_meet()
{
    __syncwarp(threadIdx.x % 2 ? 0x3u : 0xffffffffu);
}

/* Memory that nobody wrote is poison: shared, and the device's. */
__global__ void unwritten(unsigned *out)
{
    if (threadIdx.x == 0) {
        out[0] = shared_array<unsigned>()[3];
        out[1] = out[2];
    }
}

__global__ void mixes_barriers()
{
    if (threadIdx.x % 2)
        __syncthreads();
    else
        __syncthreads_or(1);
}

__global__ void counts(unsigned *out)
{
    int yes = __syncthreads_count(threadIdx.x % 5 == 0), both = __syncthreads_and(threadIdx.x < 99);
    if (threadIdx.x == 0)
        out[0] = (unsigned)yes, out[1] = (unsigned)both;
}

/* Who comes first says what the order is. */
__global__ void order_of_blocks(unsigned *out, unsigned *next)
{
    out[atomicAdd(next, 1u)] = blockIdx.x;
}

__global__ void order_of_lanes(unsigned *out, unsigned *next)
{
    out[atomicAdd(next, 1u)] = threadIdx.x;
}

/* vector_load where the array does not start on a 16-byte boundary: `head` is not 0. */
template <typename T> static void loose_heads(const char *name)
{
    size_t most = 16 / sizeof(T);
    T *in, host[1100];
    unsigned long long *out, sum[4];
    cudaMalloc((void **)&in, sizeof host);
    cudaMalloc((void **)&out, sizeof sum);
    for (size_t i = 0; i < 1100; ++i)
        host[i] = (T)(i * i + 3);
    cudaMemcpy(in, host, sizeof host, cudaMemcpyHostToDevice);
    for (size_t off = 0; off < most; ++off)
        for (size_t n : {1, 2, 3, 7, 15, 16, 17, 31, 33, 100, 1000, 1050}) {
            unsigned grid = n < 100 ? 1 : 4;
            CHECK(!launch(vector_load<const T *, unsigned long long>, grid, 32, 64,
                          (const T *)(in + off), out, n));
            cudaMemcpy(sum, out, grid * sizeof *out, cudaMemcpyDeviceToHost);
            unsigned long long total = 0, expected = 0;
            for (unsigned b = 0; b < grid; ++b)
                total += sum[b];
            for (size_t i = off; i < off + n; ++i)
                expected += (unsigned long long)host[i];
            if (total != expected)
                ++failures, printf("vector_load of %zu %s from %zu\n", n, name, off);
        }
    cudaFree(in);
    cudaFree(out);
}

int main()
{
    unsigned *out, h[1024], *next;
    cudaMalloc((void **)&out, sizeof h);
    cudaMalloc((void **)&next, sizeof *next);
    for (gr_schedule s : {GR_SCHEDULE_FORWARD, GR_SCHEDULE_REVERSE, GR_SCHEDULE_RANDOM}) {
        gr_backend_schedule(s, 3);
        CHECK(!launch(shuffles, 1, 32, 0, out));
        cudaMemcpy(h, out, sizeof h, cudaMemcpyDeviceToHost);
        for (unsigned t = 0; t < 32; ++t) {
            CHECK(h[t] == (t < 3 ? t : t - 3));
            CHECK(h[32 + t] == 7);
            CHECK(h[64 + t] == (t % 8 + 3 > 7 ? t : t + 3));
            CHECK(h[96 + t] == (t ^ 5));
            CHECK(h[128 + t] == 0x49249249u);
            CHECK(h[160 + t] == 10);
            CHECK(h[192 + t] == 5 && h[224 + t] == 36);
        }
        CHECK(!launch(matches, 1, 32, 0, out));
        cudaMemcpy(h, out, sizeof h, cudaMemcpyDeviceToHost);
        for (unsigned t = 0; t < 32; ++t) {
            CHECK(h[t] == (t % 3 == 0 ? 0x49249249u : t % 3 == 1 ? 0x92492492u : 0x24924924u));
            for (unsigned k = 1; k < 6; ++k)
                CHECK(h[32 * k + t] == (t % 2 ? 0xaaaaaaaau : 0x55555555u));
            CHECK(t >= 8 || h[192 + t] == 0xff);
        }
        CHECK(!launch(halves, 1, 32, 0, out));
        cudaMemcpy(h, out, sizeof h, cudaMemcpyDeviceToHost);
        for (unsigned t = 0; t < 32; ++t)
            CHECK(h[t] == (t < 16 ? 120 : 376));
        CHECK(!launch(ordered, 1, 32, 64, out));
        cudaMemcpy(h, out, sizeof h, cudaMemcpyDeviceToHost);
        for (unsigned t = 0; t < 8; ++t)
            CHECK(h[t] == (t + 1) % 8 + 1);
        cudaMemset(out, 0, sizeof h);
        CHECK(!launch(ends_early, 1, 96, 0, out));
        cudaMemcpy(h, out, sizeof h, cudaMemcpyDeviceToHost);
        CHECK(h[0] == 1);
        CHECK(!launch(counts, 1, 96, 0, out));
        cudaMemcpy(h, out, sizeof h, cudaMemcpyDeviceToHost);
        CHECK(h[0] == 20 && h[1] == 1);

        CHECK(launch(half_shuffles_half_syncs, 1, 32, 0) == cudaErrorLaunchFailure);
        CHECK(strstr(gr_backend_fault(), "emulator_kernels.cpp:"));
        CHECK(launch(masks_that_never_meet, 1, 32, 0) == cudaErrorLaunchFailure);
        CHECK(strstr(gr_backend_fault(), "__syncwarp(0x"));
        CHECK(launch(waits_for_ever, 2, 64, 0) == cudaErrorLaunchFailure);
        CHECK(strstr(gr_backend_fault(), "deadlock") &&
              strstr(gr_backend_fault(), "emulator_kernels.cpp:"));
        CHECK(launch(ends_early, 1, 32, size_t(1) << 20, out) == cudaErrorInvalidValue);
    }

    bool differ = false;
    unsigned first[64];
    for (unsigned seed = 1; seed < 5; ++seed) {
        gr_backend_schedule(GR_SCHEDULE_RANDOM, seed);
        cudaMemset(next, 0, sizeof *next);
        CHECK(!launch(order_of_lanes, 1, 64, 0, out, next));
        cudaMemcpy(h, out, sizeof h, cudaMemcpyDeviceToHost);
        bool sorted = true;
        for (unsigned t = 1; t < 64; ++t)
            sorted = sorted && h[t] > h[t - 1];
        CHECK(!sorted);
        if (seed == 1)
            memcpy(first, h, sizeof first);
        else
            differ = differ || memcmp(first, h, sizeof first);
    }
    CHECK(differ);
    for (gr_schedule s : {GR_SCHEDULE_FORWARD, GR_SCHEDULE_REVERSE, GR_SCHEDULE_RANDOM}) {
        gr_backend_schedule(s, 1);
        cudaMemset(next, 0, sizeof *next);
        CHECK(!launch(order_of_blocks, 64, 1, 0, out, next)); /* GPUREDUCE_THREADS=1 */
        cudaMemcpy(h, out, sizeof h, cudaMemcpyDeviceToHost);
        unsigned up = 0, down = 0, seen = 0;
        for (unsigned b = 1; b < 64; ++b) {
            up += h[b] > h[b - 1];
            down += h[b] < h[b - 1];
        }
        for (unsigned b = 0; b < 64; ++b)
            seen += h[b];
        CHECK(seen == 63 * 32);
        CHECK((s == GR_SCHEDULE_FORWARD) == (up == 63));
        CHECK((s == GR_SCHEDULE_REVERSE) == (down == 63));
    }
    cudaFree(out);
    cudaFree(next);
    gr_backend_schedule(GR_SCHEDULE_FORWARD, 0);
    loose_heads<uint8_t>("bytes");
    loose_heads<int16_t>("shorts");
    loose_heads<int32_t>("ints");
    loose_heads<unsigned long long>("longs");
    CHECK(gr_backend_live_bytes() == 0);
    cudaMalloc((void **)&out, 64);
    CHECK(cudaMemcpy(out, h, 1024, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
    CHECK(!launch(unwritten, 1, 32, 128, out));
    cudaMemcpy(h, out, 64, cudaMemcpyDeviceToHost);
    CHECK(h[0] == ~0u && h[1] == ~0u);
    CHECK(launch(mixes_barriers, 1, 32, 0) == cudaErrorLaunchFailure);
    cudaFree(out);
    printf("%d failures\n", failures);
    return failures != 0;
}
