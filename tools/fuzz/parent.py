"""The parent: starts workers, notices crashes and hangs, counts outcomes and prints failures."""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tools.fuzz import kinds, notes, shared, shim, worker

HERE = Path(__file__).resolve().parent
_SAME = 3  # failures of one sort that are printed
_POLL_S = 0.02


@dataclass
class Tally:
    kind: str
    options: argparse.Namespace
    counts: collections.Counter[str] = field(default_factory=collections.Counter)
    failures: int = 0
    sorts: collections.Counter[str] = field(default_factory=collections.Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)
    deadline: float = float("inf")

    def over(self) -> bool:
        """Whether the time is up, or there are failures enough."""
        return time.monotonic() > self.deadline or self.failures >= self.options.failures

    def fail(self, case: int, notes: str, head: str, trace: str) -> None:
        """Print a failure with the command that repeats it, unless many like it were printed."""
        with self.lock:
            self.failures += 1
            sort = re.sub(r"np\..*|0x[0-9a-f]+|\d+", "N", head)[:120]
            self.sorts[sort] += 1
            if self.sorts[sort] > _SAME:
                return
            print(f"FAILED {self.kind}, case {case}: {head}\n    ({notes})", flush=True)
            print(f"    {self.command(case)}", flush=True)
            for line in trace.rstrip().splitlines():
                print(f"    | {line[:200]}", flush=True)

    def command(self, case: int) -> str:
        command = [sys.executable, os.path.relpath(HERE), self.kind, "--cases", "1"]
        command += ["--seed", str(self.options.seed), "--start", str(case)]
        command += ["--python"] if self.options.python else []
        return shlex.join(command)

    def summary(self, seconds: float) -> str:
        every = sum(self.counts.values())
        said = ", ".join(f"{n} {name}" for name, n in self.counts.items() if n)
        again = [f"{n} of: {sort}" for sort, n in self.sorts.most_common() if n > _SAME]
        line = f"{self.kind}: {every} cases, seed {self.options.seed}, {seconds:.0f} s: {said}"
        return "\n".join([*again, f"{line}; {self.failures} failures"])


def _environment(kind: str, folder: Path) -> dict[str, str]:
    """Nothing of the user's is read or written; sanitizers return NULL as malloc() does."""
    said = dict(os.environ) | {
        "HOME": str(folder),
        "XDG_CONFIG_HOME": str(folder / "config"),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "TMPDIR": str(folder),
        "MPLBACKEND": "Agg",
        "OPENBLAS_NUM_THREADS": "1",
        "COLUMNS": "100",
    }
    asan = [said.get("ASAN_OPTIONS", ""), "allocator_may_return_null=1"]
    said["ASAN_OPTIONS"] = ":".join(filter(None, asan))
    if kind in kinds.SHIMMED:
        said[shim.VARIABLE] = str(shim.build())
    return said


def _waited_ns(process: int) -> int:
    """Nanoseconds that a process could have run, but other processes did, by Linux."""
    waited = [0]
    for path in Path(f"/proc/{process}/task").glob("*/schedstat"):
        with contextlib.suppress(OSError):  # the thread has ended
            waited.append(int(path.read_text().split()[1]))
    return max(waited)


def _died(status: int, errors: Path) -> str:
    """A process's exit, and the sanitizer's report on it."""
    text = errors.read_text(errors="replace")
    said = re.search(r"^SUMMARY: (.*)$|(runtime error: .*)$", text, re.M)
    more = f": {said[1] or said[2]}" if said else ""
    if status >= 0:
        return f"the process ended with status {status}{more}"
    return f"the process died of {signal.Signals(-status).name}{more}"


def _excerpt(path: Path) -> str:
    """The part of standard error that tells why a process died."""
    lines = path.read_text(errors="replace").splitlines()
    marks = ("ERROR: AddressSanitizer", "runtime error:", "Fatal Python error", "terminate called")
    starts = [i for i, line in enumerate(lines) if any(mark in line for mark in marks)]
    first = starts[0] if starts else max(0, len(lines) - 20)
    return "\n".join(lines[first : first + 24])


