/* CUB's reproducible sum, the same on every GPU, measured as csrc/engine/measure.c measures: for
 * `python -m gpureduce.exact_bench --cub-reproducible LIBRARY`. CUB has it from CCCL 3.1 on (CUDA
 * 13.1, or the wheel nvidia-cuda-cccl):
 *
 *     nvcc -std=c++17 -O3 -arch=sm_90 -shared -Xcompiler -fPIC -I CCCL/include/cccl \
 *         -o cub_reproducible.so tools/cub_reproducible.cu */
#if !__has_include(<cub/detail/rfa.cuh>)
#error "this CUB has no reproducible sum: -I a CCCL 3.1 or later before the toolkit's own"
#endif

#include <cub/device/device_reduce.cuh>
#include <cuda/__execution/determinism.h>
#include <cuda/__execution/require.h>

#include <limits.h>

namespace
{

/* Memory that is there already: allocating it is not what is measured. */
struct Scratch {
    void *memory;
    size_t room;

    void *allocate(cuda::stream_ref, size_t bytes)
    {
        return bytes <= room ? memory : nullptr;
    }

    void deallocate(cuda::stream_ref, void *, size_t) {}
};

struct Measurement {
    char *data = nullptr;
    double *out = nullptr;
    Scratch scratch = {nullptr, 1 << 24};
    cudaStream_t stream = nullptr;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t runnable = nullptr;
    cudaEvent_t start = nullptr, stop = nullptr;

    ~Measurement()
    {
        cudaEventDestroy(start);
        cudaEventDestroy(stop);
        cudaGraphExecDestroy(runnable);
        cudaGraphDestroy(graph);
        cudaStreamDestroy(stream);
        cudaFree(data);
        cudaFree(out);
        cudaFree(scratch.memory);
    }
};

#define TRY(call)                                                                                  \
    do {                                                                                           \
        cudaError_t state_ = (call);                                                               \
        if (state_ != cudaSuccess)                                                                 \
            return state_;                                                                         \
    } while (0)

template <typename T> cudaError_t sum(Measurement &m, size_t stride, size_t n, unsigned copies)
{
    namespace execution = cuda::execution;
    auto wanted = execution::require(execution::determinism::gpu_to_gpu);
    auto environment = cuda::std::execution::env{
        wanted, cuda::stream_ref{m.stream},
        cuda::std::execution::prop{cuda::mr::__get_memory_resource, m.scratch}};
    for (unsigned copy = 0; copy < copies; copy++)
        TRY(cub::DeviceReduce::Sum(reinterpret_cast<const T *>(m.data + copy * stride),
                                   reinterpret_cast<T *>(m.out), (int)n, environment));
    return cudaSuccess;
}

cudaError_t prepare(Measurement &m, const void *host, size_t bytes, size_t stride, unsigned copies)
{
    TRY(cudaMalloc(&m.data, stride * copies));
    TRY(cudaMalloc(&m.out, sizeof *m.out));
    TRY(cudaMalloc(&m.scratch.memory, m.scratch.room));
    TRY(cudaStreamCreateWithFlags(&m.stream, cudaStreamNonBlocking));
    TRY(cudaEventCreate(&m.start));
    TRY(cudaEventCreate(&m.stop));
    for (unsigned copy = 0; copy < copies; copy++)
        TRY(cudaMemcpy(m.data + copy * stride, host, bytes, cudaMemcpyDefault));
    return cudaSuccess;
}

/* As in csrc/engine/measure.c. */
unsigned rounds_of(unsigned copies, size_t bytes)
{
    size_t launches = bytes < (size_t)128 << 20 ? 16 : ((size_t)2 << 30) / bytes;
    return launches > copies ? (unsigned)((launches + copies - 1) / copies) : 1;
}

template <typename T>
cudaError_t measure(const void *host, size_t n, unsigned copies, unsigned warmups, unsigned repeats,
                    double *us, double *value)
{
    size_t stride = (n * sizeof(T) + 511) / 512 * 512;
    Measurement m;
    T result;

    if (n > INT_MAX) /* which is what this CUB takes */
        return cudaErrorNotSupported;
    TRY(prepare(m, host, n * sizeof(T), stride, copies));
    TRY(sum<T>(m, stride, n, 1)); /* loads the kernels, which capturing could not */
    TRY(cudaStreamSynchronize(m.stream));
    TRY(cudaStreamBeginCapture(m.stream, cudaStreamCaptureModeThreadLocal));
    unsigned rounds = rounds_of(copies, n * sizeof(T));
    cudaError_t launched = cudaSuccess;
    for (unsigned round = 0; round < rounds && launched == cudaSuccess; round++)
        launched = sum<T>(m, stride, n, copies);
    TRY(cudaStreamEndCapture(m.stream, &m.graph));
    TRY(launched);
    TRY(cudaGraphInstantiate(&m.runnable, m.graph, 0));
    for (unsigned i = 0; i < warmups + repeats; i++) {
        float ms;
        TRY(cudaEventRecord(m.start, m.stream));
        TRY(cudaGraphLaunch(m.runnable, m.stream));
        TRY(cudaEventRecord(m.stop, m.stream));
        TRY(cudaEventSynchronize(m.stop));
        TRY(cudaEventElapsedTime(&ms, m.start, m.stop));
        if (i >= warmups)
            us[i - warmups] = ms * 1e3 / copies / rounds;
    }
    TRY(cudaMemcpy(&result, m.out, sizeof result, cudaMemcpyDefault));
    *value = (double)result;
    return cudaSuccess;
}

} // namespace

/* Writes `repeats` times of one sum of n float32 (element 4) or float64 (8), and the sum; returns
 * NULL, or what went wrong. */
extern "C" const char *cub_reproducible(const void *host, size_t n, int element, unsigned copies,
                                        unsigned warmups, unsigned repeats, double *us,
                                        double *value)
{
    cudaError_t state = element == 4
                            ? measure<float>(host, n, copies, warmups, repeats, us, value)
                            : measure<double>(host, n, copies, warmups, repeats, us, value);
    return state == cudaSuccess ? nullptr : cudaGetErrorName(state);
}
