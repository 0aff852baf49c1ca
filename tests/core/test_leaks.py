"""Calls that succeed, and calls that fail, keep no reference and no memory."""

from __future__ import annotations

import contextlib
import gc
import pickle
import sys

import ml_dtypes
import numpy as np
import pytest

import gpureduce
from gpureduce import _host
from gpureduce.core import devices, gpu_arrays, summation
from producers import ByExchange, ByInterface, OnDevice

HOST = np.arange(1000)
FLOATS, HALVES = np.ones(100, np.float32), np.ones(100, ml_dtypes.bfloat16)
WIDE, IDS, OFFSETS = np.ones(9, np.longdouble), np.zeros(100, np.int64), np.array([0, 100])
BAD, OUT = IDS - 1, np.zeros(1, np.float32)
THERE, OTHER = ByExchange(FLOATS), ByInterface(FLOATS.astype(np.float16))
PART = OnDevice(FLOATS)


def one_call(array, timing, dtype):
    return gpu_arrays.by_one_call(array, "fast", dtype, None, timing)


CALLS = {
    **{f"sum by {name}": lambda name=name: gpureduce.sum(HOST, name)
       for name in ("sequential", "last_block", "cpu", "exact")},
    "a refused block": lambda: gpureduce.sum(HOST, "sequential", block=33),
    "the shortest way": lambda: [
        _host.sum_array(array, exactly, made)
        for array in (FLOATS, HALVES, WIDE)
        for exactly, made in ((True, None), (False, summation._fields_on_host))
    ],
    "one call": lambda: [
        one_call(array, timing, dtype)
        for array in (THERE, OTHER, PART) for timing in (True, False) for dtype in (None, "f4")
    ],
    "a time that is read": lambda: gpureduce.sum(THERE, "fast").timing.kernel_ms,
    "a time that is not": lambda: gpureduce.sum(THERE, "fast"),
    "a pickled time": lambda: pickle.dumps(gpureduce.sum(THERE, "fast").timing),
    "axis": lambda: gpureduce.sum(HOST.reshape(10, 100), axis=0),
    "segments": lambda: gpureduce.segment_sum(FLOATS, IDS, out=OUT),
    "offsets": lambda: gpureduce.segment_sum(FLOATS, offsets=OFFSETS, out=OUT, initial=3),
    "wrong ids": lambda: gpureduce.segment_sum(FLOATS, BAD, out=OUT),
    "parts": lambda: gpureduce.sum_parts([PART, PART], device="emulator"),
}  # fmt: skip
WATCHED = [HOST, FLOATS, HALVES, WIDE, IDS, OFFSETS, BAD, OUT, THERE, OTHER, PART, FLOATS.dtype]


@pytest.mark.parametrize("name", CALLS)
def test_nothing_is_kept(name, monkeypatch):
    monkeypatch.setattr(gpu_arrays, "_module", devices.emulator)

    def call(times):
        for _ in range(times):
            with contextlib.suppress(ValueError):
                CALLS[name]()
        gc.collect()

    call(100)
    live = gpureduce.emulator.live_bytes()
    before, grown = [sys.getrefcount(one) for one in WATCHED], [120]
    # What a call keeps, it keeps every time. Caches, and free-threaded Python's allocator, settle.
    while min(grown) >= 120 and len(grown) < 6:
        blocks = sys.getallocatedblocks()
        call(200)
        grown.append(sys.getallocatedblocks() - blocks)
    after = [sys.getrefcount(one) for one in WATCHED]
    assert all(abs(a - b) < 20 for a, b in zip(after, before, strict=True))
    assert min(grown) < 120, grown
    assert gpureduce.emulator.live_bytes() == live
