"""A histogram of weights by an NVIDIA Warp kernel, with the same bits in every run.

Needs Warp 1.19, whose modules can include a header.
"""

import numpy as np
import warp as wp

import gpureduce

wp.set_module_options(
    {
        "enable_backward": False,
        "extra_build_options": wp.ModuleBuildOptions(
            extra_cuda_include_dirs=[gpureduce.include_path()],
            extra_cuda_preamble="#include <gpureduce/exact_add.cuh>",
        ),
    }
)


Words = wp.array(dtype=wp.int64, ndim=2)


@wp.func_native("reinterpret_cast<gpureduce::exact_sum<float> *>(sums.data)[i].add(x);")
def exact_add(sums: Words, i: int, x: float): ...


@wp.func_native("return reinterpret_cast<gpureduce::exact_sum<float> *>(sums.data)[i].value();")
def exact_value(sums: Words, i: int) -> float: ...


@wp.kernel
def add(sums: Words, bin: wp.array(dtype=int), weight: wp.array(dtype=float)):
    """Adds the weights to the bins' words."""
    i = wp.tid()
    exact_add(sums, bin[i], weight[i])


@wp.kernel
def finish(out: wp.array(dtype=float), sums: Words):
    """Rounds each sum once."""
    i = wp.tid()
    out[i] = exact_value(sums, i)


def histogram(bin, weight, count):
    """The sum of the weights of each bin."""
    sums = wp.zeros((count, 9), dtype=wp.int64, device="cuda")
    out = wp.empty(count, dtype=float, device="cuda")
    wp.launch(add, dim=bin.size, inputs=[sums, bin, weight], device="cuda")
    wp.launch(finish, dim=count, inputs=[out, sums], device="cuda")
    return out.numpy()


if __name__ == "__main__":
    rng = np.random.default_rng(1)
    bin = wp.array(rng.integers(0, 1000, 1 << 22), dtype=int, device="cuda")
    weight = wp.array(rng.standard_normal(1 << 22), dtype=float, device="cuda")
    found = {histogram(bin, weight, 1000).tobytes() for _ in range(20)}
    print(len(found), "histogram in 20 runs")
    assert len(found) == 1
