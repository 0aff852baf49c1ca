"""Means and variances by segment have the bits of those of the segment's elements."""

from __future__ import annotations

import itertools
import warnings
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from gpureduce import exact

DTYPES = ["float16", "bfloat16", "float32", "float64", "complex64", "int32", "int64"]
CALLS = [
    (exact.segment_sum, exact.sum, {}),
    (exact.segment_mean, exact.mean, {}),
    (exact.segment_var, exact.var, {"ddof": 1}),
    (exact.segment_std, exact.std, {}),
]


def numbers(rng, name, shape, kind):
    x = rng.standard_normal(shape) * 100
    if name == "bfloat16":
        return x.astype(ml_dtypes.bfloat16)
    if name == "complex64":
        return (x + 1j * rng.standard_normal(shape)).astype(name)
    if kind == "wide" and name == "float64":
        x *= 10.0 ** rng.integers(-200, 180, shape)
    if kind == "close" and name in ("float32", "float64"):
        x += 1e8
        x[7::200] = 0.1  # its difference from the others is no float64
    if kind == "outliers" and name == "float64":
        x[7::300] *= 1e-30
        x[11::300] *= 1e170
    return x.astype(name) * (2**50 if name == "int64" and kind == "wide" else 1)


def agree(found, wanted):
    assert found.dtype == wanted.dtype
    assert np.array_equal(found, wanted, equal_nan=True)


@pytest.mark.parametrize("kind", ["usual", "wide", "close", "outliers"])
@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize(("by_segment", "whole", "how"), CALLS)
def test_segments_are_sums_of_their_own(by_segment, whole, how, name, kind):
    rng = np.random.default_rng(DTYPES.index(name))
    for shape, count in (((900,), 11), ((60,), 60), ((4000,), 1), ((500, 3), 9)):
        x, ids = numbers(rng, name, shape, kind), rng.integers(0, count, shape[0])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of segments with few elements
            want = np.array([whole(x[ids == k], axis=0, **how) for k in range(count)])
            agree(by_segment(x, ids, num_segments=count, **how), want)
            order = np.argsort(ids, kind="stable")
            ends = np.searchsorted(ids[order], np.arange(count + 1))
            agree(by_segment(x[order], offsets=ends, **how), want)
            agree(
                by_segment(x[order], ids[order].astype(np.uint8), num_segments=count, **how), want
            )


def test_long_segments_and_results_of_another_dtype():
    rng = np.random.default_rng(1)
    x = rng.standard_normal(3_000_000).astype(np.float32)
    offsets = [0, 1_500_000, 1_500_002, len(x)]
    for by_segment, whole, how in CALLS:
        found = by_segment(x, offsets=offsets, dtype="float64", **how)
        pairs = [*itertools.pairwise(offsets)]
        agree(found, np.array([whole(x[a:b], dtype="float64", **how) for a, b in pairs]))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of segments without elements
@pytest.mark.parametrize("columns", [(), (2,)])
def test_segments_around_means_of_their_own(columns):
    rng = np.random.default_rng(3)
    ids = np.append(rng.integers(1, 40, 200), [41, 43, 43])  # 0 and 42 are empty
    x = rng.standard_normal((203, *columns)) + (1e9 * rng.standard_normal((44, *columns)))[ids]
    for by_segment, whole, how in CALLS:
        found = by_segment(x, ids, **how)
        for k in set(ids.tolist()) - ({41} if how else set()):
            agree(found[k], whole(x[ids == k], axis=0, **how))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of segments with few elements
@pytest.mark.parametrize("ddof", [0, 0.1, 1, 1 + 2.0**-52])
def test_many_short_segments(ddof):
    """Each thread has cells of its own. Tiny and large numbers are added at the end."""
    rng, count = np.random.default_rng(7), 10_000
    ids, x = rng.integers(0, count, 5 * count), rng.integers(-4, 5, 5 * count) / 2
    x[::3] += rng.standard_normal(len(x[::3]))
    x[::1000], x[1::1000] = 1e-100, 5e-324
    ids[3::1000], x[2::1000], x[3::1000] = ids[2::1000], 1e100, 3e100
    found = exact.segment_var(x, ids, num_segments=count, ddof=ddof)
    for k in {*ids[::1000].tolist(), *ids[2::1000].tolist(), *range(500)}:
        some = [Fraction(one) for one in x[ids == k].tolist()]
        n, squares = len(some), sum(one * one for one in some)
        below = n * max(Fraction(0), n - Fraction(ddof))
        agree(found[k], np.float64((n * squares - sum(some) ** 2) / below if below else np.nan))


def test_infinities_and_nans_stay_in_their_segments():
    x = np.array([1.0, np.inf, 2.0, np.nan, -np.inf, 4.0])
    assert exact.segment_mean(x, [0, 1, 0, 2, 3, 0])[[0, 1, 3]].tolist() == [7 / 3, np.inf, -np.inf]
    assert np.isnan(exact.segment_var(x, [0, 1, 0, 2, 3, 0])).tolist() == [False, True, True, True]


def test_segments_without_elements():
    with pytest.warns(RuntimeWarning, match="Mean of empty slice"):
        assert np.isnan(exact.segment_mean([1.0], [1])).tolist() == [True, False]
    with pytest.warns(RuntimeWarning, match="Degrees of freedom"):
        found = exact.segment_var([1.0, 2.0, 4.0], [1, 2, 2], ddof=1)
    assert np.array_equal(found, [np.nan, np.nan, 2.0], equal_nan=True)
    with pytest.warns(RuntimeWarning, match="Degrees of freedom"):
        assert exact.segment_std([1.0, 2.0], [0, 0], ddof=2).tolist() == [np.inf]
    assert exact.segment_mean(np.empty((0, 2)), [], num_segments=0).shape == (0, 2)


@pytest.mark.parametrize("call", [exact.segment_mean, exact.segment_var, exact.segment_std])
def test_errors_are_those_of_sums(call):
    for arguments, how, error, text in (
        (([1.0, 2.0], [0, 3]), {"num_segments": 2}, ValueError, r"segment_ids\[1\] is 3"),
        (([2**60, 2], [0, -1]), {"num_segments": 2}, ValueError, r"segment_ids\[1\] is -1"),
        (([1.0], [0, 0]), {}, ValueError, "values has 1 rows, but segment_ids 2 ids"),
        (([1.0],), {}, TypeError, "either segment_ids or offsets"),
        (([1.0],), {"offsets": [0, 2]}, ValueError, "offsets must go from 0"),
        (([[[1.0]]], [0]), {}, ValueError, "1 or 2 dimensions"),
        ((["a"], [0]), {}, TypeError, "cannot be summed"),
        (([1.0], [0.5]), {}, TypeError, "must be integers"),
    ):
        with pytest.raises(error, match=text):
            call(*arguments, **how)
    assert call([1.0, 1.0], [0, 0]).shape == (1,)
