"""Kernels of users that include gpureduce/exact_add.cuh: checked, on the emulator, for a card."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

import gpureduce
from gpureduce.hardware import toolkit
from gpureduce.kernels import cubins, nvrtc
from user_kernels import some

needs_compiler = pytest.mark.skipif(not shutil.which("g++"), reason="no compiler")

HEAD = "#include <gpureduce/exact_add.cuh>\nusing namespace gpureduce;\n"
IN_SHARED = (
    HEAD
    + """
__global__ void total(const float *in, float *out, size_t n)
{
    __shared__ exact_sum<float> sum;
    if (threadIdx.x == 0)
        sum.reset();
    __syncthreads();
    size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n)
        sum.add_shared(in[i]);
    __syncthreads();
    if (threadIdx.x == 0)
        out[blockIdx.x] = sum.value();
}
"""
)
IN_GLOBAL = (
    HEAD
    + """
__device__ SUM sum;
__device__ unsigned ticket;
__global__ void total(const TYPE *in, TYPE *out, size_t n)
{
    size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    ADD;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0 && atomicInc(&ticket, gridDim.x - 1) == gridDim.x - 1) {
        __threadfence();
        out[0] = sum.value();
        sum.reset();
    }
}
"""
)
PLAIN, BY_WARP = "if (i < n) sum.add(in[i])", "add_in_warp(sum, i < n ? in[i] : TYPE(0))"


def in_global(kind="float", of="exact_sum<TYPE>", add=PLAIN):
    text = IN_GLOBAL.replace("ADD", add).replace("SUM", of)
    return text.replace("TYPE", kind)


TEXTS = {
    "shared": IN_SHARED,
    "global": in_global(),
    "by warp": in_global(add=BY_WARP),
    "double": in_global("double", add=BY_WARP),
    "window": in_global(of="exact_window<TYPE, -60>"),
    "narrow window": in_global(of="exact_window<TYPE, -30, 24>"),
}


@needs_compiler
@pytest.mark.parametrize("name", some(["shared", "by warp", "global", "double"], 4))
def test_it_is_right_and_has_no_race(name):
    verdict = gpureduce.check(TEXTS[name], hint=False, blocks=64)
    assert verdict, verdict
    assert "No race and no split barrier" in str(verdict)


@needs_compiler
@pytest.mark.parametrize("name", TEXTS)
def test_any_order_gives_the_same_bits(name):
    k, rng = gpureduce.kernel(TEXTS[name]), np.random.default_rng(1)
    x = rng.standard_normal(3000).astype("float64" if name == "double" else "float32")
    x = np.trunc(x * 2**20) / x.dtype.type(2**20)
    found = set()
    for order in (x, x[::-1], rng.permutation(x)):
        for block in (32, 96, 256):
            made = gpureduce.sum(np.ascontiguousarray(order), k, block=block, device="emulator")
            found.add(made.value.tobytes())
    if name != "shared":  # each block rounds its own sum there
        assert found == {gpureduce.sum(x, "exact").value.tobytes()}


@needs_compiler
def test_a_sum_that_is_read_too_early_is_a_race():
    text = in_global().replace("    __threadfence();\n    __syncthreads();\n", "", 1)
    verdict = gpureduce.check(text, hint=False, blocks=64)
    assert not verdict


@pytest.mark.parametrize(
    ("name", "by"), [*((name, "nvrtc") for name in TEXTS), ("double", "nvcc"), ("window", "nvcc")]
)
def test_it_compiles_for_a_card(name, by):
    if not (nvrtc.find() if by == "nvrtc" else toolkit.find("nvcc")):
        pytest.skip(f"no {by}")
    k, pair = gpureduce.kernel(TEXTS[name]), ("f64", "f64") if name == "double" else ("f32", "f32")
    assert cubins.cubin(k.source, k.signature, pair, 90, by).symbols


@pytest.mark.gpu
@pytest.mark.parametrize("name", TEXTS)
def test_a_card_gives_the_same_bits(name):
    if name == "shared":
        pytest.skip("each block rounds its own sum")
    k, rng = gpureduce.kernel(TEXTS[name]), np.random.default_rng(2)
    x = rng.standard_normal(10**6).astype("float64" if name == "double" else "float32")
    x = np.trunc(x * 2**20) / x.dtype.type(2**20)
    found = {gpureduce.sum(x, k, device="cuda").value.tobytes() for _ in range(20)}
    assert found == {gpureduce.sum(x, "exact", device="cpu").value.tobytes()}
