"""A histogram of weights by a CuPy RawKernel, with the same bits in every run."""

import cupy

import gpureduce

KERNEL = """
#include <gpureduce/exact_add.cuh>
extern "C" __global__ void add(gpureduce::exact_sum<float> *bins, const int *bin,
                               const float *weight, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        bins[bin[i]].add(weight[i]);
}
extern "C" __global__ void finish(float *out, const gpureduce::exact_sum<float> *bins, int count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        out[i] = bins[i].value();
}
"""
options = ("--std=c++14", f"-I{gpureduce.include_path()}")


def histogram(bin, weight, count):
    """The sum of the weights of each bin."""
    module = cupy.RawModule(code=KERNEL, options=options)
    sums = gpureduce.exact_words(count, "float32", like=weight)
    n, out = len(bin), cupy.empty(count, cupy.float32)
    module.get_function("add")(((n + 255) // 256,), (256,), (sums.array, bin, weight, n))
    module.get_function("finish")(((count + 255) // 256,), (256,), (out, sums.array, count))
    assert (out.get() == sums.sums()).all()  # the host rounds the words alike
    return out


if __name__ == "__main__":
    rng = cupy.random.default_rng(1)
    bin = rng.integers(0, 1000, 1 << 22).astype(cupy.int32)
    weight = rng.standard_normal(1 << 22, dtype=cupy.float32)
    found = {histogram(bin, weight, 1000).get().tobytes() for _ in range(20)}
    print(len(found), "histogram in 20 runs")
    assert len(found) == 1
