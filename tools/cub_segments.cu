/* CUB's sums by segment, for `gpureduce bench --segments --cub LIBRARY`:
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
