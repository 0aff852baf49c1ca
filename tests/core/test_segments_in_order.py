"""Processors' sums of segments that lie one after another: with offsets, or with sorted ids."""

from __future__ import annotations

import contextlib
import threading
import time

import numpy as np
import pytest
from test_segments import assert_same, segment_by_segment, segment_sum

import gpureduce

LENGTHS = {
    "short": [0, 1, 2, 5],
    "empty": [0] * 50 + [1],
    "with long ones": [0, 1, 100, 700, 3000],
    "in turns": [1, 600],
    "one shared by all threads": [1],
}


def numbers_of(kind, rng, shape):
    """float64 numbers of few exponents, of many, or that cancel; or other types."""
    found = rng.standard_normal(shape)
    if kind == "wide":
        found *= 2.0 ** rng.integers(-400, 400, shape)
    if kind == "cancelling":
        found[1::2] = -found[: len(found) - 1 : 2] * (1 - 2.0**-52)
        found *= 2.0 ** rng.integers(0, 2, shape) * 1e200
        found[::7] *= 1e-250
    if kind == "int64":
        return rng.integers(-(2**62), 2**62, shape)
    return found.astype("float32") if kind == "float32" else found


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("columns", [1, 3])
@pytest.mark.parametrize("kind", ["narrow", "wide", "cancelling", "float32", "int64"])
@pytest.mark.parametrize("lengths", LENGTHS)
def test_order_changes_no_bit(lengths, kind, columns, threads, monkeypatch):
    monkeypatch.setenv("GPUREDUCE_THREADS", str(threads))
    rng = np.random.default_rng(len(lengths) + columns)
    counts = rng.choice(LENGTHS[lengths], 9000 if max(LENGTHS[lengths]) < 100 else 400)
    if lengths == "one shared by all threads":
        counts[37] = 2**20 + 5
    ids = np.repeat(np.arange(len(counts)), counts)
    values = numbers_of(kind, rng, (len(ids), columns)[: 1 + (columns > 1)])
    offsets = np.concatenate([[0], np.cumsum(counts)])
    mixed = rng.permutation(len(ids))
    expected = segment_sum(values[mixed], ids[mixed], num_segments=len(counts))
    spaced = np.empty((2 * len(counts), *values.shape[1:]), expected.dtype)[::2]
    assert_same(segment_sum(values, ids, num_segments=len(counts)), expected)
    assert_same(segment_sum(values, ids, num_segments=len(counts), out=spaced), expected)
    assert_same(gpureduce.segment_sum(values, offsets=offsets).value, expected)
    assert_same(segment_sum(values[::-1], ids[::-1], num_segments=len(counts)), expected)
    if kind == "int64":
        added = np.zeros_like(expected)
        np.add.at(added, ids, values)
        assert_same(added, expected)
    for k in rng.integers(0, len(counts), 20):
        rows = values[offsets[k] : offsets[k + 1]]
        assert_same(expected[k], segment_by_segment(rows, np.zeros(len(rows), int), 1)[0])


@pytest.mark.parametrize("dtype", ["i1", "u2", ">i4", "u8"])
@pytest.mark.parametrize("fall", [None, 1, 65535, 65536, -1])
def test_ids_that_are_sorted_but_for_one(dtype, fall):
    """They are looked at in blocks and by several threads."""
    values = np.random.default_rng(2).standard_normal(200_003)
    ids = (np.arange(len(values)) // 2000 + 1).astype(dtype)
    if fall is not None:
        ids[fall] = 0
    mixed = np.random.default_rng(3).permutation(len(values))
    expected = segment_sum(values[mixed], ids[mixed], num_segments=102)
    assert_same(segment_sum(values, ids, num_segments=102), expected)
    assert_same(segment_sum(values, np.repeat(ids, 2)[::2], num_segments=102), expected)


def test_sorted_ids_that_are_no_segments():
    ids, out = np.arange(100_000) // 10, np.full(10_000, 7.0)
    ids[-25:] = 10_000
    with pytest.raises(ValueError, match=r"segment_ids\[99975\] is 10000"):
        segment_sum(np.ones(len(ids)), ids, num_segments=10_000, out=out)
    ids[-25:], ids[0] = 9999, -1
    with pytest.raises(ValueError, match=r"segment_ids\[0\] is -1"):
        segment_sum(np.ones(len(ids)), ids, num_segments=10_000, out=out)
    large = np.full(600, 2**63 + 1, np.uint64)
    with pytest.raises(ValueError, match=r"segment_ids\[0\] is 9223372036854775809"):
        segment_sum(np.ones(600), large, num_segments=10_000, out=out)
    assert np.all(out == 7)


def test_long_segments_among_ids_that_another_thread_changes(monkeypatch):
    """Tasks may all find the same long segment. Sums may be wrong; other memory stays as it is."""
    monkeypatch.setenv("GPUREDUCE_THREADS", "2")
    rng, rows, stop = np.random.default_rng(1), 2**23, threading.Event()
    kinds = [numbers_of(kind, rng, rows) for kind in ("float32", "wide", "int64")]
    in_order = np.sort(rng.integers(0, 1000, rows))
    ids = in_order.copy()

    def change():
        while not stop.is_set():
            for others in (0, 999, in_order[::-1], 2**62):
                ids[:] = others
                time.sleep(0.0005)
                ids[:] = in_order
                time.sleep(0.002)

    thread = threading.Thread(target=change)
    thread.start()
    end = time.monotonic() + 2
    while time.monotonic() < end:
        for values in kinds:
            with contextlib.suppress(ValueError):
                segment_sum(values, ids, num_segments=1000)
    stop.set()
    thread.join()
    assert_same(
        segment_sum(kinds[2], in_order),
        np.add.reduceat(kinds[2], np.searchsorted(in_order, range(1000))),
    )
