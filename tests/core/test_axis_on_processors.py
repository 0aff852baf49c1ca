"""Sums along axes by processors, at the limits of bins and of strips.

test_same_bits.py compares the instruction sets.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import gpureduce
from exact_cases import FLOATS, FORMATS, GENERATORS, expected_rows
from segment_calls import INDEXES, assert_same

F64 = FORMATS["float64"]
SIZES = (3, 8, 9, 17, 64, 129, 300, 2047, 2048, 5000)


def expected(rows):
    return F64.floats(np.array(expected_rows(F64, np.ascontiguousarray(rows)), np.uint64))


def check_rows(rows):
    """As rows, as columns, and as columns that are not contiguous."""
    sums = expected(rows).tobytes()
    for array, axis in ((rows, 1), (np.ascontiguousarray(rows.T), 0)):
        assert gpureduce.sum(array, "exact", axis=axis).value.tobytes() == sums
        apart = np.repeat(array, 2, axis=1)[:, ::2]
        assert gpureduce.sum(apart, "exact", axis=axis).value.tobytes() == sums


def test_sizes_of_rows_in_bins():
    """One element of each row is far beyond the sample by which bins are chosen."""
    rng = np.random.default_rng(1)
    for n in SIZES:
        rows = rng.standard_normal((66, n))
        check_rows(rows)
        place = n // 2
        rows[:, place] *= np.ldexp(1.0, np.arange(-33, 33))
        check_rows(rows)
        rows[:, place] *= np.ldexp(1.0, np.arange(-99, 99, 3))
        check_rows(rows)


def test_excursions_of_rows_in_bins():
    """A sum that leaves its binade and comes back; then it has lost bits."""
    rng = np.random.default_rng(2)
    for n in SIZES[1:]:
        rows = rng.standard_normal((40, n))
        large = np.ldexp(1.0, np.arange(40)) * (1 + np.arange(40) * 2.0**-50)
        rows[:, n // 2], rows[:, n - 2] = large, -large
        check_rows(rows)
        rows[:, n // 2], rows[:, n - 2] = -large, large
        check_rows(rows)
        rows[:] = np.ldexp(1.0, 13)  # all of one sign, and larger than the first element
        rows[:, 0] = 1 + 2.0**-52
        check_rows(rows)


def test_units_of_rows_in_bins():
    """More units of a bin than a float64 holds, though each lane is in its binade."""
    rng = np.random.default_rng(5)
    for n in (8, 16, 24):
        rows = 2.0**18 / (n + 1) * (0.97 + 0.03 * rng.random((64, n)))
        rows[0] = 1
        check_rows(rows)


def test_ties_of_rows_in_bins():
    """Halfway between two numbers, and a little off."""
    for n in SIZES[1:]:
        rows = np.zeros((64, n))
        rows[:, 1] = 1 + np.arange(64) * 2.0**-52
        rows[:, n // 2] = 2.0**-53
        check_rows(rows)
        rows[:, n - 1] = np.ldexp(1.0, -54 - np.arange(64)) * np.where(np.arange(64) % 2, 1, -1)
        check_rows(rows)
        rows *= np.where(np.arange(64) % 3, 1, -1)[:, None]
        check_rows(rows)


def test_special_of_rows_in_bins():
    rng = np.random.default_rng(3)
    for n in SIZES:
        for values in ((np.inf,), (-np.inf,), (np.nan,), (np.inf, -np.inf), (1.7e308, 1.7e308)):
            rows = rng.standard_normal((70, n))
            for i, value in enumerate(values):
                rows[35, n // 2 + i] = value
            check_rows(rows)
        for value in (0.0, -0.0, 5e-324, 1e-310, 1e300, 2.0**-800, 2.0**800):
            rows = np.full((3, n), value)
            rows[1] = -value
            check_rows(rows)
            rows[2] *= np.where(np.arange(n) % 2, 1, -1)
            check_rows(rows)


def test_broken_ties_of_rows_in_bins():
    """Of float32: beside the middle between two numbers by less than float64 holds."""
    fmt = FORMATS["float32"]
    for n in (3, 4, 9, 40, 300):
        rows = np.zeros((80, n), np.float32)
        rows[:, 0] = 1 + np.arange(80) * 2.0**-23
        rows[:, 1] = 2.0**-24 * np.where(np.arange(80) % 3, 1, -1)
        rows[:, -1] = np.ldexp(1.0, -30 - np.arange(80)) * np.where(np.arange(80) % 2, 1, -1)
        for sign in (1, -1):
            for power in (0, -126, 20):
                scaled = rows * np.float32(sign * 2.0**power)
                wanted = fmt.floats(np.array(expected_rows(fmt, scaled), np.uint64)).tobytes()
                assert gpureduce.sum(scaled, "exact", axis=1).value.tobytes() == wanted
                columns = np.ascontiguousarray(scaled.T)
                assert gpureduce.sum(columns, "exact", axis=0).value.tobytes() == wanted


# --- columns of few elements: added up and stored strip by strip, in one pass over memory --------

COUNTS = (*range(1, 18), 20, 31, 40)
COLUMNS = 331  # strips of 128, and a group that overlaps the one before


def in_order(columns):
    """What strategy "cpu" adds in which order, in float64."""
    wide, apart = columns.astype(np.float64), len(columns) // 8
    total = np.zeros(columns.shape[1])
    groups = [wide[r : 8 * apart : apart] for r in range(apart)]
    rest = wide[8 * apart :]
    if len(rest) >= 4:
        groups, rest = [*groups, rest[:4]], rest[4:]
    for group in groups:
        while len(group) > 1:
            group = group[: len(group) // 2] + group[len(group) // 2 :]
        total += group[0]
    for row in rest:
        total += row
    return total


@pytest.mark.parametrize("dtype", FLOATS)
def test_columns_of_few_rows_are_added_in_the_documented_order(dtype):
    fmt, rng = FORMATS[dtype], np.random.default_rng([4, FLOATS.index(dtype)])
    finite = [g for g in GENERATORS if g.__name__ in ("normal", "lognormal", "narrow", "uniform")]
    for n in COUNTS:
        for generate in finite:
            columns = np.ascontiguousarray(generate(fmt, rng, COLUMNS, n).T)
            with np.errstate(over="ignore"):
                expected = in_order(columns)
                if not np.all(np.isfinite(expected)):  # added again, scaled down
                    continue
                if dtype != "float64":
                    expected = expected.astype(np.float32)
                expected = expected.astype(columns.dtype)
            assert_same(gpureduce.sum(columns, "cpu", axis=0).value, expected)


@pytest.mark.parametrize("dtype", INDEXES)
def test_columns_of_few_integers(dtype):
    """Rows of every width near a strip or a vector."""
    rng, info = np.random.default_rng(5), np.iinfo(dtype)
    for n in COUNTS:
        for width in (64, 65, 127, 128, 129, 200, 511, 512, 513, 700):
            array = rng.integers(info.min, info.max, (n, width), dtype, endpoint=True)
            assert_same(gpureduce.sum(array, "cpu", axis=0).value, np.sum(array, axis=0))
            found = gpureduce.sum(array, "cpu", axis=0, initial=7).value
            assert_same(found, np.sum(array, axis=0, initial=7))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", [2, 3, 7, 16])
def test_one_hard_column_among_easy_ones(dtype, n):
    """The easy ones are assumed to be exact, and all are added up again if one is not."""
    fmt, rng = FORMATS[dtype], np.random.default_rng(n)
    easy = rng.integers(-9, 9, (n, 20_000)).astype(fmt.dtype)
    wide = easy.astype(np.float64).sum(axis=0).astype(fmt.dtype)
    for generate in GENERATORS:
        hard = generate(fmt, rng, 1, n)
        for place in (0, 127, 4096, 19_999):
            columns, expected = easy.copy(), wide.copy()
            columns[:, place] = hard[0]
            expected[place : place + 1] = fmt.floats(np.array(expected_rows(fmt, hard), np.uint64))
            assert_same(gpureduce.sum(columns, "exact", axis=0).value, expected)


@pytest.mark.parametrize("dtype", [*FLOATS, "int8", "int32"])
def test_few_rows_at_any_address(dtype):
    """The first strip ends where a cache line does."""
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    rng = np.random.default_rng(8)
    for width in (64, 65, 100, 127, 128, 200, 300, 600):
        for offset in range(0, 130, 3):
            memory = bytearray(3 * width * np.dtype(kind).itemsize + offset)
            array = np.frombuffer(memory, kind, offset=offset).reshape(3, width)
            array[...] = rng.integers(-9, 9, array.shape)
            expected = array.sum(axis=0)
            for strategy in ("auto", "cpu"):
                assert_same(gpureduce.sum(array, strategy, axis=0).value, expected)


@pytest.mark.parametrize("strategy", ["exact", "cpu"])
def test_few_rows_of_complex_numbers_and_of_other_results(strategy):
    rng = np.random.default_rng(6)
    array = rng.integers(-9, 9, (5, 300)) + 1j * rng.integers(-9, 9, (5, 300))
    for dtype in (np.complex64, np.complex128):
        found = gpureduce.sum(array.astype(dtype), strategy, axis=0).value
        assert_same(found, array.sum(axis=0).astype(dtype))
    for source in ("float32", "float64"):
        for target in ("float32", "float64", "bfloat16", "float16"):
            wanted = ml_dtypes.bfloat16 if target == "bfloat16" else np.dtype(target)
            reals = array.real.astype(source)
            found = gpureduce.sum(reals, strategy, wanted, axis=0).value
            assert_same(found, reals.sum(axis=0).astype(wanted))


def test_exact_sums_of_few_rows_leave_the_flags_alone():
    """Of the caller's thread: they are NumPy's."""
    array = np.full((3, 100_000), 0.1)
    with np.errstate(all="raise"):
        for strategy in ("exact", "cpu"):
            gpureduce.sum(array, strategy, axis=0)
            np.add(1.0, 2.0)


def test_columns_of_an_array_larger_than_caches():
    array = np.ones((4200, 2100), np.float32)
    array[::7] = 3
    assert (gpureduce.sum(array, "cpu", axis=0).value == 4200 + 2 * 600).all()
