/* CUB's sums by segment, and limits, for `gpureduce bench --segments --cub LIBRARY`:
 *
 *     nvcc -std=c++17 -O3 -arch=sm_90 -shared -Xcompiler -fPIC -o cub_segments.so \
 *         tools/cub_segments.cu */
#include <cub/device/device_reduce.cuh>
#include <cub/device/device_segmented_reduce.cuh>

#include <stdint.h>

namespace
{

template <typename T>
cudaError_t by_offsets(void *scratch, size_t &bytes, const void *in, const int64_t *offsets,
                       void *out, size_t segments, cudaStream_t stream)
{
    return cub::DeviceSegmentedReduce::Sum(scratch, bytes, static_cast<const T *>(in),
                                           static_cast<T *>(out), (int)segments, offsets,
                                           offsets + 1, stream);
}

struct Plus {
    template <typename T> __device__ T operator()(T a, T b) const
    {
        return a + b;
    }
};

template <typename T>
cudaError_t by_key(void *scratch, size_t &bytes, const void *in, const int64_t *ids, int64_t *found,
                   void *out, int64_t *count, size_t n, cudaStream_t stream)
{
    return cub::DeviceReduce::ReduceByKey(scratch, bytes, ids, found, static_cast<const T *>(in),
                                          static_cast<T *>(out), count, Plus(), (int64_t)n, stream);
}

constexpr unsigned flight = 8;

/* Reads the values, and ids if there are any. Adds a 64-bit integer per value to the word of its
 * id, if there are words. */
template <typename T>
__global__ void __launch_bounds__(256)
    limit(const T *values, const int64_t *ids, unsigned long long *words, size_t n)
{
    unsigned long long all = 0;
    size_t threads = (size_t)gridDim.x * blockDim.x;
    for (size_t at = (size_t)blockIdx.x * blockDim.x + threadIdx.x; at < n;
         at += flight * threads) {
        T value[flight];
        int64_t id[flight];
        for (unsigned k = 0; k < flight; k++) {
            bool is_there = at + k * threads < n;
            value[k] = is_there ? __ldcs(values + at + k * threads) : T(0);
            id[k] = is_there && ids ? __ldcs(ids + at + k * threads) : 0;
        }
        for (unsigned k = 0; k < flight; k++) {
            if (words && at + k * threads < n)
                atomicAdd(words + id[k], (unsigned long long)value[k]);
            all += (unsigned long long)value[k] + (unsigned long long)id[k];
        }
    }
    if (all == 0x123456789abcdef) /* never: keeps the loads */
        __trap();
}

template <typename T>
cudaError_t run_limit(const void *values, const int64_t *ids, void *words, size_t n,
                      cudaStream_t stream)
{
    int device = 0, sms = 0;
    cudaError_t state = cudaGetDevice(&device);
    if (state == cudaSuccess)
        state = cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
    if (state != cudaSuccess)
        return state;
    limit<<<sms * 8, 256, 0, stream>>>(static_cast<const T *>(values), ids,
                                       static_cast<unsigned long long *>(words), n);
    return cudaGetLastError();
}

const char *said(cudaError_t state)
{
    return state == cudaSuccess ? nullptr : cudaGetErrorName(state);
}

} // namespace

/* Sums of float32 (element 4) or float64 (8) by int64 offsets. Without scratch memory, writes how
 * many bytes of it are needed. Returns NULL, or what went wrong. */
extern "C" const char *cub_by_offsets(void *scratch, size_t *bytes, int element, const void *in,
                                      const int64_t *offsets, void *out, size_t segments,
                                      void *stream)
{
    cudaStream_t on = static_cast<cudaStream_t>(stream);
    return said(element == 4 ? by_offsets<float>(scratch, *bytes, in, offsets, out, segments, on)
                             : by_offsets<double>(scratch, *bytes, in, offsets, out, segments, on));
}

/* The same by sorted int64 ids. Leaves the sums of those ids that there are, one after another, the
 * ids in `found`, and how many in `count`: zeros for the others would take another pass. */
extern "C" const char *cub_by_key(void *scratch, size_t *bytes, int element, const void *in,
                                  const int64_t *ids, int64_t *found, void *out, int64_t *count,
                                  size_t n, void *stream)
{
    cudaStream_t on = static_cast<cudaStream_t>(stream);
    return said(element == 4 ? by_key<float>(scratch, *bytes, in, ids, found, out, count, n, on)
                             : by_key<double>(scratch, *bytes, in, ids, found, out, count, n, on));
}

/* The least that a sum by segment has to do with values of 2, 4 or 8 bytes: reads them, and the ids
 * unless there are none. If there are words, adds to the one of each value's id. */
extern "C" const char *limit_of(int element, const void *values, const int64_t *ids, void *words,
                                size_t n, void *stream)
{
    cudaStream_t on = static_cast<cudaStream_t>(stream);
    return said(element == 2   ? run_limit<uint16_t>(values, ids, words, n, on)
                : element == 4 ? run_limit<uint32_t>(values, ids, words, n, on)
                               : run_limit<uint64_t>(values, ids, words, n, on));
}
