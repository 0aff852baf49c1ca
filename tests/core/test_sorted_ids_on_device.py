"""Sums by sorted ids by kernels, on the emulator: in one pass over ids and values."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

import gpureduce
from segment_calls import assert_same, by_kernels, in_place, on_device

EXAMPLES = int(os.environ.get("GPUREDUCE_SEGMENT_EXAMPLES", "60"))
N = 40_000  # each warp of the emulated device gets several strips of 256 rows


def lengths(rng, kind, n):
    """Lengths of segments that have n rows together."""
    most = {"short": 6, "long": 3000, "mixed": 3000, "one": 2 * n}[kind]
    found = rng.integers(0, most, n)
    if kind == "mixed":
        found = np.where(rng.random(n) < 0.9, found % 7, found)
    ends = np.minimum(np.append(np.cumsum(found), n), n)
    return np.diff(ends[: np.searchsorted(ends, n) + 1], prepend=0)


def numbers(rng, dtype, n, kind):
    if np.dtype(dtype).kind in "iu":
        return rng.integers(0, 100, n).astype(dtype)
    values = rng.standard_normal(n)
    if kind == "wide":
        values = values * 2.0 ** rng.integers(-60, 60, n)
    if kind == "changing":
        values = values * 2.0 ** (np.arange(n) // 300 % 3 * 20 - 20)
    if kind == "special":
        values[rng.random(n) < 0.001] = rng.choice([np.inf, -np.inf, np.nan])
    with np.errstate(over="ignore"):
        return values.astype(dtype)


def sums(values, ids, count, **how):
    return gpureduce.segment_sum(values, ids, num_segments=count, device="cpu", **how).value


@given(
    seed=st.integers(0, 2**32 - 1),
    dtype=st.sampled_from(["int8", "int16", "int64", "float16", "float32", "float64"]),
    index=st.sampled_from(["int64", "int32", "uint32", "int16"]),
    n=st.sampled_from([1, 255, 256, 257, 5000, N]),
    segments=st.sampled_from(["short", "long", "mixed", "one"]),
    kind=st.sampled_from(["usual", "wide", "changing", "special"]),
    apart=st.booleans(),
    initial=st.sampled_from([0, 0, 0, 3]),
)
@settings(max_examples=2 * EXAMPLES, deadline=None)
def test_they_have_the_processors_bits(seed, dtype, index, n, segments, kind, apart, initial):
    rng = np.random.default_rng(seed)
    rows = lengths(rng, segments, n)
    most = np.iinfo(index).max
    ids = np.minimum(np.repeat(np.arange(rows.size), rows), most - 9).astype(index)
    values = numbers(rng, dtype, n, kind)
    if apart:
        values = np.repeat(values, 2)[::2]
    count = int(ids[-1]) + 1 + int(rng.integers(0, 5))
    found = by_kernels(values, ids, num_segments=count, sorted=True, initial=initial)
    assert_same(found, sums(values, ids, count, initial=initial))


@pytest.mark.parametrize("shift", [1, 3])
def test_arrays_that_are_not_aligned(shift):
    rng = np.random.default_rng(shift)
    ids = np.sort(rng.integers(0, 700, N))
    values = rng.standard_normal(N).astype(np.float32)
    values, ids = values[shift:], ids[shift:]
    assert_same(in_place(values, ids, num_segments=700, sorted=True), sums(values, ids, 700))


@pytest.mark.parametrize("place", [1, 3, 255, 256, 257, 767, 768, 20_001, N - 1])
def test_the_first_id_that_is_not_in_order_is_named(place):
    values, ids = np.ones(N, np.float32), np.full(N, 7)
    ids[place:] = 6
    ids[min(place + 3000, N - 1) :] = 5
    message = rf"sorted=True, but segment_ids\[{place}\] is \d and segment_ids\[{place - 1}\] is 7"
    for _ in range(3):
        with pytest.raises(ValueError, match=message):
            in_place(values, ids, sorted=True)
    again = np.tile(values, 2), np.concatenate([np.full(N, 7), ids])
    assert_same(by_kernels(*again, num_segments=8), sums(*again, 8))


def test_of_two_kinds_of_wrong_ids_the_first_one_is_named():
    values, ids = np.ones(N, np.float32), np.full(N, 7)
    ids[100], ids[300], ids[35_000:] = 3, 50, 60
    for dtype in (np.float32, np.float64):
        with pytest.raises(ValueError, match=r"sorted=True, but segment_ids\[100\] is 3"):
            in_place(values.astype(dtype), ids, num_segments=50, sorted=True)
    ids[90] = 50
    with pytest.raises(ValueError, match=r"segment_ids\[90\] is 50, which is out of range"):
        in_place(values, ids, num_segments=50, sorted=True)


def test_a_warp_may_have_more_rows_than_an_int_counts():
    n = 2**40  # the same row
    values, ids = as_strided(np.ones(1, np.float32), (n,), (0,)), as_strided([5], (n,), (0,))
    with pytest.raises(ValueError, match=r"segment_ids\[0\] is 5, which is out of range"):
        in_place(values, ids, num_segments=5, sorted=True)


def test_one_id_out_of_order_among_equal_ones():
    values, ids = np.ones(2 * N, np.float32), np.full(2 * N, 7)
    ids[30_003] = 2
    with pytest.raises(ValueError, match=r"segment_ids\[30003\] is 2"):
        in_place(values, ids, sorted=True)
    assert by_kernels(values, ids, num_segments=8)[[2, 7]].tolist() == [1, 2 * N - 1]


def test_nothing_is_written_if_an_id_is_out_of_range():
    values, ids = np.ones(N, np.float32), np.sort(np.arange(N) % 50)
    ids[-1] = 50
    into = np.full(50, 9, np.float32)
    with pytest.raises(ValueError, match=rf"segment_ids\[{N - 1}\] is 50"):
        by_kernels(values, ids, out=into, sorted=True)
    by_kernels(on_device(values), on_device(ids), out=on_device(into), sorted=True, check=False)
    assert (into == 9).all()


def test_sums_go_to_any_places():
    values, ids = np.arange(N, dtype=np.int32), np.sort(np.arange(N) % 90)
    into = np.full((100, 3), -1, np.int64)
    by_kernels(values, ids, out=into[::-1, 1], sorted=True)
    assert_same(into[::-1, 1], sums(values, ids, 100))
    assert (into[:, ::2] == -1).all()


def test_no_passes_are_launched_once_the_ids_are_known_to_be_sorted():
    rng = np.random.default_rng(8)
    ids, values = np.sort(rng.integers(0, 300_000, 70_000)), np.ones(70_000, np.float32)
    found = gpureduce.segment_sum(values, ids, num_segments=300_000, device="emulator")
    assert found.timing.launches == 4
    assert_same(found.value, sums(values, ids, 300_000))
    ids[-1] = 0
    found = gpureduce.segment_sum(values, ids, num_segments=300_000, device="emulator")
    assert found.timing.launches > 20
    assert_same(found.value, sums(values, ids, 300_000))
    ids[-1] = 300_000
    with pytest.raises(ValueError, match=r"segment_ids\[69999\] is 300000"):
        by_kernels(values, ids, num_segments=300_000)
