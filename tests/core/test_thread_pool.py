"""The pool of threads: many callers, forks, sleep, crowds, and sums that are broken off."""

from __future__ import annotations

import concurrent.futures
import json
import os
import signal
import time
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import gpureduce
from cases import CSRC, NATIVE, array_of, build_c, needs_c, run_c, run_python
from gpureduce.core import registry

MIB = 2**20
ARRAYS = [np.arange(k * MIB // 8 + 7 * k, dtype=np.float64) for k in range(1, 9)]
SUMS = [int(a.sum()) for a in ARRAYS]


def cpu(array, threads=0):
    host = gpureduce._host
    total = host.Exact(host.LOAD_F64, 1)
    total.add(array, host.LOAD_F64, 1, True, threads)
    return int(np.frombuffer(total.round(host.LOAD_F64))[0])


@pytest.mark.parametrize("threads", [0, 3, 40])
def test_many_callers_at_once(threads):
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        for _ in range(20):
            assert list(pool.map(lambda a: cpu(a, threads), ARRAYS)) == SUMS


NUMBERS = ["", "1", " +08", "\t\n 2", "0" * 5000 + "3", str(2**31 - 1)]
OTHERS = ["0", "-2", "4 ", "2.5", "x", str(2**31), "9" * 5000, "0" * 5000, " ", "+", "\u0663",
          "\u00a02", "\u20032", "\x1c2", "\udcff", "1_0", "0x4", "1\n"]  # fmt: skip


READ = """
import json, os, sys, tempfile, warnings
import numpy  # takes longer to import than gpureduce, which reads the variable
told = []
warnings.simplefilter("default")
for named in json.loads(sys.argv[1]):
    with tempfile.TemporaryFile() as file:
        child = os.fork()
        if child == 0:
            os.dup2(file.fileno(), 2)
            os.environ["GPUREDUCE_THREADS"] = named
            import gpureduce
            right = gpureduce.sum([1, 2], "cpu").value == 3
            sys.stderr.flush()
            os._exit(not right)
        assert os.waitpid(child, 0)[1] == 0, named
        file.seek(0)
        told.append(file.read().decode())
print(json.dumps(told))
"""


def test_numbers_of_threads_in_the_environment():
    """A call says so, and what is done instead."""
    told = json.loads(run_python(READ, json.dumps([*NUMBERS, *OTHERS])))
    for named, text in zip([*NUMBERS, *OTHERS], told, strict=True):
        shown = named if len(named) <= 40 else f"{named[:37]}..."
        said = f"GPUREDUCE_THREADS must be a number of threads, 1 or more, not {shown!a}"
        assert text.count(said) == (named not in NUMBERS) == bool(text), named


@needs_c
def test_every_task_is_run_once(tmp_path):
    """A C program of the pool alone. It also lets the numbers of regions wrap around."""
    parts = ("control_group", "interrupts", "processors", "shares")
    sources = [*(CSRC / f"threads/{part}.c" for part in parts), NATIVE / "pool_regions.c"]
    program = build_c(tmp_path / "pool_regions", sources, CSRC / "threads")
    assert run_c(program, len(os.sched_getaffinity(0))) == "right\n"


def states():
    """The states of this process's threads: S is asleep."""
    found = []
    for path in Path("/proc/self/task").iterdir():
        found.append((path / "stat").read_text().rpartition(")")[2].split()[0])
    return found


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="needs /proc")
def test_idle_workers_sleep():
    code = """
import sys, time
sys.path.insert(0, sys.argv[1])
import test_thread_pool as test_threads
assert test_threads.cpu(test_threads.ARRAYS[7], 6) == test_threads.SUMS[7]
assert len(test_threads.states()) >= 6
for _ in range(500):
    time.sleep(0.01)
    if sorted(set(test_threads.states())) == ["R", "S"] and test_threads.states().count("R") == 1:
        break
else:
    raise AssertionError(test_threads.states())
"""
    run_python(code, os.path.dirname(__file__), OPENBLAS_NUM_THREADS="1")


def child_exit(run):
    """The exit status of a forked child that runs this; a child that hangs is killed."""
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if run() else 1)
        finally:
            os._exit(2)
    for _ in range(24_000):  # two minutes
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return "hung"


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("pause", [0, 0.05])
def test_fork(pause):
    """The child starts with no workers, whether the parent's are awake or asleep."""
    for _ in range(5):
        assert cpu(ARRAYS[3], 4) == SUMS[3]
        time.sleep(pause)
        assert child_exit(lambda: [cpu(a, 4) for a in ARRAYS] == SUMS) == 0
    assert cpu(ARRAYS[3], 4) == SUMS[3]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_fork_while_another_thread_adds():
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        for _ in range(10):
            busy = pool.submit(lambda: [cpu(ARRAYS[7], 4) for _ in range(20)])
            time.sleep(0.001)
            assert child_exit(lambda: cpu(ARRAYS[2], 4) == SUMS[2]) == 0
            assert busy.result() == [SUMS[7]] * 20


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("pause", [0, 0.05])
def test_fork_after_copies_to_a_device(pause):
    """These have threads of their own."""

    def added():
        return int(gpureduce.sum(ARRAYS[7], "cascade", device="emulator").value) == SUMS[7]

    for _ in range(5):
        assert added()
        time.sleep(pause)
        assert child_exit(added) == 0
    assert added()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_exact_sums_that_overflow_the_integers_of_a_thread(dtype):
    """They keep 64-bit integers, which 2^18 of these elements fill."""
    host = gpureduce._host
    load = registry.DTYPES[dtype]
    n = 2**21 + 3
    bits = np.finfo(dtype).nmant if dtype != "bfloat16" else 7
    element = 1 - 2.0 ** -(bits + 1)  # the largest below 1
    array = array_of(dtype, n)
    array[:] = element
    for threads in (1, 2, 5, 16):
        total = host.Exact(load, 1)
        total.add(array, load, 1, True, threads)
        value = gpureduce.Accumulator.from_bytes(total.to_bytes()).value("float64")
        assert Fraction(float(value)) == Fraction(float(n * Fraction(element))), threads


STARTS = """
import os, resource
import numpy as np
import gpureduce

rng = np.random.default_rng(1)
values = rng.standard_normal(200_000) * 10.0 ** rng.integers(-250, 250, 200_000)
ids, rows = rng.integers(0, 100_000, 200_000), rng.standard_normal((300, 400))
CALLS = {
    "digits": lambda: gpureduce.digits(rows, axis=0),
    "segment_sum": lambda: gpureduce.segment_sum(values, ids).value,
    "sum": lambda: gpureduce.sum(rows, axis=0).value,
}
for name, call in CALLS.items():
    call()
    for more in range(0, 10 * 4096, 4096):
        child = os.fork()
        if child == 0:  # it starts threads of its own
            pages = int(open("/proc/self/statm").read().split()[0])
            limit = pages * 4096 + more
            resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
            try:
                call()
            except MemoryError:
                pass
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert code == 0, (name, more, code)
"""


@pytest.mark.skipif(bool(gpureduce.build_info()["sanitize"]), reason="sanitizers map terabytes")
def test_no_memory_for_the_variables_of_a_thread():
    """Glibc ended the process, as it allocated these variables when a thread first used one."""
    run_python(STARTS, GPUREDUCE_THREADS="4")
