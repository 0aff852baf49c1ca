"""The `cpu` strategy: its lanes, blocks, tasks and threads have edges of their own."""

from __future__ import annotations

import numpy as np
import pytest

import gpureduce
from cases import DTYPES, array_of, check, numpy_dtype

CPU_SIZES = [*range(1, 70), 32_769, 65_537, 131_073, 262_145, 3_000_001]
CPU_SIZES += [block + more for block in (256, 1024, 2048) for more in (-1, 0, 1)]


@pytest.mark.parametrize("dtype", DTYPES)
def test_cpu_sizes(dtype):
    for n in CPU_SIZES:
        check(gpureduce.sum(array_of(dtype, n), "cpu"), array_of(dtype, n))


@pytest.mark.parametrize("value", [0, 1, -1])
@pytest.mark.parametrize("dtype", [d for d in DTYPES if numpy_dtype(d).kind in "iu"])
def test_cpu_extremes(dtype, value):
    """Narrow lanes overflow when every element is the largest, not when they are random."""
    info = np.iinfo(dtype)
    array = np.full((1 << 20) + 5, {0: info.min, 1: info.max, -1: 0}[value], dtype)
    check(gpureduce.sum(array, "cpu"), array)


FULL_SIZES = [n + more for n in range(1 << 13, (1 << 18) + 1, 1 << 13) for more in (-1, 0, 257)]


@pytest.mark.parametrize(("dtype", "value"), [("uint8", 255), ("int8", 127), ("int8", -128)])
def test_cpu_bytes_as_large_as_can_be(dtype, value):
    """As many as 16-bit lanes have room for before they are emptied, and a few more."""
    for n in FULL_SIZES:
        assert int(gpureduce.sum(np.full(n, value, dtype), "cpu").value) == n * value, n


def test_cpu_more_tasks_than_the_table_has():
    array = np.ones((70 << 20) + 3, np.uint8)
    assert int(gpureduce.sum(array, "cpu").value) == array.size


@pytest.mark.parametrize("n", [3, 3000, 60_000, 2_000_001])
def test_cpu_partial_sums_that_overflow(n):
    """cpu_sum.h: finite numbers give inf only when their sum is too large, and never nan."""
    big = np.finfo(np.float64).max
    array = np.zeros(n)
    array[[0, n // 2, n - 1]] = big, big, -big
    assert float(gpureduce.sum(array, "cpu").value) == big
    many = np.tile([big, big, -big, -big], n)
    assert float(gpureduce.sum(many, "cpu").value) == 0.0


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_cpu_reads_every_half(dtype):
    every = np.arange(65536, dtype=np.uint16).view(numpy_dtype(dtype))
    with np.errstate(invalid="ignore"):
        values = every[np.isfinite(every.astype(np.float64))]
    for piece in np.array_split(values, 13_000):
        got = gpureduce.sum(piece, "cpu", dtype="float64").value
        assert got == documented_sum(piece.astype(np.float64)), piece


def documented_sum(array):
    """The order that cpu/cpu_sum.h promises, step by step."""
    leaves = []
    for start in range(0, array.size, 1024):
        block = array[start : start + 1024].astype(np.float64)
        block = np.concatenate([block, np.zeros(-block.size % 32)]).reshape(-1, 32)
        lanes = np.zeros(32)
        for row in block:
            lanes = lanes + row
        while lanes.size > 2:
            lanes = lanes[: lanes.size // 2] + lanes[lanes.size // 2 :]
        leaves.append(lanes)
    while len(leaves) > 1:
        leaves += [np.zeros(2)] * (len(leaves) % 2)
        leaves = [a + b for a, b in zip(leaves[::2], leaves[1::2], strict=True)]
    return array.dtype.type(leaves[0][0] + leaves[0][1])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_cpu_adds_in_the_order_it_documents(dtype):
    for n in (1, 2, 31, 33, 1000, 1025, 5 * 1024 + 3, 40_961, 300_001):
        array = array_of(dtype, n)
        got = gpureduce.sum(array, "cpu").value
        want = documented_sum(array)
        assert got == want, n


def test_nan_is_always_the_same():
    value = gpureduce.sum(np.array([np.inf, -np.inf]), "cpu").value
    assert value.tobytes() == np.float64(np.nan).tobytes()
