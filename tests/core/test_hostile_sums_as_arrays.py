"""Producers that lie, threads that write meanwhile and wrong numbers, for sums that are arrays."""

from __future__ import annotations

import signal
import time

import numpy as np
import pytest

import gpureduce
from cases import broken_off_after
from gpureduce import _emulator, _emulator_traced, _host
from gpureduce.core import dtypes
from gpureduce.core.plan import strategy_of
from producers import ByInterface, OnDevice, on_device

FLOATS = np.arange(1, 11, dtype=np.float32)
ROWS = np.ones((2, 3), np.float32)
IDS = np.zeros(10, np.int64)
LEFT = (8, 2**47 - 4096)  # addresses that no program reads


def whole(array):
    return gpureduce.sum(array, "fast", device="emulator")


def along_axis(array, **how):
    return gpureduce.sum(array, "fast", device="emulator", axis=0, **how)


def by_segment(values, numbers, **how):
    return gpureduce.segment_sum(values, numbers, device="emulator", **how)


LIES = {
    "a whole array": lambda at: whole(ByInterface(FLOATS, data=at)),
    "array": lambda at: along_axis(ByInterface(FLOATS, data=at)),
    "one sum": lambda at: along_axis(ByInterface(FLOATS, data=at), result="device"),
    "out": lambda at: along_axis(ByInterface(ROWS), out=on_device(FLOATS[:3], data=at)),
    "where": lambda at: along_axis(ByInterface(FLOATS), where=on_device(FLOATS > 0, data=at)),
    "values": lambda at: by_segment(ByInterface(FLOATS, data=at), ByInterface(IDS), num_segments=1),
    "ids": lambda at: by_segment(ByInterface(FLOATS), ByInterface(IDS, data=at), num_segments=1),
    "ids without a count": lambda at: by_segment(ByInterface(FLOATS), ByInterface(IDS, data=at)),
    "offsets": lambda at: by_segment(ByInterface(FLOATS), None, offsets=ByInterface(IDS, data=at)),
    "sums by segment": lambda at: by_segment(
        ByInterface(FLOATS), ByInterface(IDS), out=on_device(FLOATS[:1], data=at)
    ),
    "part": lambda at: gpureduce.sum_parts(
        [ByInterface(FLOATS), ByInterface(FLOATS, data=at)], device="emulator"
    ),
}


@pytest.mark.parametrize("what", LIES)
def test_memory_that_is_not_there(what):
    """Of a card, the driver is asked; here, the system. Each array of a call is checked."""
    for address in LEFT:
        with pytest.raises(BufferError, match="the emulator cannot read all of this memory"):
            LIES[what]((address, False))
    assert along_axis(ByInterface(ROWS)).value.to_numpy().tolist() == [2, 2, 2]
    assert whole(ByInterface(FLOATS)).value == 55


@pytest.mark.skipif(
    bool(gpureduce.build_info()["sanitize"]), reason="sanitizers map terabytes of addresses"
)
def test_far_more_elements_than_there_are():
    with pytest.raises(BufferError, match="the emulator cannot read all of this memory"):
        along_axis(ByInterface(FLOATS, shape=(2**36,)))
    with pytest.raises(BufferError, match="the emulator cannot read all of this memory"):
        along_axis(ByInterface(ROWS), out=on_device(FLOATS[:3], strides=(2**40,)))


def rows():
    return gpureduce.sum(ByInterface(ROWS), "fast", axis=1, device="emulator").value


@pytest.mark.parametrize(
    ("name", "value"),
    [("shape", (2**20,)), ("strides", (2**20,)), ("dtype", "complex128"), ("device", 7)],
)
def test_what_a_device_array_describes_cannot_be_changed(name, value):
    found = rows()
    with pytest.raises(AttributeError):
        setattr(found, name, value)
    assert found.to_numpy().tolist() == [3, 3]


WRONG = (-1, 99, 2**30)


@pytest.mark.parametrize("place", [0, 1, 3, 4])
@pytest.mark.parametrize("wrong", [-2, 99])
def test_conversions_of_no_dtype(place, wrong):
    numbers = [0, -1, 1, 0, 0]
    assert _host.how(*numbers)[0] == 0
    numbers[place] = wrong
    with pytest.raises(ValueError, match="no such dtype, place or grouping"):
        _host.how(*numbers)


F64 = dtypes.line_of(np.dtype(np.float64))


