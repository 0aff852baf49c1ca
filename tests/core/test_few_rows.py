"""Sums of columns of few elements: added up and stored strip by strip, in one pass over memory."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import gpureduce
from cases import run_python
from exact_cases import FLOATS, FORMATS, GENERATORS, expected_rows

COUNTS = (*range(1, 18), 20, 31, 40)
COLUMNS = 331  # strips of 128, and a group that overlaps the one before


def assert_same(found, expected):
    assert found.dtype == expected.dtype
    assert np.array_equal(found.view(np.uint8), np.ascontiguousarray(expected).view(np.uint8))


def check_exact(dtype):
    """Against an oracle of Python integers."""
    fmt, rng = FORMATS[dtype], np.random.default_rng([3, FLOATS.index(dtype)])
    for n in COUNTS:
        for generate in GENERATORS:
            rows = generate(fmt, rng, COLUMNS, n)
            expected = fmt.floats(np.array(expected_rows(fmt, rows), np.uint64))
            columns = np.ascontiguousarray(rows.T)
            assert_same(gpureduce.sum(columns, "exact", axis=0).value, expected)
            apart = np.zeros(2 * COLUMNS, columns.dtype)[::2]
            gpureduce.sum(columns, "exact", axis=0, out=apart)
            assert_same(np.ascontiguousarray(apart), expected)


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


def check_cpu(dtype):
    """Against the documented order of additions."""
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


def check_integers(dtype):
    """Against NumPy, for every width near those of strips and vectors."""
    rng, info = np.random.default_rng(5), np.iinfo(dtype)
    for n in COUNTS:
        for width in (64, 65, 127, 128, 129, 200, 511, 512, 513, 700):
            array = rng.integers(info.min, info.max, (n, width), dtype, endpoint=True)
            assert_same(gpureduce.sum(array, "cpu", axis=0).value, np.sum(array, axis=0))
            found = gpureduce.sum(array, "cpu", axis=0, initial=7).value
            assert_same(found, np.sum(array, axis=0, initial=7))


CHECKS = """
import sys
sys.path.insert(0, sys.argv[1])
import test_few_rows as few
for dtype in few.FLOATS:
    few.check_exact(dtype)
    few.check_cpu(dtype)
for dtype in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"):
    few.check_integers(dtype)
"""


@pytest.mark.parametrize("simd", ["baseline", "avx2", ""])
def test_sums_of_few_rows(simd):
    run_python(CHECKS, str(Path(__file__).parent), GPUREDUCE_SIMD=simd)


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
