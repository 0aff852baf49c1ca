"""Many threads that call every public function at once, with and without a GIL."""

from __future__ import annotations

import concurrent.futures
import inspect
import random
import shutil
import sys
import threading

import numpy as np
import pytest

import gpureduce
from cases import run_python
from gpureduce import exact
from gpureduce.core import running

THREADS = 64
FLOATS = np.random.default_rng(7).standard_normal(3000).astype(np.float32)
COMPLEX = FLOATS.view(np.complex64)
INTEGERS = np.arange(-1000, 2000, dtype=np.int16)
IDS = np.arange(FLOATS.size) % 17
RACY = "missing_barrier"
SHARED = gpureduce.Accumulator("float32")
KERNEL = """
template <typename In, typename Acc>
__global__ void one_thread(In in, Acc *out, size_t n)
{
    Acc sum = 0;
    size_t first = (size_t)blockIdx.x * blockDim.x, end = first + blockDim.x;
    for (size_t i = first; threadIdx.x == 0 && i < end && i < n; i++)
        sum += Acc(in[i]);
    if (threadIdx.x == 0)
        out[blockIdx.x] = sum;
}
"""


def _value(result: gpureduce.SumResult) -> bytes:
    return np.asarray(result.value).tobytes()


def _accumulated() -> bytes:
    total = gpureduce.Accumulator("float32")
    for piece in np.array_split(FLOATS, 7):
        total += piece
    return bytes(memoryview(total.to_digits())) + np.asarray(total.value()).tobytes()


def _add_to_shared() -> None:
    SHARED.add(FLOATS)
    assert SHARED.count % FLOATS.size == 0 and SHARED.count >= FLOATS.size
    SHARED.copy().value()


def _schedules() -> bytes:
    with gpureduce.emulator.schedule("random", seed=3):
        return _value(gpureduce.sum(INTEGERS, "sequential", device="emulator"))


# Each call must return the same as in one thread.
CALLS = {
    "sum": lambda: [
        _value(gpureduce.sum(FLOATS)), _value(gpureduce.sum(INTEGERS)),
        _value(gpureduce.sum(COMPLEX)),
        _value(gpureduce.sum(FLOATS.reshape(50, 60), axis=0)),
        _value(gpureduce.sum(FLOATS, "cpu", timing=False)),
    ],
    "sum on the emulator": lambda: [
        _value(gpureduce.sum(FLOATS, name, device="emulator")) for name in ("warp_shfl", "exact")
    ],
    "timing": lambda: gpureduce.sum(INTEGERS, "first_add", device="emulator").timing.launches,
    "cumsum": lambda: [
        _value(gpureduce.cumsum(FLOATS, name, device="emulator"))
        for name in ("exact", "fast", "scan_look_back")
    ],
    "sum_parts": lambda: _value(gpureduce.sum_parts([FLOATS[:1000], FLOATS[1000:]])),
    "segment_sum": lambda: _value(gpureduce.segment_sum(FLOATS, IDS)),
    "segment_digits": lambda: gpureduce.segment_digits(FLOATS, IDS, num_segments=17).tobytes(),
    "digits": lambda: gpureduce.digits(FLOATS).tobytes(),
    "from_digits": lambda: np.asarray(gpureduce.from_digits(gpureduce.digits(FLOATS))).tobytes(),
    "Accumulator": _accumulated,
    "one Accumulator for all": _add_to_shared,
    "error_bound": lambda: gpureduce.error_bound(gpureduce.sum(FLOATS, "cpu"), 3000.0),
    "integrate": lambda: float(gpureduce.integrate("pi", n=1000).value),
    "integrands": gpureduce.integrands,
    "trapezoid": lambda: _value(gpureduce.trapezoid(FLOATS, dx=0.5)),
    "strategies": gpureduce.strategies,
    "source": lambda: gpureduce.source("tiles").text,
    "devices": gpureduce.devices,
    "build_info": gpureduce.build_info,
    "fast_table": lambda: gpureduce.fast_table("emulator"),
    "free_scratch": gpureduce.free_scratch,
    "exact": lambda: [
        f(FLOATS).tobytes() for f in (exact.mean, exact.var, exact.std, exact.norm, exact.sum)
    ],
    "exact by segment": lambda: exact.segment_var(FLOATS, IDS).tobytes(),
    "exact running sums": lambda: [
        exact.cumsum(FLOATS).tobytes(), exact.segment_cumsum(FLOATS, IDS).tobytes(),
        exact.rolling_mean(FLOATS, 7).tobytes(),
        running.continued(FLOATS, 0, FLOATS.dtype,
                          running.sum_digits(FLOATS, 0, FLOATS.dtype)).tobytes(),
    ],
    "Moments": lambda: gpureduce.Moments().add(FLOATS).subtract(FLOATS[:100]).std().tobytes(),
    "include_path": gpureduce.include_path,
    "exact_words": lambda: gpureduce.exact_words(3).sums().tobytes(),
    "emulator": _schedules,
    "explain": lambda: gpureduce.explain("sequential", n=2**11).wavefronts,
    "races": lambda: gpureduce.races(RACY, n=256).races[0].missing,
    "replay": lambda: gpureduce.replay("sequential", 64).value,
}  # fmt: skip

