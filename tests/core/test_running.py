"""Running sums and windows: each entry has the bits of the exact sum, mean or deviation."""

from __future__ import annotations

import itertools
import warnings

import ml_dtypes
import numpy as np
import pytest

import gpureduce
from gpureduce import exact
from gpureduce.core import running

DTYPES = ["float16", "bfloat16", "float32", "float64", "complex64"]
KINDS = ["usual", "wide", "ties", "cancel", "special"]


def numbers(rng, name, shape, kind):
    x = rng.standard_normal(shape)
    if kind == "wide":
        most = {"float16": 4, "float64": 300}.get(name, 30)
        x *= 10.0 ** rng.integers(-most, most // 2, shape)
    if kind == "ties":
        x = np.round(x * 8) / 4
    if kind == "cancel":
        x = np.where(rng.random(shape) < 0.3, 1e4 if name == "float16" else 1e18, 1) * x
    if kind == "special":
        x.flat[rng.integers(0, x.size, 3)] = [np.inf, -np.inf, np.nan]
    if name == "bfloat16":
        return x.astype(ml_dtypes.bfloat16)
    with np.errstate(over="ignore", invalid="ignore"):
        return (x + 1j * rng.standard_normal(shape) if name == "complex64" else x).astype(name)


def agree(found, wanted):
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    assert np.array_equal(found, wanted, equal_nan=True)


def prefixes(x, axis):
    x = np.moveaxis(x, axis, 0)
    parts = [gpureduce.sum(x[: i + 1].copy(), "exact", axis=0).value for i in range(len(x))]
    return np.moveaxis(np.array(parts, x.dtype).reshape(x.shape), 0, axis)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", DTYPES)
def test_entries_are_sums_of_their_own(name, kind):
    rng = np.random.default_rng(DTYPES.index(name))
    for shape in ((1,), (300,), (3, 40), (40, 30), (5, 9, 17), (270, 3), (80, 11)):
        x = numbers(rng, name, shape, kind)
        swapped = x if name == "bfloat16" else x.astype(x.dtype.newbyteorder())
        for axis in range(len(shape)):
            want = prefixes(x, axis)
            for same in (x, np.asfortranarray(x), swapped, np.repeat(x, 2, axis=0)[::2]):
                agree(exact.cumsum(same, axis), want)
            flipped = np.flip(prefixes(np.flip(x, axis), axis), axis)
            agree(exact.cumsum(x, axis, reverse=True), flipped)


def test_long_rows_are_divided():
    """Chunks of a row for several threads; the fallback begins at a chunk, not at the row."""
    x = np.random.default_rng(1).standard_normal(700_001)
    x[300_000] = 1e300
    x[500_000:500_003] = [-1e300, 1e-300, np.inf]
    found = exact.cumsum(x)
    for i in (0, 65_535, 65_536, 299_999, 300_000, 499_999, 500_000, 500_001, 500_002, 700_000):
        assert found[i] == exact.sum(x[: i + 1]), i


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", DTYPES)
def test_sums_go_on_after_the_digits_of_others(name, kind):
    """By rows, by columns with others within and beside them, and by chunks of a long row."""
    rng = np.random.default_rng(DTYPES.index(name))
    for shape in ((300,), (40, 30), (5, 9, 17), (3, 270, 4), (300_000,)):
        x = numbers(rng, name, shape, kind)
        for axis, size in enumerate(shape):
            first, other = np.split(x, [rng.integers(1, size)], axis)
            want = np.split(exact.cumsum(x, axis), [first.shape[axis]], axis)[1]
            before = running.sum_digits(first, axis, x.dtype)
            agree(running.continued(other, axis, x.dtype, before), want)
            agree(running.continued(first, axis, x.dtype, before * 0), exact.cumsum(first, axis))


def test_numbers_that_three_floats_lose_come_back():
    x = np.array([1e300, 1e200, 1e100, 1.0, -1e100, -1e200, -1e300])
    for columns in (1, 3, 40):
        found = exact.cumsum(np.repeat(np.tile(x, 11)[:, None], columns, axis=1), 0)
        assert np.array_equal(found[6::7], np.repeat(np.arange(1.0, 12)[:, None], columns, axis=1))


def test_partial_sums_beyond_the_largest_number():
    x = np.array([1.5e308, 1.5e308, -1.5e308, -1.5e308, 3.0])
    for at in range(1, 5):
        found = running.continued(x[at:], 0, x.dtype, running.sum_digits(x[:at], 0, x.dtype))
        agree(found, np.array([1.5e308, np.inf, 1.5e308, 0, 3])[at:])


def test_digits_that_are_wrong_are_refused():
    x, digits = np.ones((2, 3)), running.sum_digits(np.ones((2, 3)), 1, np.dtype("f8"))
    for wrong in (digits[:1], digits.astype("i4"), -digits):
        with pytest.raises(ValueError, match="digits"):
            running.continued(x, 1, x.dtype, wrong)


def test_options_of_running_sums():
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    agree(exact.cumsum(x), np.cumsum(x))
    found = exact.cumsum(x, 1, include_initial=True)
    agree(found, np.array([[0, 0, 1, 3], [0, 3, 7, 12]], np.float32))
    found = exact.cumsum(x, 1, include_initial=True, reverse=True)
    agree(found, np.array([[3, 3, 2, 0], [12, 9, 5, 0]], np.float32))
    out = np.empty((3, 2), np.float64).T
    assert exact.cumsum(x, 1, dtype="f8", out=out) is out
    agree(out, np.cumsum(x, 1, dtype="f8"))
    agree(exact.nancumsum([1.0, np.nan, 2.0]), np.array([1.0, 1.0, 3.0]))
    agree(exact.cumsum(np.empty((0, 3)), 0), np.empty((0, 3)))
    agree(exact.cumsum(np.float64(3)), np.array([3.0]))


@pytest.mark.parametrize("name", ["bool", "int8", "uint32", "int64"])
def test_running_sums_of_integers(name):
    x = np.random.default_rng(2).integers(0, 2 if name == "bool" else 100, (4, 50)).astype(name)
    agree(exact.cumsum(x, 1), np.cumsum(x, 1))
    agree(exact.cumsum(x, 1, dtype="int16"), np.cumsum(x, 1, dtype="int16"))
    agree(exact.cumsum(x, 1, dtype="f4"), np.cumsum(x.astype("f8"), 1).astype("f4"))
    big = np.array([[2**62, -5], [2**62, 2**60 + 1], [3, 2**62]], np.int64)
    right = np.array([[2.0**62, -5], [2.0**63, 2**60 - 4], [2.0**63, 5 * 2.0**60]])
    agree(exact.cumsum(big, 0, "f8"), right)
    agree(exact.cumsum(big.T, 1, "f4"), right.T.astype("f4"))
    assert exact.segment_cumsum(big, offsets=[0, 1, 3], dtype="f8")[1:, 0].tolist() == [2.0**62] * 2


@pytest.mark.parametrize("name", ["float32", "complex64", "int32"])
def test_running_sums_by_segment(name):
    rng = np.random.default_rng(3)
    x = (rng.standard_normal((500, 2)) * 100).astype(name)
    ids, offsets = rng.integers(0, 9, 500), [0, 3, 3, 100, 500]
    found = exact.segment_cumsum(x, ids, num_segments=70_000)
    for k in range(9):
        agree(found[ids == k], exact.cumsum(x[ids == k], 0))
    found = exact.segment_cumsum(x[:, 0], offsets=offsets)
    for start, end in itertools.pairwise(offsets):
        agree(found[start:end], exact.cumsum(x[start:end, 0]))


# --- windows -----------------------------------------------------------------------------------


def window_by_window(function, x, starts, ends, least, ddof=None):
    found = []
    for start, end in zip(starts, ends, strict=True):
        some = x[start:end][~np.isnan(x[start:end])]
        few = len(some) < least or (ddof is not None and len(some) <= ddof)
        few = few or (function is exact.mean and not len(some))
        how = {} if ddof is None else {"ddof": ddof}
        found.append(np.nan if few else function(some, **how))
    return np.array(found, x.dtype)


WINDOWS = [
    (exact.rolling_sum, exact.sum, None), (exact.rolling_mean, exact.mean, None),
    (exact.rolling_var, exact.var, 1), (exact.rolling_std, exact.std, 0.5),
]  # fmt: skip


@pytest.mark.parametrize("kind", [*KINDS, "far"])
@pytest.mark.parametrize("name", ["float16", "float32", "float64"])
@pytest.mark.parametrize(("rolling", "whole", "ddof"), WINDOWS)
def test_windows_are_results_of_their_own(rolling, whole, ddof, name, kind):
    rng = np.random.default_rng(KINDS.index(kind) if kind in KINDS else 9)
    how = {} if ddof is None else {"ddof": ddof}
    for n, size in ((1, 1), (5, 9), (60, 3), (400, 30), (300, 101)):
        x = numbers(rng, name, n, kind) if n > 2 or kind != "special" else np.ones(n, name)
        x = (x / 1000 + 1000).astype(name) if kind == "far" else x
        for center, least in ((False, None), (True, 1), (False, 0)):
            ends = np.arange(1, n + 1) + ((size - 1) // 2 if center else 0)
            starts, ends = np.clip(ends - size, 0, n), np.minimum(ends, n)
            wanted = size if least is None else least
            found = rolling(x, size, center=center, min_periods=least, **how)
            agree(found, window_by_window(whole, x, starts, ends, wanted, ddof))


def test_windows_after_elements_that_hide_others():
    x = np.random.default_rng(5).standard_normal(3000)
    x[[40, 900, 2000]], x[[41, 1500]], x[2500] = 1e200, -1e22, 1e-200
    for rolling, whole, ddof in WINDOWS:
        how = {} if ddof is None else {"ddof": ddof}
        ends, starts = np.arange(1, 3001), np.maximum(np.arange(-19, 2981), 0)
        agree(rolling(x, 20, **how), window_by_window(whole, x, starts, ends, 20, ddof))


def test_nans_in_several_rows():
    x = np.arange(24.0).reshape(4, 6)
    x[1, 2], x[3, 0] = np.nan, np.inf
    for view, axis in ((x, 1), (x.T, 0), (x, 0)):
        found = exact.rolling_sum(view, 2, axis, min_periods=1)
        rows = np.moveaxis(view, axis, -1)
        want = [exact.rolling_sum(row, 2, min_periods=1) for row in rows]
        assert np.array_equal(np.moveaxis(found, axis, -1), want, equal_nan=True)


@pytest.mark.parametrize(("rolling", "whole", "ddof"), WINDOWS)
@pytest.mark.parametrize("kind", [*KINDS, "gaps"])
def test_windows_of_many_rows(rolling, whole, ddof, kind):
    """Rows move side by side in the lanes of a vector: also the first and the last windows."""
    rng = np.random.default_rng(7)
    how = {} if ddof is None else {"ddof": ddof}
    for rows, n, size, center in ((8, 70, 70, True), (19, 40, 7, False), (9, 5, 11, True)):
        x = numbers(rng, "float64", (rows, n), kind)
        if kind == "gaps":
            x[rng.random(x.shape) < 0.3] = np.nan
        ends = np.arange(1, n + 1) + ((size - 1) // 2 if center else 0)
        starts, ends = np.clip(ends - size, 0, n), np.minimum(ends, n)
        want = [window_by_window(whole, row, starts, ends, 2, ddof) for row in x]
        flipped = x[::-1].copy()[::-1]
        for same in (x, np.asfortranarray(x), np.repeat(x, 2, axis=1)[:, ::2], flipped):
            agree(rolling(same, size, 1, min_periods=2, center=center, **how), np.array(want))
            found = rolling(same.T, size, 0, min_periods=2, center=center, **how)
            agree(found, np.transpose(want))
            found = rolling(same, (starts[::-1], ends[::-1]), 1, min_periods=2, **how)
            agree(found[:, ::-1], np.array(want))


def test_windows_in_any_order_and_along_any_axis():
    rng = np.random.default_rng(4)
    x = rng.standard_normal((3, 50, 4))
    found = exact.rolling_std(x, 7, axis=1)
    agree(found[1, :, 2], exact.rolling_std(x[1, :, 2], 7))
    starts = rng.integers(0, 40, 300)
    ends = starts + rng.integers(0, 10, 300)
    found = exact.rolling_mean(x, (starts, ends), axis=1)
    agree(found[2, :, 3], window_by_window(exact.mean, x[2, :, 3], starts, ends, 1))
    agree(exact.rolling_sum(np.arange(5), 2), np.array([np.nan, 1, 3, 5, 7]))
    assert exact.rolling_sum(np.empty((2, 0)), 3).shape == (2, 0)


@pytest.mark.parametrize("name", ["int8", "int32", "uint32", "int64"])
def test_windows_of_integers(name):
    rng = np.random.default_rng(6)
    most = min(np.iinfo(name).max, 2**53)
    x = rng.integers(-most if name[0] == "i" else 0, most, 300).astype(name)
    for rolling, whole in ((exact.rolling_var, exact.var), (exact.rolling_mean, exact.mean)):
        want = [np.nan, np.nan]
        how = {"ddof": 1} if whole is exact.var else {}
        want += [whole(x[i : i + 3], **how) for i in range(298)]
        agree(rolling(x, 3), np.array(want))


def test_windows_of_as_many_elements_as_ddof():
    assert np.isnan(exact.rolling_var([1.0, 2.0, 4.0], 2, ddof=2)).all()


def test_what_left_a_window_leaves_nothing():
    x = np.array([1e300, 1.0, -1e300, np.inf, 3.0, 4.0, np.nan, 5.0, 6.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = exact.rolling_mean(x, 2, min_periods=1)
    agree(found, np.array([1e300, 5e299, -5e299, np.inf, np.inf, 3.5, 4.0, 5.0, 5.5]))
    assert exact.rolling_std(x, 2)[[5, 8]].tolist() == [0.5**0.5, 0.5**0.5]


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: exact.cumsum(np.ones((2, 2)), (0, 1)), TypeError, "axis must be a whole number"),
        (lambda: exact.cumsum(np.ones(2), 1), np.exceptions.AxisError, "axis 1"),
        (lambda: exact.cumsum(np.ones(2), dtype="i4"), TypeError, "float or complex"),
        (lambda: exact.cumsum([1j], dtype="f8"), TypeError, "imaginary"),
        (lambda: exact.cumsum(np.ones(2), out=np.empty(3)), ValueError, "shape"),
        (lambda: exact.cumsum(["a"]), TypeError, "cannot be summed"),
        (lambda: exact.cumsum([1.0], reverse="no"), TypeError, "reverse must be True or False"),
        (lambda: exact.segment_cumsum([1.0], [1], num_segments=1), ValueError, "out of range"),
        (lambda: exact.segment_cumsum([1.0]), TypeError, "either segment_ids or offsets"),
        (lambda: exact.rolling_sum([1.0], 0), ValueError, "window must be from 1"),
        (lambda: exact.rolling_sum([1.0], 2, min_periods=3), ValueError, "min_periods must be"),
        (lambda: exact.rolling_sum(1.0, 2), ValueError, "need an array with an axis"),
        (lambda: exact.rolling_sum([1j], 2), TypeError, "real numbers"),
        (lambda: exact.rolling_sum([2**60 + 1], 2), ValueError, "integers beyond 2"),
        (lambda: exact.rolling_sum([1.0], ([0], [2])), ValueError, "window 0 is from 0 to 2"),
        (lambda: exact.rolling_sum([1.0], ([0], [1, 1])), ValueError, "1 starts and 2 ends"),
        (lambda: exact.rolling_sum([1.0], ([0.5], [1])), TypeError, "starts must be"),
        (lambda: exact.rolling_sum([1.0], ([0], [1]), center=True), ValueError, "center is for"),
        (lambda: exact.rolling_var([1.0], 2, ddof=np.inf), ValueError, "finite"),
        (lambda: exact.rolling_var([1.0], 2, ddof=None), TypeError, "ddof must be a real number"),
    ],
)
def test_errors(call, error, text):
    with pytest.raises(error, match=text):
        call()


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32"])
def test_nans_are_left_out_without_a_warning(name):
    x = np.array([1, np.nan, 3, 2]).astype(ml_dtypes.bfloat16 if name == "bfloat16" else name)
    agree(exact.nancumsum(x), np.array([1, 1, 4, 6], x.dtype))
    assert exact.nanmean(x) == 2 and exact.nanvar(x, ddof=1) == 1 and exact.nansum(x) == 6
    agree(exact.rolling_sum(x, 2, min_periods=1), np.array([1, 1, 3, 5], x.dtype))
