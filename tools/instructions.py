"""Counts the instructions of ten hot calls on the processor: ``python tools/instructions.py``.

Returns 1 if a call takes 3% more of them than the baseline says. The processor traps after each
instruction, and a signal handler counts. (Valgrind does not raise the inexact flag, so most exact
sums would use other kernels.) Counts depend on compiler and Python: the stored baseline is for the
container of .github/workflows/ci.yml. Elsewhere, write one at a commit with ``--update --baseline
FILE``, and compare another commit with ``--baseline FILE``. Needs x86-64 with AVX2, and cc.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

import gpureduce
from gpureduce import exact
from gpureduce.text import table

BASELINE = Path(__file__).resolve().parents[1] / "tests" / "tools" / "instructions.json"
LIMIT, WARM = 0.03, 100  # Python specializes code in its first runs
SETTINGS = {"GPUREDUCE_SIMD": "avx2", "GPUREDUCE_THREADS": "1", "GPUREDUCE_HOST_ARRAYS": "cpu",
            "PYTHONHASHSEED": "0",
            "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512VL,-ERMS"}  # fmt: skip
COUNTER = r"""
#include <signal.h>
static volatile long count;
static void on_trap(int signal) { count++; }
void start(void)
{
    sigaction(SIGTRAP, &(struct sigaction){.sa_handler = on_trap}, 0);
    count = 0;
    __asm__ volatile("pushfq; orq $0x100, (%rsp); popfq"); /* the trap flag */
}
long stop(void)
{
    __asm__ volatile("pushfq; andq $~0x100, (%rsp); popfq");
    return count;
}
"""


def aligned(array: np.ndarray) -> np.ndarray:
    """A copy from a cache line on: loops take as many rounds in every run."""
    room = np.empty(array.nbytes + 64, np.uint8)
    first = -room.ctypes.data % 64
    copy = room[first : first + array.nbytes].view(array.dtype)
    copy[:] = array
    return copy


def calls() -> dict[str, Callable[[], object]]:
    """The ten calls: a function for each name."""
    numbers = aligned(np.random.default_rng(1).standard_normal(1 << 16))
    singles, few = aligned(numbers.astype(np.float32)), slice(1 << 13)
    rows = singles.reshape(1 << 8, -1)
    ids = (numbers[few] * 100 % 100).astype(np.int64)
    return {
        "sum of 1000 float32": lambda: gpureduce.sum(singles[:1000]),
        "exact.sum of 1000 float64": lambda: exact.sum(numbers[:1000]),
        "sum by cpu, float32": lambda: gpureduce.sum(singles, "cpu"),
        "exact.sum, float32": lambda: exact.sum(singles),
        "exact.sum, float64": lambda: exact.sum(numbers),
        "exact.sum of rows, float32": lambda: exact.sum(rows, axis=1),
        "exact.sum of columns, float64": lambda: exact.sum(numbers.reshape(rows.shape), axis=0),
        "exact.var of rows, float32": lambda: exact.var(rows, axis=1),
        "exact.segment_sum, float32": lambda: exact.segment_sum(
            singles[few], ids, num_segments=100
        ),
        "exact.cumsum, float64": lambda: exact.cumsum(numbers[few]),
    }


def counted() -> dict[str, int]:
    """The instructions of each call, of this thread."""
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "counter.c"), Path(folder, "counter.so")
        source.write_text(COUNTER)
        build = ["cc", "-O1", "-mno-red-zone", "-shared", "-fPIC", "-o", library, source]
        subprocess.run(build, check=True)
        counter = ctypes.CDLL(str(library))
    counter.start(), counter.stop()  # the first calls look up symbols
    gc.disable()
    found = {}
    for name, call in {"": lambda: None, **calls()}.items():
        for _ in range(WARM):
            call()
        counter.start()
        call()
        found[name] = counter.stop()
    empty = found.pop("")
    return {name: count - empty for name, count in found.items()}


def compared(before: dict[str, int], after: dict[str, int]) -> list[str]:
    """Prints both counts of each call. Returns the calls that take more than the limit allows."""
    change = {name: after[name] / before[name] - 1 for name in before}
    rows = [[name, f"{before[name]:,}", f"{after[name]:,}", f"{change[name]:+.1%}"]
            for name in before]  # fmt: skip
    print(table(["call", "baseline", "instructions", "change"], rows, (1, 2, 3)))
    return [name for name in before if after[name] > before[name] * (1 + LIMIT)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--baseline", type=Path, default=BASELINE)
    parser.add_argument("--update", action="store_true", help="write the baseline")
    given = parser.parse_args()
    if SETTINGS.items() - os.environ.items():
        os.execve(sys.executable, [sys.executable, "-P", *sys.argv], os.environ | SETTINGS)
    versions = [platform.python_version(), np.__version__, gpureduce.build_info()["compiler"]]
    found = {"Python, NumPy, compiler": versions, "calls": counted()}
    if given.update:
        given.baseline.write_text(json.dumps(found, indent=1) + "\n")
        return 0
    stored = json.loads(given.baseline.read_text())
    slower = compared(stored.pop("calls"), found.pop("calls"))
    if stored != found:
        print(f"Not comparable: the baseline is of {stored}, and these counts are of {found}.")
    for name in slower:
        print(f"{name} takes over {LIMIT:.0%} more. If that is meant: --update")
    return bool(slower)


if __name__ == "__main__":
    sys.exit(main())
