"""Ids and offsets of sums by segment: checked on the emulated device, as on processors."""

from __future__ import annotations

import contextlib
import time

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

import gpureduce
from cases import meanwhile, run_python
from producers import ByInterface, on_device
from segment_calls import (
    INDEXES,
    assert_same,
    by_host,
    by_kernels,
    each_place,
    in_order,
    in_place,
    random_values,
    segment_by_segment,
)

N = 40_000  # each warp of the emulated device gets several strips of 256 rows


def by_numpy(values, ids=None, **how):
    return by_host(values, ids, strategy="numpy", **how)


@each_place
@pytest.mark.parametrize("index", INDEXES)
def test_any_integer_dtype(call, index):
    rng = np.random.default_rng(15)
    values, ids = rng.standard_normal(120), rng.integers(0, 100, 120)
    expected = segment_by_segment(values, ids, 127)
    assert_same(call(values, ids.astype(index), num_segments=127), expected)
    ordered, offsets = in_order(values, ids, 127)
    assert_same(call(ordered, offsets=offsets.astype(index)), expected)
    out = np.full(100, 7.0)
    for wrong in {100, int(np.iinfo(index).max), int(np.iinfo(index).min)} - {0}:
        ids = np.zeros(500, index)
        ids[[123, 400]] = wrong
        message = rf"segment_ids\[123\] is {wrong}, which is out of range"
        with pytest.raises(ValueError, match=message):
            call(np.ones(500), ids, num_segments=100, out=out)
    assert (out == 7).all()