# They compile, measure, or start threads: some threads suffice, and what is measured differs.
SLOW_CALLS = {
    "audit": lambda: str(gpureduce.audit(exact.mean, FLOATS[:90])),
    "assert_reproducible": lambda: gpureduce.assert_reproducible(exact.sum, FLOATS[:90]),
    "kernel": lambda: _value(gpureduce.sum(INTEGERS, gpureduce.kernel(KERNEL))),
    "benchmark": lambda: [
        row.strategy for row in gpureduce.benchmark(["cpu"], sizes=[1000], repeats=1)
    ],
}
# `calibrate`, `calibration` and `tune` measure the machine and write one file; `check` and `grade`
# run kernels in processes of their own.
NOT_CALLED = {"calibrate", "calibration", "tune", "check", "grade"}


def test_every_public_function_is_called():
    functions = {name for name in gpureduce.__all__ if inspect.isroutine(getattr(gpureduce, name))}
    assert functions - NOT_CALLED <= {*CALLS, *SLOW_CALLS}


def _run_in_threads(calls: dict, threads: int) -> list[str]:
    """Runs all calls in each thread, in other orders. Returns what differs from one thread."""
    expected = {name: call() for name, call in calls.items()}
    start = threading.Barrier(threads)

    def work(number: int) -> list[str]:
        names = list(calls)
        random.Random(number).shuffle(names)
        start.wait()
        found = {name: calls[name]() for name in names}
        return [name for name in names if found[name] != expected[name]]

    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        return [name for wrong in pool.map(work, range(threads)) for name in wrong]


def test_64_threads_call_every_public_function():
    SHARED.__init__("float32")
    assert _run_in_threads(CALLS, THREADS) == []
    assert SHARED.count == (THREADS + 1) * FLOATS.size
    exact = gpureduce.Accumulator("float64")
    exact.add(np.tile(FLOATS, THREADS + 1).astype(np.float64))
    assert SHARED.value() == np.float32(exact.value())


@pytest.mark.parametrize("name", SLOW_CALLS)
def test_functions_that_compile_or_measure(name):
    if name == "kernel" and not shutil.which("g++"):
        pytest.skip("no compiler")
    assert _run_in_threads({name: SLOW_CALLS[name]}, 4) == []


FIRST_CALLS = """
import threading
import numpy as np, gpureduce
start = threading.Barrier(16)
found = []
def work():
    start.wait()
    found.append(int(gpureduce.sum(np.arange(100), "warp_shfl", device="emulator").value))
    found.append(float(gpureduce.sum(np.ones(100)).value))
threads = [threading.Thread(target=work) for _ in range(16)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert sorted(found) == [100.0] * 16 + [4950] * 16, found
print("right")
"""


def test_the_first_calls_come_from_many_threads():
    """What is set at the first call is set once: modules, result types, the list of kernels."""
    assert run_python(FIRST_CALLS).split() == ["right"]


@pytest.mark.skipif(getattr(sys, "_is_gil_enabled", lambda: True)(), reason="this Python has a GIL")
def test_the_modules_leave_the_gil_off():
    gpureduce.sum(INTEGERS, "warp_shfl", device="emulator")
    gpureduce.explain("sequential", n=64)
    assert not sys._is_gil_enabled()
