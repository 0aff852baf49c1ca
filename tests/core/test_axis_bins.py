"""Exact sums of float64 along an axis in bins, which do not take elements of all sizes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import gpureduce
from cases import run_python
from exact_cases import FORMATS, expected_bits, expected_rows

F64 = FORMATS["float64"]
SIZES = (3, 8, 9, 16, 17, 33, 64, 100, 129, 255, 300, 1000, 2047, 2048, 2051, 5000)


def expected(rows):
    return F64.floats(np.array(expected_rows(F64, np.ascontiguousarray(rows)), np.uint64))


def check_rows(rows):
    """As rows, as columns, and as columns that are not contiguous."""
    sums = expected(rows).tobytes()
    for array, axis in ((rows, 1), (np.ascontiguousarray(rows.T), 0)):
        assert gpureduce.sum(array, "exact", axis=axis).value.tobytes() == sums
        apart = np.repeat(array, 2, axis=1)[:, ::2]
        assert gpureduce.sum(apart, "exact", axis=axis).value.tobytes() == sums


def check_sizes():
    """One element of each row is much larger or smaller than those that bins are chosen by."""
    rng = np.random.default_rng(1)
    for n in SIZES:
        rows = rng.standard_normal((66, n))
        check_rows(rows)
        place = n // 2
        rows[:, place] *= np.ldexp(1.0, np.arange(-33, 33))
        check_rows(rows)
        rows[:, place] *= np.ldexp(1.0, np.arange(-99, 99, 3))
        check_rows(rows)


def check_excursions():
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


def check_units():
    """More units of a bin than a float64 holds, though each lane is in its binade."""
    rng = np.random.default_rng(5)
    for n in (8, 16, 24):
        rows = 2.0**18 / (n + 1) * (0.97 + 0.03 * rng.random((64, n)))
        rows[0] = 1
        check_rows(rows)


def check_ties():
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


def check_special():
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


def check_broken_ties():
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


CHECKS = """
import sys
sys.path.insert(0, sys.argv[1])
import test_axis_bins as bins
bins.check_sizes()
bins.check_excursions()
bins.check_units()
bins.check_ties()
bins.check_special()
bins.check_broken_ties()
"""


@pytest.mark.parametrize("simd", ["baseline", "avx2", ""])
def test_sums_in_bins(simd):
    run_python(CHECKS, str(Path(__file__).parent), GPUREDUCE_SIMD=simd)


@pytest.mark.parametrize("n", [5, 8, 9, 100, 1030, 3001])
def test_parts_of_complex_rows_are_added_apart(n):
    rng = np.random.default_rng(n)
    array = rng.standard_normal((37, n)) + 1j * rng.standard_normal((37, n)) * 1e3
    for values, axis in ((array, 1), (np.ascontiguousarray(array.T), 0)):
        found = gpureduce.sum(values, "exact", axis=axis).value
        assert found.real.tobytes() == expected(array.real).tobytes()
        assert found.imag.tobytes() == expected(array.imag).tobytes()


@pytest.mark.parametrize("target", ["float16", "float32", "float64"])
@pytest.mark.parametrize("initial", [0, 0.1, 2.0**-60])
def test_other_results_and_initial_numbers(target, initial):
    rng = np.random.default_rng(4)
    fmt = FORMATS[target]
    for n in (8, 20, 100, 2500):
        rows = rng.standard_normal((40, n))
        rows[:, -1] = np.round(rows[:, -1], 2)
        with_initial = np.concatenate([rows, np.full((40, 1), float(initial))], axis=1)
        wide = [expected_bits(np.ascontiguousarray(row), target) for row in with_initial]
        for array, axis in ((rows, 1), (np.ascontiguousarray(rows.T), 0)):
            found = gpureduce.sum(array, "exact", target, axis=axis, initial=float(initial)).value
            assert found.tobytes() == fmt.floats(np.array(wide, np.uint64)).tobytes()
