"""What the tests share: sizes on every edge, data in which each element counts, and the check."""

from __future__ import annotations

import contextlib
import gc
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import gpureduce
from gpureduce.bench import record
from gpureduce.core import registry

ROOT = Path(__file__).resolve().parents[2]
NATIVE = ROOT / "tests" / "native"
SUPPORT = Path(__file__).parent
CSRC = ROOT / "csrc"
needs_c = pytest.mark.skipif(
    not CSRC.exists() or not shutil.which("gcc"), reason="no source or compiler"
)

KERNELS = [s.name for s in gpureduce.strategies() if s.kind == "kernel"]
AXIS = [s.name for s in gpureduce.strategies(internal=True) if s.kind == "axis"]
BROKEN = [s.name for s in gpureduce.strategies() if s.broken]
DTYPES = list(registry.DTYPES)
BLOCKS = (32, 64, 96, 128, 256, 416, 512, 1024)
DEVICES = ["emulator", pytest.param("cuda", marks=pytest.mark.gpu)]
on_devices = pytest.mark.parametrize("device", DEVICES)
SCHEDULES = [("forward", 0), ("reverse", 0), ("random", 1)]

# What a record says of the card that it was made on.
MADE = {"card": "NVIDIA Test 9000", "driver": "580", "toolkit": "13.0", "date": "2026-01-01",
        "commit": "0" * 40, "device": "cuda", "processor": "Some Processor", "processors": 16,
        "versions": {"numpy": "2.5", "python": "3.12"}}  # fmt: skip


def timed_rows(case: dict[str, Any], us: dict[str, float]) -> list[dict[str, Any]]:
    """The rows of a record: one for each contender on this case."""
    usual = {"measure": "kernel", "dtype": "float32", "n": 1024, "nbytes": 4096,
             "source": "cuda_event", "repeats": 3}  # fmt: skip
    times = ({"strategy": k, "median_us": t, "low_us": t, "high_us": t} for k, t in us.items())
    return [record.derived(usual | case | one) for one in times]


# Every strategy with every dtype that it takes.
PAIRS = [
    (s.name, dtype)
    for s in gpureduce.strategies()
    if s.kind == "kernel"
    for dtype in DTYPES
    if dtype in s.dtypes
]


def build_c(
    target: Path, sources: Sequence[Path], *include: Path, flags: Sequence[str] = ()
) -> Path:
    """A program of our own C, warnings being errors."""
    common = ["-std=gnu11", "-D_GNU_SOURCE", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"]
    found = [f"-I{path}" for path in (CSRC, *include)]
    subprocess.run(["gcc", *common, *flags, *found, *sources, "-o", str(target)], check=True)
    return target


def build_on_late_runtime(target: Path, *sources: Path, flags: Sequence[str] = ()) -> Path:
    """A program of ours and of the threads', for a card that is late: late_runtime.c."""
    every = [*sources, *CSRC.glob("threads/*.c"), NATIVE / "late_runtime.c"]
    return build_c(target, every, CSRC / "emulator/include", NATIVE, flags=flags)


def run_c(program: Path, threads: int, *arguments: object) -> str:
    """What it says, if it ends well."""
    done = subprocess.run(
        [program, *map(str, arguments)],
        env={"GPUREDUCE_THREADS": str(threads)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run_python(code: str, *arguments: str, timeout: int = 120, **environment: str) -> str:
    """What code prints in its own process, which may not crash or hang; it can import support/."""
    path = [str(SUPPORT), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-P", "-W", "ignore", "-c", code, *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path), **environment},
        capture_output=True, text=True, timeout=timeout,
    )  # fmt: skip
    assert done.returncode == 0, (done.returncode, done.stderr)
    return done.stdout


def numpy_dtype(name: str) -> np.dtype[Any]:
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


def small_sizes(block: int) -> list[int]:
    """Sizes around the edges of a warp, a block, and two blocks."""
    near = [1, 2, 3, 4, 31, 32, 33, block - 1, block, block + 1, 2 * block - 1, 2 * block + 1]
    return sorted({*near, 5 * block + 7})


def array_of(dtype: str, n: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """Random numbers of all sizes: a lost, doubled or shifted element changes the sum."""
    rng = np.random.default_rng([seed, n])
    kind = numpy_dtype(dtype)
    if kind.kind == "c":
        real, imaginary = (array_of("float64", n, one) for one in (seed, seed + 1))
        return (real + 1j * imaginary).astype(kind)
    if dtype == "bool":
        return rng.random(n) < 0.5
    if kind.kind in "iu":
        info = np.iinfo(kind)
        return rng.integers(info.min, info.max, n, dtype=kind, endpoint=True)
    scale = 8.0 if dtype in ("float16", "bfloat16") else 2.0 ** rng.integers(-10, 10, n)
    return (rng.standard_normal(n) * scale).astype(kind)


def needed_dtype(strategy: str, dtype: str) -> str | None:
    """`dtype=` for strategies that add only 32-bit integers."""
    return dtype if len(gpureduce_strategy(strategy).dtypes) == 2 else None


def gpureduce_strategy(name: str) -> gpureduce.Strategy:
    return registry.find(name)


def same_bits(a: Any, b: Any) -> bool:
    """Whether two scalars have one type and the same bits."""
    return type(a) is type(b) and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def exact(array: np.ndarray[Any, Any]) -> float:
    """The exact sum, rounded once to float64."""
    return math.fsum(array.astype(np.float64).reshape(-1).tolist())


def magnitude(array: np.ndarray[Any, Any]) -> float:
    return math.fsum(np.abs(array.astype(np.float64)).reshape(-1).tolist())


def check(result: gpureduce.SumResult, array: np.ndarray[Any, Any], dtype: Any = None) -> None:
    """Integers equal numpy.sum bit for bit; floats lie within the bound of their own order."""
    expected = np.sum(array, dtype=dtype)
    assert result.value.dtype == expected.dtype
    assert result.timing.n == array.size
    if expected.dtype.kind in "iu":
        assert int(result.value) == int(expected)
        return
    off = abs(float(result.value) - exact(array))
    allowed = gpureduce.error_bound(result, magnitude(array))
    assert off <= allowed, f"off by {off}, allowed {allowed}, value {result.value}"
    # Integers show each lost element; a bound beyond this would not even show a lost block.
    assert allowed <= 0.1 * magnitude(array) + 2.0**-25


@contextlib.contextmanager
def meanwhile(work: Callable[[], object]) -> Iterator[None]:
    """Another thread calls this again and again, until the block ends."""
    ended = threading.Event()

    def repeat() -> None:
        while not ended.is_set():
            work()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


class Stopped(Exception):
    pass


def broken_off_after(seconds: float, call: Callable[[], object]) -> float | None:
    """How long a call took that a raising signal handler broke off; None if it came through."""

    def stop(signum: int, frame: object) -> None:
        raise Stopped

    before = signal.signal(signal.SIGALRM, stop)
    # Python calls a function of hypothesis at each garbage collection, and drops what is raised
    # in it: a signal that arrives there would not break the call off.
    gc.disable()
    start = time.perf_counter()
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, seconds)
            call()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except Stopped:
        return time.perf_counter() - start
    finally:
        signal.signal(signal.SIGALRM, before)
        gc.enable()
    return None
