"""exact_levels, the second way of exact sums along axes: integers of 42 bits in registers."""

from __future__ import annotations

import fractions

import numpy as np
import pytest

import gpureduce
from cases import numpy_dtype

FLOATS = ("float16", "bfloat16", "float32", "float64")
# Lanes per sum grow with the terms; from 16,385 terms on, and for few long sums, warps share one.
SHAPES = [(700, 3), (2, 513), (1, 1030), (3, 4097), (1, 16384), (1, 16385), (2, 40_000), (300, 600)]


def added(array, **how):
    return gpureduce.sum(array, "exact_levels", device="emulator", **how).value


def hard(dtype, shape, seed):
    """Rows over all exponents that cancel but for one small number."""
    rng = np.random.default_rng(seed)
    kind = numpy_dtype(dtype)
    limits = np.finfo(kind) if dtype != "bfloat16" else np.finfo(np.float32)
    fraction = {"float16": 10, "bfloat16": 7, "float32": 23, "float64": 52}[dtype]
    rows, columns = shape
    exponents = rng.integers(limits.minexp - fraction, limits.maxexp - fraction, shape)
    whole = rng.integers(1, 2**fraction, shape).astype(float) * rng.choice([-1.0, 1.0], shape)
    array = np.ldexp(whole, exponents).astype(kind)
    half = columns // 2
    array[:, half : 2 * half] = -array[:, :half][:, rng.permutation(half)]
    array[:, -1] = np.ldexp(1.0, limits.minexp - fraction + 1 + rng.integers(0, 9, rows)).astype(
        kind
    )
    return array


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", FLOATS)
def test_rows_and_columns_that_cancel(dtype, shape):
    array = hard(dtype, shape, 5)
    for axis, values in ((1, array), (0, np.ascontiguousarray(array.T)), (0, array.T)):
        want = gpureduce.sum(values, "exact", axis=axis).value
        assert added(values, axis=axis).tobytes() == want.tobytes()
        # Here it gets the sums that the other kernels do not prove.
        by_exact = gpureduce.sum(values, "exact", axis=axis, device="emulator").value
        assert by_exact.tobytes() == want.tobytes()


def test_the_right_answer_is_that_of_fractions():
    array = hard("float64", (6, 700), 7)
    for row, found in zip(array, added(array, axis=1), strict=True):
        assert found == float(sum(map(fractions.Fraction, row.tolist())))


@pytest.mark.parametrize("terms", [512, 16384, 16385])
def test_each_level_holds_the_most_that_it_can_get(terms):
    """Half a unit of a level goes to the next one whole: the most that an element leaves there."""
    exponents = np.arange(-1074, 1024 - 15, 5)
    array = np.ldexp(1.0, exponents)[:, None] * np.ones(terms)
    want = np.ldexp(float(terms), exponents)
    assert (added(array, axis=1) == want).all()
    assert (added(-array, axis=1) == -want).all()
    is_small = (exponents >= -149) & (exponents < 128 - 15)
    small, want = array[is_small].astype(np.float32), want[is_small].astype(np.float32)
    assert (added(small, axis=1) == want).all()


def test_the_largest_numbers():
    most = np.finfo(np.float32).max
    for n in (3, 5001, 40_001):
        array = np.full((2, n), most)
        array[:, 1::2] = -most
        assert added(array, axis=1).tolist() == [most, most]
        assert added(np.full((1, n), most), axis=1).tolist() == [np.inf]
        assert added(np.full((1, n), -most), axis=1, dtype="float64") == [-float(most) * n]
        wide = array.astype(np.float64) / float(most) * np.finfo(np.float64).max
        assert added(wide, axis=1).tolist() == [np.finfo(np.float64).max] * 2
        assert added(np.abs(wide), axis=1).tolist() == [np.inf] * 2


@pytest.mark.parametrize("n", [3, 600, 20_000])
@pytest.mark.parametrize("dtype", FLOATS)
def test_inf_nan_and_zeros(dtype, n):
    array = np.zeros((6, n), numpy_dtype(dtype))
    array[0, 1], array[1, 2], array[2, 0] = np.inf, -np.inf, np.nan
    array[3, 0], array[3, n - 1] = np.inf, -np.inf
    array[4] = -0.0
    found = added(array, axis=1).astype(float)
    assert np.isposinf(found[0]) and np.isneginf(found[1]) and np.isnan(found[2:4]).all()
    assert found[4:].tolist() == [0, 0] and not np.signbit(found[4:]).any()


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
def test_an_initial_number_may_be_any_float64(dtype):
    array = np.ones((4, 50), dtype)
    for initial in (1e300, -1e-300, 2.0**-1074, 0.1):
        for result in ("float32", "float64"):
            want = gpureduce.sum(array, "exact", axis=1, initial=initial, dtype=result).value
            found = added(array, axis=1, initial=initial, dtype=result)
            assert found.tobytes() == want.tobytes(), (initial, result)