@pytest.mark.parametrize("wrong", [-2, 99, 2**30, F64 - 1, F64 + 1, 0])
@pytest.mark.parametrize("which", range(2))
@pytest.mark.parametrize("exactly", [True, False])
def test_the_host_sum_along_axes_checks_its_numbers(which, wrong, exactly):
    """As elements or an accumulator of another width would be read beside them."""
    lines = [F64, F64]
    lines[which] = wrong
    details = (*lines, np.dtype(np.float64), None, None, ((), ()))
    with pytest.raises(ValueError, match=r"no such dtypes|changed"):
        _host.sum_axis(np.ones((3, 4)), (0,), False, exactly, None, details)


@pytest.mark.parametrize("wrong", [-2, 99, 2**30, 1])
@pytest.mark.parametrize("which", range(2))
def test_the_host_sum_by_segment_checks_its_numbers(which, wrong):
    lines = [F64, F64]
    lines[which] = wrong
    with pytest.raises(ValueError, match=r"no such dtypes|changed"):
        _host.sum_segments(np.ones(10), IDS, None, np.zeros(2), *lines, ((), ()))


def test_the_host_sum_by_segment_checks_its_arrays():
    for values, ids, sums in (
        (np.ones(10), IDS.astype(np.float64), np.zeros(2)),
        (np.ones(10, np.float32), IDS, np.zeros(2)),
        (np.ones(10), IDS, np.zeros(2, np.float32)),
    ):
        with pytest.raises(ValueError, match="changed its shape"):
            _host.sum_segments(values, ids, None, sums, F64, F64, ((), ()))


@pytest.mark.parametrize("offsets", [np.array([0.0, 4, 10]), np.array([0, 4, 10], ">i8")])
def test_the_host_sum_by_segment_checks_its_offsets(offsets):
    with pytest.raises(ValueError, match="changed its shape"):
        _host.sum_segments(np.ones(10), None, offsets, np.zeros(2), F64, F64, ((), ()))


def test_sums_are_not_written_over_python_objects():
    """Whose bytes are addresses: each of these crashed."""
    objects, words = np.array([None, None]), np.zeros((2, 75), np.int64)
    with pytest.raises(ValueError, match="changed its shape"):
        _host.sum_segments(np.ones(10), IDS, None, objects, F64, F64, ((), ()))
    with pytest.raises(ValueError, match="expected a contiguous, aligned array"):
        _host.round_digits(words, _host.LOAD_F64, 1, objects)
    request = _emulator.request("f", 8, _host.ACC_F64, True, _host.LOAD_F64, (0, 0), False, axes=2)
    with pytest.raises(TypeError, match="aligned array of numbers"):
        _emulator.run(request, ROWS.T, None, objects)
    assert objects.tolist() == [None, None]


def test_requests_are_for_the_elements_that_they_were_made_for():
    """As C would read elements of another size."""
    how = "f", 4, _host.ACC_F32, False, _host.LOAD_F32, (0.0, 0.0), False
    request = _emulator.request(*how, axes=1)
    narrow, wide = (
        _emulator.view(OnDevice(np.ones((3, 2), dtype)), 0) for dtype in (np.float32, np.float64)
    )
    sums = OnDevice(np.zeros(2, np.float32))
    assert narrow.key != wide.key
    with pytest.raises(ValueError, match="for other elements"):
        _emulator.run(request, wide, None, sums)
    with pytest.raises(ValueError, match="for other elements"):
        _emulator.run(request, np.ones((3, 2)), None, np.zeros(2, np.float32))
    with pytest.raises(TypeError, match="aligned array of numbers"):
        _emulator.run(request, sums, None, sums)
    with pytest.raises(TypeError, match="expected a View"):
        _emulator.run(_emulator.request(*how, segments=2), narrow, None, sums)
    with pytest.raises(TypeError, match="aligned array of numbers"):
        _emulator.run(_emulator.request(*how, segments=2), ROWS, None, ROWS)
    with pytest.raises(ValueError, match="by another module"):
        _emulator_traced.run(request, narrow, None, sums)
    assert _emulator.run(request, narrow, None, sums)[-2:] == (None, None)


@pytest.mark.parametrize(
    "wrong",
    [{"segments": 2, "strategy": 0}, {"strategy": 2**30}, {"segments": 2, "as_digits": True}],
)
@pytest.mark.parametrize("place", [None, 0, 1, 2, 4])
def test_requests_for_no_sums(place, wrong):
    how = ["f", 4, _host.ACC_F32, False, _host.LOAD_F32, (0.0, 0.0), False]
    if place is not None:
        wrong, how[place] = {}, "V" if place == 0 else 99
    with pytest.raises(ValueError, match="no sum of this kind"):
        _emulator.request(*how, **wrong)


