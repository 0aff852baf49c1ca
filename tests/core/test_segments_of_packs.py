"""Sums by offsets of rows that consist of packs of 16 bytes, and of a few neighbouring numbers."""

from __future__ import annotations

import numpy as np
import pytest

import gpureduce
from cases import numpy_dtype
from exact_cases import FORMATS, GENERATORS, expected_rows

FLOATS = ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"]
LENGTHS = [0, 1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 40, 300]


def numbers(rng, dtype, shape):
    found = rng.standard_normal(shape) * 2.0 ** rng.integers(-9, 9, shape)
    return found.astype(numpy_dtype(dtype))


def offsets_of(rng, count):
    return np.concatenate(([0], np.cumsum(rng.choice(LENGTHS, count))))


def assert_as_by_processors(values, offsets, **how):
    expected = gpureduce.segment_sum(values, offsets=offsets, device="cpu", **how).value
    found = gpureduce.segment_sum(values, offsets=offsets, device="emulator", **how).value
    assert found.dtype == expected.dtype and found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("d", [None, 1, 2, 4, 8, 12, 16, 40, 64, 132, 260])
def test_segments_of_many_lengths(dtype, d):
    rng = np.random.default_rng(d or 0)
    offsets = offsets_of(rng, 60)
    shape = (int(offsets[-1]),) if d is None else (int(offsets[-1]), d)
    values = numbers(rng, dtype, shape)
    assert_as_by_processors(values, offsets)
    assert_as_by_processors(values, offsets, initial=-2.5)
    assert_as_by_processors(values, offsets.astype(np.int32), dtype="float64" if d == 4 and
                            np.dtype(values.dtype).kind != "c" else None)  # fmt: skip


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
def test_rows_anywhere_in_memory(dtype):
    """Rows that do not lie in packs, and sums that are not neighbours, take another kernel."""
    rng = np.random.default_rng(1)
    offsets = offsets_of(rng, 30)
    wide = numbers(rng, dtype, (int(offsets[-1]), 96))
    for values in (wide[:, :64], wide[:, 1:65], wide[:, 8:40], wide[::-1, :32], wide[:, ::3],
                   wide[:, :33], np.asfortranarray(wide)):  # fmt: skip
        assert_as_by_processors(values, offsets)
    expected = gpureduce.segment_sum(wide, offsets=offsets).value
    for room in (np.empty((30, 200), wide.dtype)[:, 3:99], np.empty((30, 192), wide.dtype)[:, ::2],
                 np.empty((96, 30), wide.dtype).T):  # fmt: skip
        gpureduce.segment_sum(wide, offsets=offsets, out=room, device="emulator")
        assert np.array_equal(room, expected)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("generate", GENERATORS, ids=lambda g: g.__name__)
@pytest.mark.parametrize("columns", [1, 16])
def test_hard_sums_are_rounded_once(generate, dtype, columns):
    fmt, rng = FORMATS[dtype], np.random.default_rng(3)
    rows = generate(fmt, rng, 50 * columns, 5).reshape(50, columns, 5)
    values = np.ascontiguousarray(rows.swapaxes(1, 2)).reshape(-1, columns)
    values = values[:, 0].copy() if columns == 1 else values
    found = gpureduce.segment_sum(values, offsets=np.arange(51) * 5, device="emulator").value
    assert fmt.bits(found).reshape(-1).tolist() == expected_rows(fmt, rows.reshape(-1, 5))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("d", [None, 64])
def test_special_values_stay_in_their_sums(dtype, d):
    values = np.ones((500, d or 1), numpy_dtype(dtype))
    values[3, 0], values[40, -1], values[41, -1], values[77, 0] = np.inf, np.inf, -np.inf, np.nan
    values = values[:, 0].copy() if d is None else values
    assert_as_by_processors(values, np.arange(0, 501, 5))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("d", [None, 4, 64])
def test_fast_is_near(dtype, d):
    rng = np.random.default_rng(4)
    offsets = offsets_of(rng, 40)
    shape = (int(offsets[-1]),) if d is None else (int(offsets[-1]), d)
    values = rng.random(shape).astype(numpy_dtype(dtype))
    found = gpureduce.segment_sum(values, offsets=offsets, strategy="fast", device="emulator").value
    want = gpureduce.segment_sum(values.astype(np.float64), offsets=offsets).value
    np.testing.assert_allclose(found.astype(np.float64), want, rtol=1e-2)


@pytest.mark.parametrize("d", [None, 64])
def test_a_long_segment_among_short_ones(d):
    rng = np.random.default_rng(5)
    offsets = np.concatenate(([0], np.cumsum([3] * 40 + [9000] + [0, 2] * 20)))
    shape = (int(offsets[-1]),) if d is None else (int(offsets[-1]), d)
    assert_as_by_processors(numbers(rng, "float32", shape), offsets)
