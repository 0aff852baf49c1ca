"""scatter_add with the same bits in every run, by a PyTorch C++ extension."""

import torch
from torch.utils.cpp_extension import load_inline

import gpureduce

CUDA = """
#include <ATen/cuda/CUDAContext.h>
#include <gpureduce/exact_add.cuh>
using Sum = gpureduce::exact_sum<float>;

__global__ void add(Sum *sums, const int64_t *id, const float *x, int64_t n)
{
    int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n)
        sums[id[i]].add(x[i]);
}
__global__ void finish(float *out, const Sum *sums, int64_t count)
{
    int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < count)
        out[i] = sums[i].value();
}

torch::Tensor exact_scatter_add(torch::Tensor id, torch::Tensor x, int64_t count)
{
    auto stream = at::cuda::getCurrentCUDAStream();
    auto words = torch::zeros({count, (int64_t)sizeof(Sum) / 8}, id.options());
    auto out = torch::empty({count}, x.options());
    Sum *sums = reinterpret_cast<Sum *>(words.data_ptr<int64_t>());
    int64_t n = x.numel();
    add<<<(n + 255) / 256, 256, 0, stream>>>(sums, id.data_ptr<int64_t>(), x.data_ptr<float>(), n);
    finish<<<(count + 255) / 256, 256, 0, stream>>>(out.data_ptr<float>(), sums, count);
    return out;
}
"""
CPP = "torch::Tensor exact_scatter_add(torch::Tensor id, torch::Tensor x, int64_t count);"


def extension():
    """The compiled extension."""
    return load_inline(
        "exact_scatter_add",
        cpp_sources=CPP,
        cuda_sources=CUDA,
        functions=["exact_scatter_add"],
        extra_include_paths=[gpureduce.include_path()],
    )


if __name__ == "__main__":
    id = torch.randint(0, 1000, (1 << 22,), device="cuda")
    x = torch.randn(1 << 22, device="cuda")
    exact_scatter_add = extension().exact_scatter_add
    found = {exact_scatter_add(id, x, 1000).cpu().numpy().tobytes() for _ in range(20)}
    print(len(found), "result in 20 runs")
    assert len(found) == 1