class Worker:
    def __init__(self, tally: Tally, folder: Path, first: int, last: int) -> None:
        self.shared, self.report = folder / "shared", folder / "report"
        self.errors = folder / "errors"
        shared.create(self.shared)
        self.report.write_text("")
        self.memory, self.notes = shared.open_memory(self.shared)
        options = tally.options
        command = [sys.executable, str(HERE), tally.kind, "--seed", str(options.seed)]
        command += ["--start", str(first)] + ["--python"] * options.python
        command += ["--worker", str(self.shared), str(self.report), str(last)]
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                command, env=_environment(tally.kind, folder), stdin=subprocess.DEVNULL,
                stdout=errors, stderr=errors, start_new_session=True, cwd=folder,
            )  # fmt: skip
        self.timeout = options.timeout
        self.hung = False
        self.case = (-1, 0)  # and the time that the process had waited when it was first seen

    def wait(self, tally: Tally) -> int:
        """The exit status; a worker that hangs, or has no time left, is ended."""
        while (status := self.process.poll()) is None:
            if self._hangs():
                self.hung = True
                self.process.send_signal(signal.SIGABRT)  # faulthandler prints the stacks
                self._kill_after(3)
            elif tally.over():
                self._kill_after(0)
            time.sleep(_POLL_S)
        return status

    def _hangs(self) -> bool:
        """Whether a case takes too long, other than by waiting for a processor."""
        started, case = self.memory[shared.STARTED_NS], self.memory[shared.CASE]
        if case < 0 or not started:
            return False
        if self.case[0] != case:
            self.case = (case, _waited_ns(self.process.pid))
        taken = time.monotonic_ns() - started
        if taken <= self.timeout * 1e9:
            return False
        return taken - (_waited_ns(self.process.pid) - self.case[1]) > self.timeout * 1e9

    def _kill_after(self, seconds: float) -> None:
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def failures(self) -> list[tuple[int, str, str, str]]:
        rows = map(json.loads, self.report.read_text().splitlines())
        return [(row["case"], row["notes"], row["head"], row["trace"]) for row in rows]


def _run_worker(tally: Tally, folder: Path, first: int, last: int) -> int:
    """Run cases from `first`; returns the number of the case to go on with."""
    one = Worker(tally, folder, first, last)
    try:
        status = one.wait(tally)
    finally:
        one.process.kill()
        one.process.wait()
    with tally.lock:
        tally.counts.update(shared.counts(one.memory))
    for failure in one.failures():
        tally.fail(*failure)
    at = one.memory[shared.CASE]
    if status == 0:
        return last
    if status == worker.SPOILED:
        return at + 1
    if at < 0:
        if not tally.over():
            head = f"no case was begun: {_died(status, one.errors)}"
            tally.fail(first, "", head, _excerpt(one.errors))
        return last
    if one.hung or not tally.over():
        head = f"hung for {tally.options.timeout:g} s" if one.hung else _died(status, one.errors)
        with tally.lock:
            tally.counts["failed"] += 1
        tally.fail(at, notes.read(one.notes), head, _excerpt(one.errors))
    return at + 1


def _run_range(tally: Tally, first: int, last: int) -> None:
    most = kinds.CASES_PER_PROCESS.get(tally.kind, last - first)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        while first < last and not tally.over():
            first = _run_worker(tally, Path(folder), first, min(last, first + most))


def fuzz(kind: str, options: argparse.Namespace) -> bool:
    """Run the cases of one kind, and print what became of them; whether none failed."""
    tally = Tally(kind, options)
    begun = time.monotonic()
    if options.seconds:
        tally.deadline = begun + options.seconds
    end = options.start + options.cases
    cuts = [options.start + options.cases * i // options.jobs for i in range(options.jobs)]
    with ThreadPoolExecutor(options.jobs) as pool:
        parts = zip(cuts, [*cuts[1:], end], strict=True)
        for job in [pool.submit(_run_range, tally, *part) for part in parts]:
            job.result()
    print(tally.summary(time.monotonic() - begun), flush=True)
    return not tally.failures
