"""Host arrays that several devices add up, here the processors and emulated ones."""

from __future__ import annotations

import concurrent.futures
import itertools
import threading

import numpy as np
import pytest

import gpureduce
from cases import array_of, broken_off_after, run_python, same_bits
from gpureduce.core import on_device, on_several
from gpureduce.core.plan import Arguments, resolve, strategy_of
from producers import OnDevice

LISTS = [
    ["emulator:0", "emulator:1"],
    "emulator:*",
    ("cpu", "emulator:2"),
    ["cpu", "emulator:*"],
    ["emulator:3"],
    ["cpu"],
]


@pytest.fixture(autouse=True)
def small_slabs(monkeypatch, four_devices):
    """Arrays of some hundred kilobytes keep four devices busy."""
    monkeypatch.setattr(on_several, "_rates", {})
    monkeypatch.setattr(on_several, "_alone", {})
    monkeypatch.setattr(on_several, "_LEAST_BYTES", 1 << 12)
    monkeypatch.setattr(on_several, "_EMULATED_SLAB_BYTES", 1 << 15)


@pytest.mark.parametrize("device", LISTS)
@pytest.mark.parametrize(
    "dtype",
    ["float16", "float32", "float64", "int32", "uint64", "complex64", "complex128"],
)
def test_sums_are_those_of_one_device(device, dtype):
    array = array_of(dtype, 50_001)
    whole = gpureduce.sum(array).value
    for _ in range(3):
        result = gpureduce.sum(array, device=device)
        assert same_bits(result.value, whole) and result.timing.n == array.size
        assert 0 < result.timing.kernel_ms <= result.timing.total_ms
        assert same_bits(gpureduce.sum(array, device=device, timing=False).value, whole)
    square = array[:50_000].reshape(200, 250)
    for some in (square, square.T, square[::2], square[:, ::2], array[::-3], array[:0], array[:7]):
        assert same_bits(gpureduce.sum(some, device=device).value, gpureduce.sum(some).value)


def test_the_timing_names_the_devices():
    timing = gpureduce.sum(
        array_of("int32", 100_000), device=["cpu", "emulator:1", "emulator:3"]
    ).timing
    assert timing.backend == "cpu+emulator" and timing.device == "cpu + 2 x gpureduce emulator"
    assert timing.strategy.startswith("cpu+") and timing.source == "perf_counter"
    few = gpureduce.sum(array_of("int32", 10), device=["emulator:1", "emulator:3"]).timing
    assert few.device == "gpureduce emulator", "a device for a few elements is not worth its thread"


def test_other_strategies_give_the_same_bits_each_time():
    array = array_of("float32", 100_000)
    for strategy in ("fast", "warp_shfl", "last_block"):
        found = {
            gpureduce.sum(array, strategy, device="emulator:*").value.tobytes() for _ in range(5)
        }
        assert len(found) == 1
        np.testing.assert_allclose(
            np.frombuffer(found.pop(), np.float32)[0], array.sum(), rtol=1e-4
        )
    halves = np.ones(40_000, np.float16)
    halves[0] = 2048
    assert gpureduce.sum(halves, "fast", device="emulator:*").value == np.float16(42047)


def test_casts():
    array = array_of("int32", 60_000)
    for dtype in ("float32", "float64", "int32", "complex128"):
        wanted = gpureduce.sum(array, dtype=dtype).value
        assert same_bits(
            gpureduce.sum(array, dtype=dtype, device=["cpu", "emulator:*"]).value, wanted
        )


