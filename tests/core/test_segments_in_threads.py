"""Sums by segment of host arrays by many threads: the same bits, signals, memory."""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
import time

import ml_dtypes
import numpy as np
import pytest

import gpureduce
from cases import broken_off_after, run_python
from segment_calls import on_device


def segment_sum(values, *arguments, **keywords):
    return gpureduce.segment_sum(values, *arguments, **keywords).value


THREADS = """
import numpy as np, gpureduce, hashlib
from exact_cases import short_sums
rng = np.random.default_rng(5)
told = hashlib.sha256()
for dtype in ("float32", "float64"):
    rows = short_sums(rng, 9001, dtype)
    told.update(gpureduce.segment_sum(rows.reshape(-1), np.arange(rows.size) // 4).value)
for dtype in ("float16", "float32", "float64", "int32", "complex128"):
    for spread in (3, 280):
        values = rng.standard_normal(300_000) * 2.0 ** rng.integers(-spread, spread, 300_000)
        with np.errstate(over="ignore"):
            values = values.astype(dtype) if dtype != "int32" else rng.integers(-9, 9, 300_000)
        for count in (3, 2000, 400_000):
            ids = rng.integers(0, count, values.size)
            told.update(gpureduce.segment_sum(values, ids, num_segments=count).value.tobytes())
            rows = values.reshape(-1, 3)
            told.update(gpureduce.segment_sum(rows, ids[: len(rows)], num_segments=count).value)
            offsets = np.searchsorted(np.sort(ids), np.arange(count + 1))
            told.update(gpureduce.segment_sum(values, offsets=offsets).value)
values, ids = rng.standard_normal(30_011).astype("f4"), rng.integers(0, 100, 30_011)
for kind in ("i1", "u1", "i2", "u2", "i4", "u4", ">i4", "i8", "u8"):
    told.update(gpureduce.segment_sum(values, ids.astype(kind)).value)
    told.update(gpureduce.segment_sum(values[1:], ids.astype(kind)[:-1]).value)
    for bad in (0, 30_010):
        wrong = ids.astype(kind)
        wrong[bad] = 100 + bad % 2 if "u" in kind else -1
        try:
            gpureduce.segment_sum(values, wrong, num_segments=100)
        except ValueError as error:
            told.update(str(error).encode())
print(told.hexdigest())
"""


def test_the_number_of_threads_and_the_instruction_set_change_no_bit():
    ways = [{"GPUREDUCE_THREADS": n} for n in ("1", "2", "5")]
    ways += [{"GPUREDUCE_SIMD": name} for name in ("baseline", "avx2")]
    assert len({run_python(THREADS, **way) for way in ways}) == 1


FIRST_BAD = """
import numpy as np, gpureduce
chunk = 2**13
values, ids = np.ones(40 * chunk, DTYPE), np.zeros(40 * chunk, int)
values[chunk - 6000 : chunk - 100] = 2.0**100
ids[[chunk - 50, chunk]] = 9
try:
    gpureduce.segment_sum(values, ids, num_segments=1)
except ValueError as error:
    print(error)
"""


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_first_bad_id_is_named_where_a_pass_is_broken_off(dtype):
    """The first thread meets too many outliers before it, while the second finds the next one."""
    code = FIRST_BAD.replace("DTYPE", repr(dtype))
    assert f"segment_ids[{2**13 - 50}] is 9" in run_python(code, GPUREDUCE_THREADS="2")


