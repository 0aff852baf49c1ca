"""Large host arrays on their way to a device, long calls that are broken off, and small stacks."""

from __future__ import annotations

import concurrent.futures
import functools
import mmap
import time

import numpy as np
import pytest

import gpureduce
from cases import broken_off_after, meanwhile, on_devices, run_python
from producers import ByInterface

MIB = 2**20


@pytest.mark.parametrize(
    ("strategy", "device", "n", "threads", "timing"),
    [("sequential", "emulator", 2**22, 1, True)]
    + [("cpu", None, 2**32, 3, True), ("cpu", None, 2**31, 1, False)]  # looked for every 50 ms
    + [pytest.param("cascade", "cuda", 2**30, n, True, marks=pytest.mark.gpu) for n in (1, 16)],
)
def test_a_signal_breaks_a_sum_off_and_the_next_one_works(
    strategy, device, n, threads, timing, monkeypatch
):
    monkeypatch.setenv("GPUREDUCE_THREADS", str(threads))
    dtype = "int32" if device else None
    how = {"strategy": strategy, "dtype": dtype, "device": device, "timing": timing}
    add = functools.partial(gpureduce.sum, **how)
    # Pages that are only read cost no memory, and no system refuses them.
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    array = np.frombuffer(mmap.mmap(-1, 4 * n, flags, mmap.PROT_READ), np.int32)
    start = time.perf_counter()
    assert add(array).value == 0
    whole = time.perf_counter() - start
    stopped = broken_off_after(0.02, lambda: add(array))
    assert stopped is not None and stopped < whole
    assert add(np.ones(MIB, np.int32)).value == MIB


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


# Without memory. To add them up would take hours.
ROWS = np.broadcast_to(np.float64(1), (2, 2**40))
NARROW = np.broadcast_to(np.float32(1), ROWS.shape)
WHOLE = np.broadcast_to(np.int64(1), (2, 2**40))
LARGE = np.broadcast_to(np.float64(1e308), (2, 2**40))
MASK = np.broadcast_to(np.bool_(True), ROWS.shape)
IDS = np.broadcast_to(np.int64(0), (2**38,))
VALUES = np.broadcast_to(np.float32(1), IDS.shape)
NONE = np.broadcast_to(np.empty((1, 0)), (len(IDS), 0))
ON_DEVICE = {"num_segments": None, "device": "emulator"}


def benchmark():
    return list(gpureduce.benchmark(["last_block"], [2**20], ["float32"], device="emulator",
                                    repeats=10**6))  # fmt: skip


