// Accesses of one warp to shared memory, by patterns out of a file: see wavefront_patterns.py.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

struct Pattern {
    uint32_t size, mask, offset[32];
};

enum { REPEATS = 64, SHARED_BYTES = 48 * 1024 };

template <int Size> __device__ void load(uint32_t address);
template <> __device__ void load<4>(uint32_t address)
{
    [[maybe_unused]] uint32_t a;
    asm volatile("ld.volatile.shared.u32 %0, [%1];" : "=r"(a) : "r"(address));
}
template <> __device__ void load<8>(uint32_t address)
{
    [[maybe_unused]] uint32_t a, b;
    asm volatile("ld.volatile.shared.v2.u32 {%0, %1}, [%2];" : "=r"(a), "=r"(b) : "r"(address));
}
template <> __device__ void load<16>(uint32_t address)
{
    [[maybe_unused]] uint32_t a, b, c, d;
    asm volatile("ld.volatile.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                 : "r"(address));
}

template <int Size> __device__ void store(uint32_t address);
template <> __device__ void store<4>(uint32_t address)
{
    asm volatile("st.volatile.shared.u32 [%0], %0;" ::"r"(address));
}
template <> __device__ void store<8>(uint32_t address)
{
    asm volatile("st.volatile.shared.v2.u32 [%0], {%0, %0};" ::"r"(address));
}
template <> __device__ void store<16>(uint32_t address)
{
    asm volatile("st.volatile.shared.v4.u32 [%0], {%0, %0, %0, %0};" ::"r"(address));
}

template <int Size> __global__ void access(const Pattern *pattern)
{
    extern __shared__ __align__(128) char memory[];
    uint32_t base = (uint32_t)__cvta_generic_to_shared(memory);
    if (!(pattern->mask >> threadIdx.x & 1))
        return;
    uint32_t address = base + pattern->offset[threadIdx.x];
#pragma unroll 1
    for (int i = 0; i < REPEATS; i++)
        load<Size>(address);
#pragma unroll 1
    for (int i = 0; i < REPEATS; i++)
        store<Size>(address);
}

#define CHECK(call)                                                                                \
    do {                                                                                           \
        cudaError_t error = (call);                                                                \
        if (error != cudaSuccess) {                                                                \
            fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error));                         \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

int main(int count, char **arguments)
{
    FILE *file = count == 2 ? fopen(arguments[1], "rb") : nullptr;
    if (!file)
        return fprintf(stderr, "usage: %s FILE\n", arguments[0]), 2;
    std::vector<Pattern> patterns;
    for (Pattern pattern; fread(&pattern, sizeof pattern, 1, file) == 1;)
        patterns.push_back(pattern);
    fclose(file);
    Pattern *device;
    CHECK(cudaMalloc(&device, patterns.size() * sizeof(Pattern)));
    CHECK(cudaMemcpy(device, patterns.data(), patterns.size() * sizeof(Pattern),
                     cudaMemcpyHostToDevice));
    for (size_t i = 0; i < patterns.size(); i++) {
        switch (patterns[i].size) {
        case 4: access<4><<<1, 32, SHARED_BYTES>>>(device + i); break;
        case 8: access<8><<<1, 32, SHARED_BYTES>>>(device + i); break;
        default: access<16><<<1, 32, SHARED_BYTES>>>(device + i); break;
        }
        CHECK(cudaGetLastError());
    }
    CHECK(cudaDeviceSynchronize());
    return 0;
}