@pytest.mark.parametrize("spread", [False, True])
@pytest.mark.parametrize("offsets", [False, True])
def test_interrupts(offsets, spread):
    n = 1 << 32
    one = np.array([1e300, 1e-300]) if spread else np.array([1.0, 2.0])
    values = np.broadcast_to(one, (n // 2, 2))
    if offsets:
        segments = {"offsets": np.arange(0, n // 2 + 1, 1 << 8)}
    else:
        segments = {"segment_ids": np.broadcast_to(np.int8(0), n // 2), "num_segments": 5}
    took = broken_off_after(0.5, lambda: gpureduce.segment_sum(values, **segments))
    assert took is not None and took < 0.5 + 0.3 + 0.5  # a busy machine
    assert segment_sum([1.5, 2.5], [0, 0]).tolist() == [4.0]


def test_threads_at_once():
    rng = np.random.default_rng(1)
    values, ids = rng.standard_normal(100_000), rng.integers(0, 1000, 100_000)
    expected = segment_sum(values, ids).tobytes()
    wrong = []

    def work():
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            wrong.extend([1] * (segment_sum(values, ids).tobytes() != expected))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_ids_that_another_thread_changes_harm_nothing():
    ids, stop = np.zeros(50_000, np.int64), []

    def change():
        while not stop:
            ids[::7] = 2**61
            ids[::7] = 0

    thread = threading.Thread(target=change)
    thread.start()
    values = np.ones(50_000)
    wide = np.where(np.arange(50_000) % 2, 1e300, 1e-300)
    for _ in range(200):
        for some in (values, wide, values.astype(np.int64)):
            with contextlib.suppress(ValueError):
                segment_sum(some, ids, num_segments=3)
    stop.append(True)
    thread.join()


def test_no_reference_is_kept():
    values, ids, out = np.ones(10), np.zeros(10, np.int64), np.zeros(1)
    offsets = np.array([0, 10])
    bad = ids - 1

    def call():
        gpureduce.segment_sum(values, ids, out=out)
        gpureduce.segment_sum(values, offsets=offsets, out=out, initial=3)
        with pytest.raises(ValueError, match="out of range"):
            gpureduce.segment_sum(values, bad, out=out)

    call()
    gc.collect()
    watched = [values, ids, out, offsets, bad, out.dtype, values.dtype]
    before = [sys.getrefcount(x) for x in watched]
    for _ in range(100):
        call()
    gc.collect()
    after = [sys.getrefcount(x) for x in watched]
    assert all(abs(a - b) < 20 for a, b in zip(after, before, strict=True))


def test_bfloat16_without_its_name():
    values = np.array([1, 2, 3], ml_dtypes.bfloat16)
    found = segment_sum(values, [0, 1, 0])
    assert found.dtype == ml_dtypes.bfloat16 and found.tolist() == [4, 2]


# Offsets or ids in device memory change between a call's check and its kernels, and between two of
# their reads. A wrong sum or an error about them is right; another address is not.
CHANGING = """
import sys, threading, time
import numpy as np, gpureduce
from producers import ByInterface

kind, n, count = sys.argv[1], 1 << 17, 300
even = np.arange(count + 1) * (n // count)
even[-1] = n
two = np.where((even > 0) & (even < n), n // 2, even)  # long ones
in_order = np.repeat(np.arange(count), np.diff(even))
every, rng = np.arange(n), np.random.default_rng(1)
runs = every // 512 * (count // 256)  # with empty segments between them
if kind == "offsets":
    odd = np.arange(count + 1) % 2
    states = [even, np.where(odd, n, 0), even, np.where(odd, 2**61, 5), two, even[::-1], two,
              np.full(count + 1, -(2**40))]
elif kind == "ids":
    states = [in_order, np.where(every % 7, 3, 2**61), rng.permutation(in_order), np.full(n, -1),
              in_order, in_order[::-1]]
else:  # the last row of each run goes to the next one, and back
    states = [runs, np.where(every % 512 == 511, (every // 512 + 1) * (count // 256), runs)]
    states[1][-1] = count - 1
shared, stop = states[0].astype(np.int64), threading.Event()

def on_device(array):
    return ByInterface(array, data=(array.ctypes.data, False))

def change():
    while not stop.is_set():
        for state in states:
            shared[:] = state
            time.sleep(0.0003 if state is states[0] else 0)

how = {"device": "emulator"}
where = {"offsets" if kind == "offsets" else "segment_ids": on_device(shared)}
if kind != "offsets":
    how["num_segments"] = count
several = [np.ones(n, np.float32), np.ones(n, np.int32), np.ones(n), np.ones((n, 3))]
if kind == "ids":
    several.append(np.ones((n, 16)))  # rows that are put in order
for values in several[2:]:
    values[::5], values[::7] = 1e300, 1e-300
calls = [gpureduce.segment_sum, lambda *a, **k: gpureduce.segment_sum(*a, **k, strategy="fast"),
         lambda *a, **k: gpureduce.segment_sum(*a, **k, check=False)] + [gpureduce.segment_digits]
thread, done = threading.Thread(target=change), 0
thread.start()
end = time.monotonic() + 4
try:
    while time.monotonic() < end:
        for values in several:
            for call in calls:
                try:
                    call(on_device(values), **where, **how)
                    done += 1
                except ValueError:
                    pass
finally:
    stop.set()
    thread.join()
shared[:] = states[0]
found = gpureduce.segment_sum(on_device(several[0]), **where, **how).value.to_numpy()
want = np.diff(even) if kind == "offsets" else np.bincount(shared, minlength=count)
assert np.array_equal(found, want), found
print(done)
"""


@pytest.mark.parametrize("kind", ["offsets", "ids", "runs"])
def test_numbers_on_a_device_that_another_thread_changes(kind):
    assert int(run_python(CHANGING, kind)) > 0


def test_an_error_names_an_id_that_there_is():
    """The last id stands for rows that a warp lacks after it: it is read several times."""
    n, stop, places = 257, threading.Event(), set()
    values, ids = on_device(np.ones(n, np.float32)), np.zeros(n, np.int64)
    again = np.lib.stride_tricks.as_strided(ids[-1:], (100_000,), (0,))
    both = np.resize([0, 2**61], again.size)

    def change():
        while not stop.is_set():
            np.copyto(again, both)

    thread = threading.Thread(target=change)
    thread.start()
    end = time.monotonic() + 1
    try:
        while time.monotonic() < end:
            try:
                gpureduce.segment_sum(
                    values, on_device(ids), num_segments=1, sorted=True, device="emulator"
                )
            except ValueError as error:
                places.add(str(error).split(" is ")[0])
    finally:
        stop.set()
        thread.join()
    assert places <= {f"segment_ids[{n - 1}]"}