CALLS = {
    "one team of a whole grid": lambda: gpureduce.sum(
        np.zeros(2**27, np.int32), "grid_sync", device="emulator"
    ),
    "one block": lambda: gpureduce.integrate(
        "pi", n=2**36, strategy="one_block", device="emulator"
    ),
    "all blocks": lambda: gpureduce.integrate("pi", n=2**36, strategy="cascade", device="emulator"),
    "processors": lambda: gpureduce.integrate("pi", n=2**40, strategy="cpu"),
    "counting": lambda: gpureduce.explain("cascade", n=2**31, sample=False),
    "counting samples": lambda: gpureduce.explain("exact", n=2**31, dtype="float32"),
    "races": lambda: gpureduce.races("sequential", n=2**24),
    "benchmark": benchmark,
    "exact rows": lambda: gpureduce.sum(ROWS, axis=1),
    "rounded rows": lambda: gpureduce.sum(ROWS, "cpu", axis=1),
    "rows of integers": lambda: gpureduce.sum(WHOLE, axis=1),
    "rows that are cast": lambda: gpureduce.sum(WHOLE, axis=1, dtype="float64"),
    "rows that overflow": lambda: gpureduce.sum(LARGE, "cpu", axis=1),
    "columns": lambda: gpureduce.sum(ROWS.T, axis=0),
    "masked rows": lambda: gpureduce.sum(ROWS, axis=1, where=MASK),
    "rows of several parts": lambda: gpureduce.sum_parts([ROWS, ROWS], axis=1),
    "digits": lambda: gpureduce.digits(ROWS),
    "ids": lambda: gpureduce.segment_sum(VALUES, IDS, num_segments=2),
    "the largest id": lambda: gpureduce.segment_sum(VALUES, IDS),
    "sorted ids": lambda: gpureduce.segment_sum(VALUES, IDS, num_segments=2, sorted=True),
    "offsets": lambda: gpureduce.segment_sum(VALUES, offsets=[0, len(IDS)]),
    "rows on the emulator": lambda: gpureduce.sum(ROWS, axis=1, device="emulator"),
    "columns on the emulator": lambda: gpureduce.sum(ROWS.T, "fast", axis=0, device="emulator"),
    "masked integers on the emulator": lambda: gpureduce.sum(
        WHOLE, axis=1, where=MASK, device="emulator"
    ),
    "one thread per column": lambda: gpureduce.sum(
        ROWS.T, "column_thread", axis=0, device="emulator"
    ),
    "a digit sum on the emulator": lambda: gpureduce.sum(
        ROWS, "exact_levels", axis=1, device="emulator"
    ),
    "rows on a device": lambda: gpureduce.sum(ByInterface(ROWS), axis=1, device="emulator"),
    "digits of rows": lambda: gpureduce.digits(NARROW, 1),
    "rows of several parts on the emulator": lambda: gpureduce.sum_parts(
        [ROWS, ROWS], axis=1, device="emulator"
    ),
    "unsorted ids on the emulator": lambda: gpureduce.segment_sum(
        VALUES, IDS, num_segments=2, sorted=False, device="emulator"
    ),
    "ids by NumPy": lambda: gpureduce.segment_sum(
        VALUES[: 2**28], IDS[: 2**28], num_segments=2, strategy="numpy"
    ),
    "ids without sums": lambda: gpureduce.segment_sum(NONE, IDS, num_segments=1),
    "ids without sums on the emulator": lambda: gpureduce.segment_sum(
        NONE, IDS, num_segments=1, device="emulator"
    ),
    "ids of lessons": lambda: gpureduce.segment_sum(
        VALUES[: 2**31], IDS[: 2**31], num_segments=1, strategy="key_sorted"
    ),
    "the largest id on a device": lambda: gpureduce.segment_sum(
        ByInterface(VALUES[: 2**36]), ByInterface(IDS[: 2**36]), **ON_DEVICE
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_signal_interrupts_long_calls(name):
    """Between two looks for signals other threads run."""
    after, turns = 0.12, []

    def turn():
        time.sleep(0.02)
        turns.append(name)

    with meanwhile(turn):
        stopped = broken_off_after(after, CALLS[name])
    assert stopped is not None, "it was over before the signal came"
    assert len(turns) > 1
    slow = bool(gpureduce.build_info()["sanitize"]) and name == "ids of lessons"
    limit = 12 if slow else 2.5 if name == "races" else 1.5  # 0.3 if all is quiet
    assert stopped - after < limit
    assert gpureduce.sum(np.ones(100_000), "exact", device="emulator").value == 100_000
    assert gpureduce.sum(np.ones((3, 4)), axis=1).value.tolist() == [4, 4, 4]
    assert gpureduce.segment_sum([1.0, 2.0, 4.0], [1, 0, 1]).value.tolist() == [2, 5]


def test_a_signal_interrupts_blocks_that_wait_for_each_other():
    """A thread that waits alone, for a block of another OS thread that has stopped, stops, too."""
    for turn in range(6):
        after = 0.2 + 0.03 * turn
        stopped = broken_off_after(
            after,
            lambda: gpureduce.cumsum(VALUES[: 2**24], "scan_look_back", device="emulator"),
        )
        assert stopped is not None and stopped - after < 1.5


SMALL_STACK = """
import numpy as np, gpureduce as g, small_stacks
from producers import ByDLPack, ByInterface
rows, cube, many = np.ones((300, 40)), np.ones((2,) * 16), np.ones(2**20)
ids, offsets = np.arange(2**20) % 1000, np.array([0, 5, 2**20])
def lockstep():
    with g.emulator.schedule("lockstep"):
        g.sum(many[:3000], "sequential", device="emulator")
wide = np.ldexp(1.0, np.arange(2000) % 1900 - 950)
words = g.digits(rows, 0)
calls = [
    lambda: g.sum(many, "exact"), lambda: g.sum(many, timing=False), lambda: g.sum(many, "cpu"),
    lambda: g.sum(many[:2**16], "exact", device="emulator"), lockstep,
    lambda: g.explain("sequential"), lambda: g.races("missing_barrier"),
    lambda: g.integrate("pi", strategy="cpu"), lambda: g.Accumulator().add(many),
    lambda: g.sum(rows, axis=0), lambda: g.sum(rows, axis=1), lambda: g.sum(cube, axis=(0, 2, 4)),
    lambda: g.sum(cube, "cpu", axis=(0, 2, 4)), lambda: g.sum(rows, axis=0, where=rows > 0),
    lambda: g.sum(rows.astype("f2"), axis=1, initial=2), lambda: g.sum(rows > 0, "exact", axis=0),
    lambda: g.sum(ByInterface(rows), "fast", axis=0, device="emulator").value.to_numpy(),
    lambda: g.sum(rows, axis=1, device="emulator"),
    lambda: g.segment_sum(many, ids), lambda: g.segment_sum(many, offsets=offsets),
    lambda: g.segment_sum(wide, ids[:2000]), lambda: g.segment_sum(wide, ids[:2000] % 7),
    lambda: g.segment_sum(wide, offsets=[0, 700, 2000]),
    lambda: g.segment_sum(many[:5000], ids[:5000], device="emulator"),
    lambda: g.digits(rows, 0), lambda: g.from_digits(words), lambda: g.sum_parts([many, many]),
    lambda: g.sum_parts([ByDLPack(many[:5000]), many], device="emulator"),
    lambda: g.sum(np.ones(2**20), device=["cpu", "emulator"]),
    lambda: g.exact.var(rows, axis=1), lambda: g.exact.std(rows, axis=0),
    lambda: g.exact.norm(wide), lambda: g.exact.dot(many, many), lambda: g.exact.dot(wide, wide),
]
small_stacks.run(calls)
"""


@pytest.mark.skipif(
    bool(gpureduce.build_info()["sanitize"]), reason="sanitizers need larger stacks"
)
@pytest.mark.parametrize("threads", ["1", "3"])
def test_a_thread_with_a_small_stack(threads):
    run_python(SMALL_STACK, GPUREDUCE_THREADS=threads)