@pytest.mark.parametrize("which", ["values", "ids", "sums", "narrow ids", None])
def test_lessons_by_key_read_no_steps(which):
    number = strategy_of("key_atomic").index
    how = "f", 4, _host.ACC_F32, False, _host.LOAD_F32, (0.0, 0.0), False
    request = _emulator.request(*how, segments=2, check=True, strategy=number)
    given = {"values": np.ones(10, np.float32), "ids": IDS.astype(np.uint32),
             "sums": np.zeros(2, np.float32)}  # fmt: skip
    if which == "narrow ids":
        given["ids"] = given["ids"].astype(np.uint8)
    elif which:
        given[which] = given[which][::-1]
    arguments = (request, *given.values())
    if which is None:
        _emulator.run(*arguments)
        assert given["sums"].tolist() == [10, 0]
        return
    with pytest.raises(ValueError, match="shapes that do not match"):
        _emulator.run(*arguments)


def test_new_memory_on_the_emulator_hears_signals():
    """It is filled first, and a handler ran only after that: seconds later, for a gigabyte."""
    handled = []
    before = signal.signal(signal.SIGALRM, lambda *_: handled.append(time.perf_counter()))
    try:
        start = time.perf_counter()
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        _emulator.allocate(1 << 30, 0, 0)
        end = time.perf_counter()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert end - start < 0.15 or handled[0] - start < 0.05 + (end - start) / 2


def test_sums_that_are_read_hear_signals():
    """In the middle of their copy, a handler that raises ends it. Nothing else is copied."""
    held = _emulator.allocate(1 << 28, 0, 0)
    start = time.perf_counter()
    held.read()
    whole = time.perf_counter() - start
    took = broken_off_after(whole / 8, held.read)
    assert took is not None and took < max(whole / 2, 0.15)
    assert len(held.read()) == 1 << 28


def test_sums_that_were_read_can_be_written_to():
    sums = gpureduce.sum(OnDevice(ROWS), axis=0, device="emulator").value
    first = sums.to_numpy()
    first += 1
    assert np.array_equal(first, sums.to_numpy() + 1)


def test_devices_of_new_memory_are_checked():
    for device in (-1, 64, 99):
        with pytest.raises(gpureduce.CudaError, match="InvalidDevice"):
            _emulator.allocate(8, device, 0)
    for nbytes in (-1, 2**62):
        with pytest.raises((ValueError, MemoryError)):
            _emulator.allocate(nbytes, 0, 0)


OF_A_DEVICE = {
    "axis": lambda one: along_axis(one),
    "one sum": lambda one: gpureduce.sum(one, "exact", device="emulator", result="device"),
    "digits": lambda one: gpureduce.digits(one, 0, device="emulator"),
    "segments": lambda one: by_segment(one, OnDevice(IDS[: one.shape[0]], one.device)),
    "all": whole,
}


@pytest.mark.parametrize("what", OF_A_DEVICE)
@pytest.mark.parametrize("rows", [0, 2])
def test_a_device_that_is_not_there(what, rows):
    with pytest.raises(ValueError, match="there is no emulator device 5: there is 1"):
        OF_A_DEVICE[what](OnDevice(ROWS[:rows], 5))


def test_no_sums_whose_strides_are_too_large():
    """The error was that of an int that is too big to convert."""
    none = ByInterface(FLOATS, shape=(3, 0, 2**40, 2**40), strides=(0, 4, 0, 0))
    with pytest.raises(MemoryError, match=r"sums of shape .* do not fit into memory"):
        along_axis(none)


@pytest.mark.parametrize("dtype", ["int64", "uint64", "int32", "float32", "complex64"])
def test_as_many_dimensions_as_numpy_has(dtype):
    array = np.arange(3 * 2**4).reshape((1,) * 30 + (3,) + (1,) * 29 + (2,) * 4).astype(dtype)
    wide = "complex128" if dtype == "complex64" else "float64"
    mask = np.arange(array.size).reshape(array.shape) % 3 > 0
    for axis in (0, 30, 63, (30, 61), (60, 61, 62, 63), tuple(range(64)), ()):
        for how in ({}, {"keepdims": True}, {"where": mask}, {"initial": 2}):
            for strategy in ("exact", "cpu"):
                found = gpureduce.sum(array, strategy, wide, axis=axis, **how).value
                expected = np.sum(array, axis=axis, dtype=wide, **how)
                assert found.shape == expected.shape and np.array_equal(found, expected)
    empty = np.ones((2,) * 9 + (0,) + (2,) * 20 + (1,) * 34, dtype)
    found = gpureduce.sum(empty, "exact", wide, axis=tuple(range(9, 64)), initial=2).value
    assert found.shape == (2,) * 9 and (found == 2).all()
