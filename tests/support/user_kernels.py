"""Kernels for the tests: right ones, wrong ones, and hostile ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def some(cases: Iterable[Any], every: int) -> list[Any]:
    """Cases that take a second each: all but the first of each `every` cases are marked slow."""
    rows = [case if isinstance(case, tuple) else (case,) for case in cases]
    return [
        pytest.param(*row, marks=() if i % every == 0 else pytest.mark.slow)
        for i, row in enumerate(rows)
    ]


# For tests whose subject is not where a kernel is right: a sixth of the usual time of a verdict.
ONE_BLOCK = {"dtypes": ["int32"], "blocks": "64"}
TREE = """template <typename In, typename Acc> __global__ void my_rung(In in, Acc *out, size_t n)
{
    Acc *partial = shared_array<Acc>();
    unsigned tid = threadIdx.x;
    size_t i = size_t(blockIdx.x) * blockDim.x + tid;
    partial[tid] = i < n ? Acc(in[i]) : Acc(0);
    __syncthreads();
    for (unsigned stride = 512; stride > 0; stride /= 2) {
        if (tid < stride && tid + stride < blockDim.x)
            partial[tid] += partial[tid + stride];
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = partial[0];
}
"""
# The same for int alone: right for blocks that are powers of two.
TREE_OF_INTEGERS = """__global__ void tree(const int *in, int *out, int n)
{
    extern __shared__ int s[];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    s[t] = i < n ? in[i] : 0;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (t < half) s[t] += s[t + half];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = s[0];
}"""
# A puzzle whose answer is right without its barrier, as long as threads run one after another.
PUZZLE_WITHOUT_BARRIER = """__global__ void sum_block(const float *in, float *out, size_t n)
{
    __shared__ float cache[1024];
    unsigned tid = threadIdx.x;
    size_t i = size_t(blockIdx.x) * blockDim.x + tid;
    cache[tid] = i < n ? in[i] : 0;
    if (tid == blockDim.x - 1) {
        float sum = 0;
        for (unsigned t = 0; t < blockDim.x; t++)
            sum += cache[t];
        out[blockIdx.x] = sum;
    }
}
"""
# Elements that are all the same hide that the last one of each block is read twice.
INDEX_BUG = """__global__ void shifted(const int *in, int *out, size_t n)
{
    extern __shared__ int partial[];
    unsigned tid = threadIdx.x;
    size_t i = size_t(blockIdx.x) * blockDim.x + tid, last = n - 1;
    partial[tid] = i < n ? in[i + 1 < last ? i + 1 : last] : 0;
    __syncthreads();
    if (tid == 0) {
        int sum = 0;
        for (unsigned t = 0; t < blockDim.x; t++)
            sum += partial[t];
        out[blockIdx.x] = sum;
    }
}
"""


def plain(body: str, elements: str = "float", sums: str = "float") -> str:
    """A kernel without a template and with this body, which begins in line 2."""
    return (
        f"__global__ void f(const {elements} *in, {sums} *out, size_t n) {{\n{body}\n}}\n"
        "// gpureduce: finishes=yes\n"
    )


def alone(body: str) -> str:
    """A right sum by the first thread of the grid, after this body."""
    return plain(
        f"{body}\nif (threadIdx.x == 0 && blockIdx.x == 0) {{ float sum = 0; "
        "for (size_t i = 0; i < n; i++) sum += in[i]; out[0] = sum; }"
    )


# The five wrong kernels of docs/other_tools.md.
FIVE = {
    "no barrier": PUZZLE_WITHOUT_BARRIER,
    "shifted": INDEX_BUG,
    "halves": TREE.replace("= 512", "= blockDim.x / 2").replace(
        "tid < stride && tid + stride < blockDim.x", "tid < stride"
    ),
    "+=": plain(
        "    size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;\n"
        "    if (i < n)\n        *out += in[i];"
    ),
    "no test": INDEX_BUG.replace("i < n ? in[i + 1 < last ? i + 1 : last] : 0", "in[i]"),
}
