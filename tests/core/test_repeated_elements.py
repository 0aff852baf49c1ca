"""Arrays that repeat their elements are summed by kernels in pieces, without a copy."""

from __future__ import annotations

import numpy as np
import pytest

import gpureduce
from cases import run_python

AT_ONCE = 2**23  # elements per launch of the emulator


def add(array, strategy="fast", **how):
    return gpureduce.sum(array, strategy, device="emulator", **how)


def repeated(part, shape):
    return np.broadcast_to(np.asarray(part), shape)


@pytest.mark.parametrize(
    ("dtype", "strategy"),
    [("int32", "fast"), ("float32", "exact"), ("float64", "fast"), ("complex128", "exact")],
)
def test_sums_of_more_elements_than_a_launch_reads(dtype, strategy):
    n = 2 * AT_ONCE + 8  # three times of which is a float32
    rows = repeated(np.array([[1], [2], [-3]], dtype), (3, n))
    assert add(rows, strategy, axis=1).value.tolist() == [n, 2 * n, -3 * n]
    assert add(rows.T, strategy, axis=0).value.tolist() == [n, 2 * n, -3 * n]
    assert add(rows, strategy, axis=(0, 1)).value == 0


def test_as_many_partial_sums_as_are_merged_twice():
    n = 33 * AT_ONCE + 7
    assert add(repeated(np.int8(3), (n,)), axis=0).value == 3 * n
    row = repeated(np.float64(2.0**-60), (n,))
    assert add(row, "exact", axis=0, initial=1.0).value == 1 + n * 2.0**-60


def test_dimensions_that_are_divided_one_by_one():
    part = np.array([1.0, 2.0])
    array = repeated(part[:, None, None], (2, 1025, 8200))  # the last two: more than 2^23
    assert add(array, axis=(1, 2)).value.tolist() == (part * 1025 * 8200).tolist()
    assert add(array, axis=(0, 2)).value.tolist() == [3 * 8200] * 1025
    many = add(array, axis=0, keepdims=True).value
    assert many.shape == (1, 1025, 8200) and (many == 3).all()


def test_masks_initial_numbers_and_parts():
    n = AT_ONCE + 3
    array = repeated(np.array([[1 + 2j], [3 - 1j]]), (2, n))
    mask = repeated(np.array([[True], [False]]), (2, n))
    found = add(array, "exact", axis=1, where=mask, initial=5 - 7j)
    assert found.value.tolist() == [n + 5 + (2 * n - 7) * 1j, 5 - 7j]
    out = np.empty((4, 2), np.complex128)[::2, 0]
    add(array, axis=1, out=out)
    assert out.tolist() == [n + 2j * n, 3 * n - 1j * n]


@pytest.mark.parametrize("strategy", ["column_thread", "any_layout", "exact_levels"])
def test_named_kernels(strategy):
    n = AT_ONCE + 1
    array = repeated(np.arange(4.0), (n, 4))
    assert add(array, strategy, axis=0).value.tolist() == [0, n, 2 * n, 3 * n]


@pytest.mark.parametrize("step", [1, -1])
def test_converted_elements_and_reversed_dimensions(step):
    array = repeated(np.arange(6, dtype=">i2")[::step, None], (6, AT_ONCE // 2))
    want = array.astype(np.int64).sum(axis=1)
    assert add(array, axis=1).value.tolist() == want.tolist()
    assert add(array, "exact", axis=1, dtype="float32").value.tolist() == want.tolist()
    ids = np.arange(6)[::step]
    found = gpureduce.segment_sum(array[:, :3], ids, device="emulator")
    assert found.value.tolist() == [[i] * 3 for i in range(6)]


MEMORY = """
import resource
import numpy as np, gpureduce as g
one = np.broadcast_to
calls = [
    lambda n: g.sum(one(np.float32(1), (n,)), axis=0, device="emulator"),
    lambda n: g.sum(one(np.int32(1), (n,)), "exact", axis=0, dtype="float64", device="emulator"),
    lambda n: g.sum(one(np.int8(1), (n, 2)), axis=0, where=one(np.array(True), (n, 2)),
                    device="emulator"),
    lambda n: g.segment_sum(one(np.float32(1), n), one(np.int8(0), n), device="emulator"),
    lambda n: g.digits(one(np.float32(1), (2, n // 2)), 1),
    lambda n: g.digits(one(np.int64(1), (2, n // 2)), 1),
    lambda n: g.sum_parts([one(np.float32(1), (n // 2, 2))] * 2, axis=0, device="emulator"),
]
for call in calls:
    call(2**10)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for call in calls:
    call(2**25)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.skipif(bool(gpureduce.build_info()["sanitize"]), reason="sanitizers keep freed memory")
def test_memory_does_not_grow_with_the_repetitions():
    """Copied out, the elements take 64 MiB or more."""
    kib = int(run_python(MEMORY, GPUREDUCE_THREADS="2"))
    assert kib < 50 * 1024