@pytest.mark.parametrize("call", [by_host, by_numpy, by_kernels, in_place])
@pytest.mark.parametrize("n", [500, 70_000, 200_000])
@pytest.mark.parametrize("columns", [None, 32])
@pytest.mark.parametrize("is_sorted", [False, True])
def test_an_id_out_of_range_is_named_and_nothing_written(call, n, columns, is_sorted):
    n = n // 4 if columns else n
    ids = np.arange(n) % 50
    ids = np.sort(ids) if is_sorted else ids
    shape = [columns] if columns else []
    values, into = np.ones((n, *shape), np.float32), np.full((50, *shape), 7, np.float32)
    every = -3, 50, 2**62
    for number, place in enumerate((0, 1, n // 3, n - 1)):
        for wrong in every if call is in_place else every[number % 2 :: 2]:
            bad = ids.copy()
            bad[[place, n - 1]] = wrong
            allowed = "ids are not negative" if wrong < 0 else "num_segments=50 .*from 0 to 49"
            message = rf"segment_ids\[{place}\] is {wrong}, which is out of range: .*{allowed}"
            with pytest.raises(ValueError, match=message):
                call(values, bad, num_segments=50, out=into)
        if call is in_place:
            how = {"num_segments": 50, "out": on_device(into), "check": False}
            by_kernels(on_device(values), on_device(bad), **how)
        assert (into == 7).all()
    with pytest.raises(ValueError, match=r"num_segments=0 allows no ids|out of range"):
        call(values, ids, num_segments=0)
    assert call(values, ids, num_segments=50, out=into).sum() == values.size


def test_offsets_that_are_wrong():
    values, out = np.ones(9, np.float32), np.full(3, 7, np.float32)
    for offsets, message in [
        ([0, 5, 4, 9], r"offsets must not decrease: offsets\[1\] is 5 and offsets\[2\] is 4"),
        ([1, 4, 5, 9], r"from 0 to the number of rows, 9, but offsets\[0\] is 1"),
        ([0, 4, 5, 8], r"from 0 to the number of rows, 9, but offsets\[3\] is 8"),
        ([0, 4, -5, 9], r"from 0 to the number of rows, 9, but offsets\[2\] is -5"),
    ]:
        numbers = on_device(np.array(offsets))
        with pytest.raises(ValueError, match=message):
            by_kernels(on_device(values), offsets=numbers, out=on_device(out))
        by_kernels(on_device(values), offsets=numbers, out=on_device(out), check=False)
        assert (out == 7).all()
    with pytest.raises(ValueError, match="3 offsets define 2 segments, but num_segments=4"):
        in_place(values, offsets=np.array([0, 1, 9]), num_segments=4)
    with pytest.raises(ValueError, match="offsets is empty: it must have one number more"):
        in_place(values, offsets=np.array([], np.int64))


def test_ids_of_another_number_than_rows_are_refused_before_they_are_searched():
    ids = np.broadcast_to(np.int8(1), 2**40)  # which takes hours to search
    for n in (0, 3):
        for values in (np.ones(n), np.ones((n, 2)), np.empty((n, 0))):
            with pytest.raises(
                ValueError, match=rf"values has {n} rows, but segment_ids {2**40} ids"
            ):
                in_place(values, ids)


@each_place
def test_ids_and_offsets_without_sums_are_checked(call):
    """Of rows without columns, and of no rows."""
    n = 70_000
    ids = np.arange(n) % 50
    for count, values in ((50, np.empty((n, 0))), (60, np.empty((n, 0), np.int8))):
        assert call(values, ids, num_segments=count).shape == (count, 0)
        assert call(values, np.sort(ids), num_segments=count, sorted=True).shape == (count, 0)
        with pytest.raises(ValueError, match=r"sorted=True, but segment_ids\[50\] is 0"):
            call(values, ids, num_segments=count, sorted=True)
        for place, wrong in ((0, count), (4000, -1), (n - 1, 2**62)):
            bad = ids.copy()
            bad[place] = wrong
            message = rf"segment_ids\[{place}\] is {wrong}, which is out of range"
            with pytest.raises(ValueError, match=message):
                call(values, bad, num_segments=count)
    with pytest.raises(ValueError, match=r"segment_ids\[0\] is 0, which is out of range"):
        call(np.empty((3, 0)), np.zeros(3, int), num_segments=0)
    values = np.empty((9, 0))
    assert call(values, offsets=np.array([0, 4, 9])).shape == (2, 0)
    with pytest.raises(ValueError, match=r"must not decrease: offsets\[1\] is 5 and offsets\[2\]"):
        call(values, offsets=np.array([0, 5, 4, 9]))
    for values in (np.empty((0, 0)), np.empty(0), np.empty((0, 2))):
        assert call(values, offsets=np.array([0])).shape == (0, *values.shape[1:])
        for offsets in ([5], [0, 5]):
            with pytest.raises(ValueError, match="offsets must go from 0 to the number of rows, 0"):
                call(values, offsets=np.array(offsets))
        assert call(values, np.empty(0, int), num_segments=3).shape == (3, *values.shape[1:])


def test_ids_without_sums_are_not_checked_where_nothing_waits():
    ids = np.array([7, -2])
    found = in_place(np.empty((2, 0)), ids, num_segments=3, check=False)
    assert found.shape == (3, 0)
    with pytest.raises(ValueError, match=r"segment_ids\[0\] is 7"):
        gpureduce.segment_digits(
            on_device(np.empty((2, 0))), on_device(ids), num_segments=3, device="emulator"
        )


@pytest.mark.parametrize("place", [2**23 - 1, 2**23, 2**23 + 4])
def test_ids_are_searched_in_every_piece(place):
    ids = np.zeros(2**23 + 5, np.int8)
    ids[place] = 9
    module = gpureduce.core.devices.emulator()
    view = module.view(ByInterface(ids), 0)
    assert (view.kind, view.bytes, view.shape, view.steps) == ("i", 1, ids.shape, (1,))
    assert module.largest_id(view) == 9
    with pytest.raises(ValueError, match=rf"segment_ids\[{place}\] is 9"):
        in_place(np.broadcast_to(np.empty((1, 0)), (len(ids), 0)), ids, num_segments=9)


@each_place
def test_the_number_of_segments_is_found(call):
    values = np.arange(5.0)
    for ids in (np.array([3, 0, 0, 3, 1]), np.array([3, 0, 0, 3, 1], np.uint8)):
        assert call(values, ids).tolist() == [3, 4, 0, 3]
    with pytest.raises(ValueError, match=r"segment_ids\[1\] is -1.*not negative"):
        call(values, np.array([3, -1, 0, 3, 1]))
    with pytest.raises(ValueError, match=r"segment_ids\[0\] is -3.*not negative"):
        call(values, np.array([-3, -1, -2, -3, -1]))
    assert call(np.ones(0), np.zeros(0, np.int64)).shape == (0,)


# --- sorted ids -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["i1", "u2", ">i4", "u8"])
@pytest.mark.parametrize("fall", [None, 1, 65535, 65536, -1])
def test_ids_that_are_sorted_but_for_one(dtype, fall):
    """Processors look at them in blocks and by several threads."""
    values = np.random.default_rng(2).standard_normal(200_003)
    ids = (np.arange(len(values)) // 2000 + 1).astype(dtype)
    if fall is not None:
        ids[fall] = 0
    mixed = np.random.default_rng(3).permutation(len(values))
    expected = by_host(values[mixed], ids[mixed], num_segments=102)
    assert_same(by_host(values, ids, num_segments=102), expected)
    assert_same(by_host(values, np.repeat(ids, 2)[::2], num_segments=102), expected)


@pytest.mark.parametrize("place", [1, 3, 255, 256, 257, 767, 768, 20_001, N - 1])
def test_the_first_id_that_is_not_in_order_is_named(place):
    values, ids = np.ones(N, np.float32), np.full(N, 7)
    ids[place:] = 6
    ids[min(place + 3000, N - 1) :] = 5
    message = rf"sorted=True, but segment_ids\[{place}\] is \d and segment_ids\[{place - 1}\] is 7"
    for call in (in_place, in_place, by_kernels, by_host):
        with pytest.raises(ValueError, match=message):
            call(values, ids, sorted=True)
    again = np.tile(values, 2), np.concatenate([np.full(N, 7), ids])
    assert_same(by_kernels(*again, num_segments=8), by_host(*again, num_segments=8))


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


def test_sums_go_to_any_places():
    values, ids = np.arange(N, dtype=np.int32), np.sort(np.arange(N) % 90)
    into = np.full((100, 3), -1, np.int64)
    by_kernels(values, ids, out=into[::-1, 1], sorted=True)
    assert_same(into[::-1, 1], by_host(values, ids, num_segments=100))
    assert (into[:, ::2] == -1).all()
    shifted = in_place(values[3:], ids[3:], num_segments=90, sorted=True)  # not aligned
    assert_same(shifted, by_host(values[3:], ids[3:], num_segments=90))


def test_no_passes_are_launched_once_the_ids_are_known_to_be_sorted():
    rng = np.random.default_rng(8)
    ids, values = np.sort(rng.integers(0, 300_000, 70_000)), np.ones(70_000, np.float32)
    want = by_host(values, ids, num_segments=300_000)
    found = gpureduce.segment_sum(values, ids, num_segments=300_000, device="emulator")
    assert found.timing.launches == 4
    assert_same(found.value, want)
    ids[-1] = 0
    found = gpureduce.segment_sum(values, ids, num_segments=300_000, device="emulator")
    assert found.timing.launches > 20
    assert_same(found.value, by_host(values, ids, num_segments=300_000))


def test_sorted_ids_are_found_and_empty_segments_filled():
    rng = np.random.default_rng(6)
    n = 70_000
    for count in (3, 90_000):
        ids = np.sort(rng.integers(0, count, n))
        ids[n // 2 :] = count - 1  # a long gap, then a long segment
        values = rng.standard_normal(n).astype(np.float32)
        want = by_host(values, ids, num_segments=count)
        for known in (None, True, False):
            assert_same(by_kernels(values, ids, num_segments=count, sorted=known), want)
        ids[-1] = 0
        want = by_host(values, ids, num_segments=count)
        assert_same(by_kernels(values, ids, num_segments=count), want)


LENGTHS = {
    "empty": [0] * 50 + [1],
    "with long ones": [0, 1, 100, 700, 3000],
    "in turns": [1, 600],
    "one shared by all threads": [1],
}


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("columns", [None, 3])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
@pytest.mark.parametrize("lengths", LENGTHS)
def test_segments_one_after_another_by_processors(lengths, dtype, columns, threads, monkeypatch):
    monkeypatch.setenv("GPUREDUCE_THREADS", str(threads))
    rng = np.random.default_rng(len(lengths) + threads)
    counts = rng.choice(LENGTHS[lengths], 9000 if max(LENGTHS[lengths]) < 100 else 400)
    if lengths == "one shared by all threads":
        counts[37] = 2**20 + 5
    ids = np.repeat(np.arange(len(counts)), counts)
    values = random_values(rng, dtype, (len(ids), columns) if columns else len(ids))
    mixed, how = rng.permutation(len(ids)), {"num_segments": len(counts)}
    expected = by_host(values[mixed], ids[mixed], **how)
    spaced = np.empty((2 * len(counts), *values.shape[1:]), expected.dtype)[::2]
    assert_same(by_host(values, ids, out=spaced, **how), expected)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    assert_same(by_host(values, offsets=offsets), expected)
    assert_same(by_host(values[::-1], ids[::-1], **how), expected)
    for k in rng.integers(0, len(counts), 20):
        rows = values[offsets[k] : offsets[k + 1]]
        assert_same(expected[k], segment_by_segment(rows, np.zeros(len(rows), int), 1)[0])


# --- arrays that another thread changes -----------------------------------------------------------


def pairs_that_cancel(spread):
    """Their segments are added up in digits, whose range a pass finds first."""
    rng = np.random.default_rng(spread)
    half = np.ldexp(rng.standard_normal(50_000), rng.integers(-spread, spread, 50_000))
    return np.stack([half, -half], axis=-1).reshape(-1)


WIDE = pairs_that_cancel(1000)
IN_ORDER = np.sort(np.random.default_rng(1).integers(0, 1000, 2**22))
# An array, its new contents, and the sum that runs while they are written.
CHANGED = {
    "values between two passes": (
        WIDE, [pairs_that_cancel(2)],
        lambda values: [(values, np.arange(100_000) // 100)],
    ),
    "ids": (
        np.zeros(50_000, np.int64), [2**61],
        lambda ids: [(np.ones(50_000), ids), (np.where(np.arange(50_000) % 2, 1e300, 1e-300), ids),
                     (np.ones(50_000, np.int64), ids)],
    ),
    "ids of long segments": (
        IN_ORDER, [0, 999, IN_ORDER[::-1], 2**62],
        lambda ids: [(np.random.default_rng(2).standard_normal(len(ids)).astype("f4"), ids),
                     (np.ldexp(1.0, np.arange(len(ids)) % 800 - 400), ids),
                     (np.arange(len(ids)), ids)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", CHANGED)
def test_arrays_that_another_thread_changes_harm_nothing(what, monkeypatch):
    """Sums may be wrong, or an id refused; no other memory is written."""
    monkeypatch.setenv("GPUREDUCE_THREADS", "2")
    right, others, given = CHANGED[what]
    shared = right.copy()
    calls = given(shared)

    def change():
        for other in others:
            shared[:: 7 if what == "ids" else 1] = other
            time.sleep(0.0005)
            shared[:] = right
            time.sleep(0.001)

    end = time.monotonic() + 0.5
    with meanwhile(change):
        while time.monotonic() < end:
            for values, ids in calls:
                with contextlib.suppress(ValueError):
                    gpureduce.segment_sum(values, ids, num_segments=1000, timing=False)
    for values, ids in calls:
        added = np.bincount(ids, values, 1000) if values.dtype.kind == "i" else None
        found = by_host(values, ids, num_segments=1000)
        assert found.shape == (1000,) and (added is None or np.array_equal(found, added))


# Offsets or ids in device memory change between a call's check and its kernels, and between two of
# their reads. A wrong sum or an error about them is right; another address is not.
CHANGING = """
import sys, time
import numpy as np, gpureduce
from cases import meanwhile
from producers import on_device

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
shared, done = states[0].astype(np.int64), 0

def change():
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
end = time.monotonic() + 1
with meanwhile(change):
    while time.monotonic() < end:
        for values in several:
            for call in calls:
                try:
                    call(on_device(values), **where, **how)
                    done += 1
                except ValueError:
                    pass
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
    n, places = 257, set()
    values, ids = on_device(np.ones(n, np.float32)), np.zeros(n, np.int64)
    again = as_strided(ids[-1:], (100_000,), (0,))
    both = np.resize([0, 2**61], again.size)
    end = time.monotonic() + 1
    with meanwhile(lambda: np.copyto(again, both)):
        while time.monotonic() < end:
            try:
                by_kernels(values, on_device(ids), num_segments=1, sorted=True)
            except ValueError as error:
                places.add(str(error).split(" is ")[0])
    assert places <= {f"segment_ids[{n - 1}]"}


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
