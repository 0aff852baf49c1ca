"""The kernels for sums by segment: whether they race."""

from __future__ import annotations

import json

import numpy as np
import pytest

import gpureduce
from gpureduce import _emulator_traced as traced
from gpureduce import _host
from gpureduce.core import dtypes

EXACT = {"int32": False, "float16": True, "float32": True, "float64": True}


def request(dtype, count, exactly, **how):
    whole = "float64" if how["as_digits"] else "int64"
    target = dtypes.load_of(np.dtype(whole if dtype == "int32" else dtype))
    acc = _host.ACC_U64 if dtype == "int32" else _host.ACC_F64 if dtype == "float64" else (
        _host.ACC_F32
    )  # fmt: skip
    initial = (0, 0) if dtype == "int32" else (0.0, 0.0)
    own = np.dtype(dtype)
    given = own.kind, own.itemsize, acc, exactly, target, initial, False
    return traced.request(*given, segments=count, check=True, **how)


def watch(values, numbers, count, *, by_offsets=False, is_sorted=0, exactly=None, as_digits=False):
    dtype = values.dtype.name
    exactly = as_digits or EXACT[dtype] if exactly is None else exactly
    result = np.dtype(np.int64) if dtype == "int32" or as_digits else values.dtype
    shape = (count, *values.shape[1:], *([75] if as_digits else []))
    out, reports = np.full(shape, 77, result), []
    how = request(
        dtype, count, exactly, by_offsets=by_offsets, sorted=is_sorted, as_digits=as_digits
    )
    traced.watched(how, values, numbers, out, reports)
    assert json.loads(reports[0])["races"] == []
    return out


def values_of(rng, dtype, shape, kind):
    if dtype == "int32":
        return rng.integers(-9, 9, shape, np.int32)
    spread = 40 if kind == "wide" else 1
    with np.errstate(over="ignore"):
        found = (rng.standard_normal(shape) * 2.0 ** rng.integers(-spread, spread, shape)).astype(
            dtype
        )
    if kind == "special":
        found.reshape(-1)[[3, 50, 51]] = np.inf, np.nan, -np.inf
    return found


@pytest.mark.parametrize("dtype", list(EXACT))
@pytest.mark.parametrize(
    ("n", "count", "columns"),
    [(300, 5, None), (700, 5, None), (300, 200, None), (90, 4, 3), (40, 9, 33), (1100, 2, 64)],
)
def test_nothing_races(dtype, n, count, columns):
    kind = ("usual", "wide", "special")[(n // 10 + list(EXACT).index(dtype)) % 3]
    rng = np.random.default_rng(n)
    values = values_of(rng, dtype, n if columns is None else (n, columns), kind)
    ids = rng.integers(0, count, n)
    ids[:64] = ids[0]
    want = gpureduce.segment_sum(values, ids, num_segments=count).value
    assert watch(values, ids, count).tobytes() == want.tobytes()
    order = np.argsort(ids, kind="stable")
    ordered, offsets = values[order], np.searchsorted(ids[order], np.arange(count + 1))
    assert watch(ordered, ids[order], count, is_sorted=1).tobytes() == want.tobytes()
    assert watch(ordered, offsets, count, by_offsets=True).tobytes() == want.tobytes()
    digits = gpureduce.segment_digits(values, ids, num_segments=count)
    assert np.array_equal(watch(values, ids, count, as_digits=True), digits)
    assert np.array_equal(watch(ordered, offsets, count, by_offsets=True, as_digits=True), digits)


@pytest.mark.parametrize("exactly", [True, False])
def test_nothing_races_in_long_segments(exactly):
    rng = np.random.default_rng(2)
    values = rng.standard_normal(21_000).astype(np.float32)
    values[::7] *= np.float32(2.0**60)
    values[1::7] = -values[: values[1::7].size * 7 : 7]
    offsets = np.array([0, 3, 20_500, 20_500, 21_000])
    found = watch(values, offsets, 4, by_offsets=True, exactly=exactly)
    want = gpureduce.segment_sum(values, offsets=offsets).value
    assert not exactly or found.tobytes() == want.tobytes()


def test_nothing_races_in_gaps_and_wrong_ids():
    values = np.ones(600, np.float32)
    ids = np.repeat([0, 500, 999], 200)
    found = watch(values, ids, 1000, is_sorted=1)
    assert found[[0, 500, 999]].tolist() == [200, 200, 200] and found.sum() == 600
    unsorted = ids[::-1].copy()
    assert (watch(values, unsorted, 1000, is_sorted=1) == 77).all()  # nothing was written
    wrong = unsorted.copy()
    wrong[::5] = 1000
    watch(values, wrong, 1000)


@pytest.mark.parametrize("dtype", ["int32", "float32"])
@pytest.mark.parametrize("kind", ["usual", "wide", "special"])
def test_nothing_races_in_several_strips_of_sorted_ids(dtype, kind):
    rng = np.random.default_rng(4)
    ids = np.repeat(np.arange(60), np.resize([1, 3, 700, 2, 90, 2000], 60))
    values = values_of(rng, dtype, ids.size, kind)
    found = watch(values, ids, 60, is_sorted=1)
    assert found.tobytes() == gpureduce.segment_sum(values, ids, num_segments=60).value.tobytes()
