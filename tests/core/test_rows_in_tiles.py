"""row_tile: rows of all lengths, whose elements are loaded by words where they are small."""

from __future__ import annotations

import numpy as np
import pytest

import gpureduce
from axis_cases import random_array
from cases import numpy_dtype

INTEGERS = ["int8", "uint8", "int16", "uint16", "int32"]
FLOATS = ["float16", "bfloat16", "float32"]


def in_tiles(array, **how):
    return gpureduce.sum(array, "row_tile", axis=1, device="emulator", **how).value


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("first", [0, 1, 3])
def test_integers(dtype, first):
    """Rows may begin at any element of a word, and end at any."""
    rng = np.random.default_rng(first)
    longest = 512 // np.dtype(dtype).itemsize
    for columns in (*range(1, 40), 63, 65, 127, longest - 1, longest):
        rows = int(rng.integers(1, 200))
        array = random_array(rng, dtype, rows * columns + first)[first:].reshape(rows, columns)
        assert np.array_equal(in_tiles(array), array.sum(axis=1)), columns


@pytest.mark.parametrize("dtype", FLOATS)
def test_exact_sums(dtype):
    rng = np.random.default_rng(2)
    for columns in (*range(1, 40), 63, 65, 127, 128, 191, 192):
        rows = int(rng.integers(1, 100))
        array = random_array(rng, dtype, (rows, columns))
        if columns % 3 == 0:
            array[rows // 2, columns // 2] = np.inf
        found = gpureduce.sum(array, "exact", axis=1, device="emulator").value
        want = gpureduce.sum(array, "exact", axis=1, device="cpu").value
        assert found.tobytes() == want.tobytes(), columns


@pytest.mark.parametrize("dtype", FLOATS)
def test_fast_sums_leave_out_the_neighbouring_rows(dtype):
    rng = np.random.default_rng(3)
    for columns in (15, 16, 17, 33, 100):
        array = np.full((64, columns), 3000, numpy_dtype(dtype))
        array[1::2] = rng.integers(0, 4, (32, columns))
        want = array[1::2].astype(np.float64).sum(axis=1)
        assert np.array_equal(in_tiles(array)[1::2].astype(np.float64), want), columns