@pytest.mark.parametrize("quicker", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_cards_that_slow_the_processors_down_are_left_out(monkeypatch, dtype, quicker):
    monkeypatch.setattr(on_several, "_alone", {})
    monkeypatch.setattr(on_several, "_JUDGED_BYTES", 1 << 17)
    times = []

    def seconds(work):
        work()
        return times.pop(0) if times else 1.0

    monkeypatch.setattr(on_several, "_seconds", seconds)

    small, large = array_of(dtype, 10_000), array_of(dtype, 100_000)

    def devices(array):
        result = gpureduce.sum(array, device=["cpu", "emulator:0", "emulator:1"])
        assert same_bits(result.value, gpureduce.sum(array).value) and not times
        return result.timing.device

    alone, every = "cpu", "cpu + 2 x gpureduce emulator"
    assert devices(small) == every
    for array, is_quicker in ((large, quicker), (np.tile(large, 8), not quicker)):
        # The processors take a quarter alone, then all take the rest, in as many seconds.
        times[:] = [1.0, 2.9] if is_quicker else [1.0, 2.8]
        assert devices(array) == every, "the first such sum measures both"
        assert not times
        for other in (array, small):
            assert devices(other) == (alone if is_quicker else every)


def test_slabs_follow_the_rates():
    array = np.ones(1 << 20, np.int32)
    on_several.start_rates([None, gpureduce.devices()[-1]], [3.0, 1.0])
    members = [on_several._Member(None, None), on_several._Member(gpureduce.devices()[-1], None)]
    request = resolve(Arguments("fast"), strategy_of("fast"), array.dtype)
    job = on_several._Job(request, array, members)
    first = [end - begin for begin, end in job._first]
    assert first[0] == pytest.approx(0.75 * 0.75 * array.size, rel=0.01), "of its fair share"
    covered = sorted([*job._first, *iter(lambda: job._next(1), None)])
    assert covered[0][0] == 0 and covered[-1][1] == array.size
    assert all(a[1] == b[0] for a, b in itertools.pairwise(covered))


WRONG = [
    ({"device": []}, ValueError, "device must name at least one device, and each device once, not"),
    ({"device": ["cpu", "cpu"]}, ValueError, "each device once"),
    ({"device": ["emulator:0", "emulator:*"]}, ValueError, "each device once"),
    ({"device": ["emulator:9"]}, ValueError, "there is no device 'emulator:9'"),
    ({"device": ["gpu"]}, ValueError, "device must be None, 'cpu', 'cuda', .*not 'gpu'"),
    ({"device": [None]}, ValueError, "device must be None, 'cpu'"),
    ({"device": ["cpu", "emulator:0"], "strategy": "fast"}, ValueError,
     "'fast' cannot share an array between the CPU and GPUs"),
    ({"device": "emulator:*", "strategy": "cpu"}, ValueError, "cpu runs on the CPU"),
    ({"device": "emulator:*", "stream": 1}, ValueError, "stream is for arrays on a GPU"),
    ({"device": "emulator:*", "axis": 0}, ValueError, "a sum runs on one device"),
]  # fmt: skip


@pytest.mark.parametrize(("how", "kind", "text"), WRONG)
def test_errors_say_what_is_wrong(how, kind, text):
    with pytest.raises(kind, match=text):
        gpureduce.sum(np.ones(100_000), **how)


def test_arrays_on_a_gpu_stay_there():
    with pytest.raises(TypeError, match=r"OnDevice is on one GPU .* gpureduce.sum_parts sums"):
        gpureduce.sum(OnDevice(np.ones(10)), device="emulator:*")


def test_an_error_names_the_device_and_stops_the_others(monkeypatch):
    array, add, taken = np.ones(1 << 20, np.int32), on_device.add, []
    failed = threading.Event()

    def fails(request, part, device, into):
        taken.append(device.id)
        if device.id == "emulator:2":
            failed.set()
            raise gpureduce.CudaError("it fell off the bus", "cudaErrorUnknown")
        assert failed.wait(60)
        return add(request, part, device, into)

    with monkeypatch.context() as patch:
        patch.setattr(on_device, "add", fails)
        with pytest.raises(gpureduce.CudaError, match="on emulator:2: it fell off the bus") as kept:
            gpureduce.sum(array, device="emulator:*")
    assert kept.value.name == "cudaErrorUnknown"
    assert len(taken) < 128, "the other devices went on to the end"
    assert gpureduce.sum(array, device="emulator:*").value == array.size


@pytest.mark.parametrize("device", [["cpu", "emulator:*"], "emulator:*"])
def test_a_signal_breaks_it_off_and_the_next_one_works(device):
    array = np.zeros(2**30, np.int32)  # untouched pages cost no memory
    assert broken_off_after(0.02, lambda: gpureduce.sum(array, device=device)) is not None
    assert not any("work" in thread.name for thread in threading.enumerate())
    ones = np.ones(100_000, np.float32)
    assert gpureduce.sum(ones, device=device).value == ones.size


def test_the_schedule_of_the_emulator_holds_on_all_devices():
    ints = array_of("int32", 50_000)
    with gpureduce.emulator.schedule("lockstep"):
        assert gpureduce.sum(ints, "sequential", device="emulator:*").value == ints.sum()


def test_many_threads():
    array = array_of("float32", 40_000)
    whole = gpureduce.sum(array).value

    def work(_):
        return gpureduce.sum(array, device=["cpu", "emulator:*"]).value

    with concurrent.futures.ThreadPoolExecutor(64) as pool:
        assert all(same_bits(value, whole) for value in pool.map(work, range(192)))


RAISING = """
import sys
import numpy as np
import gpureduce
from gpureduce.core import on_several

class Raised(BaseException):
    pass

def raising_at(place):
    def trace(frame, event, _):
        nonlocal place
        starts = frame.f_code.co_name in ("_run", "_start")
        if not starts and not frame.f_code.co_filename.endswith("threading.py"):
            return None
        place -= event == "line"
        if place < 0:
            raise Raised
        return trace
    return trace

on_several._LEAST_BYTES = 1 << 10
array, before = np.ones(4096, np.float32), ValueError("of the caller")
for place in range(1000):
    try:
        try:
            raise before
        except ValueError:
            sys.settrace(raising_at(place))
            gpureduce.sum(array, device=["cpu", "emulator:1", "emulator:2"])
            break
    except Raised:
        pass
    finally:
        sys.settrace(None)
    assert gpureduce.sum(array, device=["cpu", "emulator:1"]) == 4096
assert place > 5
"""


def test_what_a_signal_handler_raises_while_threads_start():
    """It may raise at any line: `threading` then raised another exception, or waited for ever."""
    run_python(RAISING, timeout=60, GPUREDUCE_EMULATED_DEVICES="3")
