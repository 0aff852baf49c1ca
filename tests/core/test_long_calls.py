"""Large host arrays on their way to a device, and sums that are broken off."""

from __future__ import annotations

import concurrent.futures
import functools
import time

import numpy as np
import pytest

import gpureduce
from cases import broken_off_after, on_devices, run_python

MIB = 2**20


@pytest.mark.parametrize(
    ("strategy", "device", "threads", "timing"),
    [("sequential", "emulator", 1, True), ("cpu", None, 3, True), ("cpu", None, 1, False)]
    + [pytest.param("cascade", "cuda", n, True, marks=pytest.mark.gpu) for n in (1, 16)],
)
def test_a_signal_breaks_a_sum_off_and_the_next_one_works(
    strategy, device, threads, timing, monkeypatch
):
    monkeypatch.setenv("GPUREDUCE_THREADS", str(threads))
    dtype = "int32" if device else None
    how = {"strategy": strategy, "dtype": dtype, "device": device, "timing": timing}
    add = functools.partial(gpureduce.sum, **how)
    array = np.zeros(2**22 if device == "emulator" else 2**30, np.int32)  # untouched: no memory
    array[-1] = 7
    start = time.perf_counter()
    assert add(array).value == 7
    whole = time.perf_counter() - start
    stopped = broken_off_after(0.02, lambda: add(array))
    assert stopped is not None and stopped < whole
    assert add(array[-MIB:]).value == 7


NESTED = """
import signal, time
import numpy as np, gpureduce

def handler(*_):
    time.sleep(0.1)  # until signals are looked for again
    print(gpureduce.sum(np.arange(1000, dtype=np.int32), "cpu", timing=False).value)

long = np.broadcast_to(np.int8(1), (2**15, 2**16))  # takes a second, and no memory
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.06)
print(gpureduce.sum(long, "cpu", timing=False).value)
"""


def test_a_slow_signal_handler_may_add_up_a_small_array():
    assert run_python(NESTED, GPUREDUCE_THREADS="1").split() == ["499500", str(2**31)]


@on_devices
def test_large_copies_that_come_together_take_turns(device):
    arrays = [np.full(5 * MIB // 4 + i, i + 1, np.int32) for i in range(12)]
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        found = list(pool.map(lambda a: gpureduce.sum(a, "cascade", device=device), arrays))
    assert [int(f.value) for f in found] == [int(a.sum()) for a in arrays]


@on_devices
def test_giving_back_scratch_memory_during_copies(device):
    array = np.full(8 * MIB // 4, 3, np.int32)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        sums = [pool.submit(gpureduce.sum, array, "cascade", device=device) for _ in "123456"]
        for _ in range(20):
            gpureduce.free_scratch()
        assert {int(s.result().value) for s in sums} == {array.size * 3}


HANDLED = """
import signal
import numpy as np
import gpureduce

def handler(*_):
    print(int(gpureduce.sum(np.ones(2**20, np.float32), {inner}).value))

long = np.zeros(2**29, np.int8)  # an untouched page costs no memory
long[-1] = 7
gpureduce.sum(long[-1:], "fast", device="emulator")  # imports what first calls do
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.02)  # while it is being copied
print(int(gpureduce.sum(long, "fast", device="emulator").value))
"""


@pytest.mark.parametrize("inner", ['"cpu"', '"fast", device="emulator"'])
def test_a_signal_handler_may_call_what_it_interrupts(inner):
    """In a process of its own, which hung, or ended, where this went wrong."""
    assert run_python(HANDLED.format(inner=inner)).split() == ["1048576", "7"]


WAITS_FOR_A_COPY = """
import concurrent.futures, os, signal, time
import numpy as np, gpureduce

small = np.ones(1000, np.float32)
pool = concurrent.futures.ThreadPoolExecutor(1)
calls = 0

def add():
    return gpureduce.sum(small, "sequential", device="emulator").value

def handler(*_):
    global calls
    try:
        assert pool.submit(add).result(20) == 1000
        calls += 1
    except concurrent.futures.TimeoutError:
        os._exit(3)

add(), pool.submit(add).result()
long = np.ones(2**26, np.float32)
signal.signal(signal.SIGALRM, handler)
end = time.time() + 60
while calls < 6 and time.time() < end:
    signal.setitimer(signal.ITIMER_REAL, 0.03)
    gpureduce.sum(long, "exact", device="emulator")
os._exit(0 if calls == 6 else 4)
"""


def test_a_signal_handler_may_wait_for_another_threads_copy():
    """Both copies want the ring of pinned memory. This hung, so it runs in its own process."""
    run_python(WAITS_FOR_A_COPY, timeout=180)


LIMITED = """
import threading
import numpy as np
import gpureduce

def copy_ms(n):
    return gpureduce.sum(np.zeros(n, np.float64), "fast", device="emulator").timing.h2d_ms

n = 2**23  # an untouched page costs no memory
while copy_ms(n) < 100 and n < 2**27:  # so long that it asks after Ctrl-C, which takes the GIL
    n *= 2
copies = threading.Thread(target=lambda: [copy_ms(n) for _ in range(3)], daemon=True)
copies.start()
limits = 0
while copies.is_alive():
    with gpureduce.emulator.memory_limit(2**34):
        limits += 1
print(limits > 0)
"""


def test_setting_a_memory_limit_during_a_copy():
    """It waited for the copy with the GIL, and hung. In a process of its own."""
    assert run_python(LIMITED, GPUREDUCE_THREADS="1") == "True\n"
