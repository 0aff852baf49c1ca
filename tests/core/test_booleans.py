"""Any byte but 0 of a boolean array is True, and counts 1."""

from __future__ import annotations

import numpy as np
import pytest

import gpureduce
from gpureduce import _host
from gpureduce.core.arrays import as_array

SMALL = np.frombuffer(b"\xff\0\2\1\0" * 24, bool)
LARGE = np.frombuffer(b"\x80\0\1\0" * 100_000, bool)
LATE = np.zeros(1 << 20, np.uint8)
LATE[-1] = 7
ARRAYS = {
    "small": SMALL,
    "large": LARGE,
    "one byte": LATE.view(bool),
    "a matrix": SMALL.reshape(12, 10),
    "strided": SMALL.reshape(12, 10)[::2, ::-3],
    "a column": LARGE.reshape(400, 1000).T,
    "repeated": np.broadcast_to(SMALL, (3, 120)),
    "no dimension": SMALL[2],
    "none": SMALL[:0],
    "read-only": np.frombuffer(b"\3", bool),
}
HOWS = [{}, {"strategy": "numpy"}, {"strategy": "cpu"}, {"dtype": "float64"}, {"dtype": "uint8"},
        {"device": "emulator"}]  # fmt: skip


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("how", HOWS, ids=str)
def test_sums(name, how):
    array = ARRAYS[name]
    ones = np.asarray(array).view(np.uint8) != 0
    dtype = how.get("dtype")
    wanted = np.sum(ones, dtype=dtype)
    assert gpureduce.sum(array, **how) == gpureduce.sum(array, timing=False, **how) == wanted
    for axis in range(np.ndim(array)):
        found = gpureduce.sum(array, axis=axis, **how).value
        np.testing.assert_array_equal(found, np.sum(ones, axis=axis, dtype=dtype))


def test_other_sums():
    ids = np.arange(len(SMALL)) % 7
    wanted = np.bincount(ids, SMALL.view(np.uint8) != 0)
    for how in ({}, {"device": "emulator"}, {"strategy": "numpy"}):
        assert (gpureduce.segment_sum(SMALL, ids, **how).value == wanted).all()
    assert gpureduce.from_digits(gpureduce.digits(SMALL)) == 72
    assert gpureduce.Accumulator().add(SMALL).value() == 72
    assert gpureduce.sum(SMALL, "sequential", device="emulator") == 72
    assert gpureduce.sum_parts([SMALL, SMALL]) == 144
    assert gpureduce.sum(list(SMALL)) == 72


def test_the_array_is_not_changed_and_not_copied_in_vain():
    assert as_array(np.broadcast_to(SMALL, (2**40, 120))).strides == (0, 1)
    before = SMALL.tobytes()
    gpureduce.sum(SMALL)
    assert SMALL.tobytes() == before
    for n in (0, 1, 2**17, 2**17 + 1, 2**20):
        right = np.ones(n, bool)
        assert as_array(right) is right and _host.are_bools(right)
        for at in {0, n // 2, n - 1} if n else ():
            wrong = right.copy()
            wrong.view(np.uint8)[at] = 3
            assert not _host.are_bools(wrong)
