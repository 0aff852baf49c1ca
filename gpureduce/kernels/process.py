"""Calls into the process that runs users' kernels (worker.py): starts it, and listens to it."""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpureduce.errors import CudaError
from gpureduce.kernels import sockets, worker
from gpureduce.kernels.worker import HEAD, Job
from gpureduce.text import visible

_MOST_BYTES = 1 << 28  # of a message
_PATIENCE_S = 60  # with a server that does not answer, although no job runs


class KernelEnded(RuntimeError):
    """A kernel ended its process, or took too long: no result came.

    >>> import gpureduce, numpy as np
    >>> k = gpureduce.kernel(
    ...     "__global__ void f(const float *in, float *out, size_t n) { while (n) *out = *in; }",
    ...     limits=gpureduce.Limits(seconds=0.5),
    ... )
    >>> try:
    ...     gpureduce.sum(np.ones(9, np.float32), k)
    ... except gpureduce.KernelEnded as error:
    ...     print(error)
    f gave no result: it took more than 0.5 s and was ended
    """


@dataclass
class Outcome:
    """The outcome of a job: its result, or why there is none; its messages by kind; its output."""

    result: Any = None
    error: Exception | None = None
    ended: str = ""
    told: dict[str, list[Any]] = field(default_factory=dict)
    output: bytearray = field(default_factory=bytearray)
    printed_bytes: int = 0

    @property
    def printed(self) -> str:
        """The output as text, harmless to a terminal."""
        return visible(self.output.decode(errors="replace"))


class _Server:
    """The server process and the socket to it."""

    def __init__(self) -> None:
        self.link, other = sockets.pair()
        root, self.pid = str(Path(__file__).parents[2]), os.getpid()
        code = (
            f"import sys; sys.path.insert(0, {root!r}); from gpureduce.kernels import worker; "
            f"worker.serve({other.fileno()}, {self.pid})"
        )
        environment = {k: v for k, v in os.environ.items() if k != "GPUREDUCE_BACKEND"}
        environment |= {"GPUREDUCE_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        self.said = tempfile.TemporaryFile()  # noqa: SIM115
        with other:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", code], pass_fds=[other.fileno()], env=environment,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self.said,
                start_new_session=True,
            )  # fmt: skip

    def stop(self) -> None:
        """Ends the server, in the process that started it."""
        if self.pid == os.getpid():
            with contextlib.suppress(OSError):  # it has ended
                self.link.shutdown(socket.SHUT_RDWR)  # even if another process has it, too
            try:
                self.process.wait(1)
            except BaseException as error:
                self.process.kill()
                self.process.wait()
                if not isinstance(error, subprocess.TimeoutExpired):
                    raise
        self.process.returncode = 0
        self.link.close()
        self.said.close()

    def number(self) -> int:
        """A number that the server sends: a child's id, or its exit status."""
        is_there = sockets.ready([self.link.fileno()], _PATIENCE_S)
        data = worker.received(self.link, HEAD.size) if is_there else None
        if data is None:
            raise BrokenPipeError
        return int(HEAD.unpack(data)[0])

    def ended(self) -> RuntimeError:
        """Stops the server, which has ended or does not answer. Returns an error that says why."""
        self.process.kill()
        self.process.wait()
        self.said.seek(0)
        lines = self.said.read().decode(errors="replace").splitlines()
        self.stop()
        said = "the process for kernels of yours has ended"
        return RuntimeError(f"{said}: {lines[-1]}") if lines else KernelEnded(f"{said}; call again")


_lock = threading.RLock()
_server: _Server | None = None  # None also while it has a job


def _forget() -> None:
    """In a child made by fork(): another thread may have held the lock."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_forget)


def _stop() -> None:
    global _server
    server, _server = _server, None
    if server:
        server.stop()


atexit.register(_stop)


def start() -> None:
    """Starts the server, so that the first job finds it ready."""
    global _server
    if _lock.acquire(blocking=False):  # else another thread's job has started it
        try:
            _server = _taken()
        finally:
            _lock.release()


def _taken() -> _Server:
    """Takes this process's server, or starts one. No other job gets it until it is put back."""
    global _server
    server, _server = _server, None
    if server and (server.pid != os.getpid() or server.process.poll() is not None):
        server.stop()
        server = None
    return server or _Server()


def run(job: Job) -> Outcome:
    """Does a job in a child process. One runs at a time, and those of signal handlers beside it."""
    global _server
    with _lock:
        server = _taken()  # a signal handler that interrupts this job starts a server of its own
        try:
            outcome = _run(server, job)
        except (BrokenPipeError, ConnectionResetError):
            raise server.ended() from None
        except BaseException:
            server.stop()
            raise
        other, _server = _server, server
        if other:  # that of a signal handler
            other.stop()
        return outcome


class _BadMessage(Exception):
    """A kernel wrote to the descriptor of the results."""


def _run(server: _Server, job: Job) -> Outcome:
    (results, their_results), (output, their_output) = socket.socketpair(), socket.socketpair()
    with results, output:
        with their_results, their_output:
            data, theirs = pickle.dumps(job), [their_results.fileno(), their_output.fileno()]
            socket.send_fds(server.link, [HEAD.pack(len(data))], theirs)
        server.link.sendall(data)
        child = server.number()
        outcome, in_time, is_bad = Outcome(), True, False
        end = time.monotonic() + job.limits.seconds
        streams = (results.fileno(), output.fileno())
        try:
            in_time = _listen(job, end, server.link, streams, outcome, child)
        except _BadMessage:
            is_bad = True
        if is_bad or not in_time:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        status = server.number()
        in_time = in_time and not (status == signal.SIGALRM and time.monotonic() > end)
    finished = outcome.result is not None or outcome.error is not None
    if is_bad:
        outcome.ended = "it sent what is no result"
    elif not in_time:
        quiet = min(job.limits.seconds, job.quiet_s)
        outcome.ended = f"it took more than {quiet:g} s and was ended"
    elif not finished:
        outcome.ended = _death(status)
    return outcome


def _death(status: int) -> str:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        name = signal.strsignal(number) or ""
        return f"it ended its process by signal {number} ({name})"
    return f"it ended its process with status {os.WEXITSTATUS(status)}, as exit() does"


def cpu_s_of_tree(top: int) -> float:
    """The processor time of a process, of those below it, and of those that they waited for."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            fields = _stat(path)
            found[int(path.parent.name)] = fields[0], sum(fields[10:14])
    more = tree = {top}
    while more:
        more = {pid for pid, (parent, _) in found.items() if parent in more} - tree
        tree = tree | more
    ticks = sum(found[pid][1] for pid in tree if pid in found)
    return ticks / os.sysconf("SC_CLK_TCK")


def _stat(path: Path) -> list[int]:
    """The numbers of a process, from that of its parent on: see proc(5)."""
    return [int(field) for field in path.read_text().rpartition(")")[2].split()[1:]]


def _cpu_s(child: int) -> float:
    """The processor time that a process has used; infinite where /proc does not tell."""
    try:
        return sum(_stat(Path(f"/proc/{child}/stat"))[10:12]) / os.sysconf("SC_CLK_TCK")
    except OSError:
        return math.inf


def _listen(
    job: Job, end: float, link: socket.socket, streams: tuple[int, int], outcome: Outcome,
    child: int,
) -> bool:  # fmt: skip
    """Reads what the child sends until it ends or closes its end. False if its time is over.

    Where other processes take the processors, a quiet child gets up to four times as long.
    """
    results, output = streams
    data, open_ = (
        bytearray(),
        [results, output],
    )  # in this order: the end of results comes after output
    quiet_end, used, more_time = time.monotonic() + job.quiet_s, _cpu_s(child), 3
    while open_:
        left = min(end, quiet_end) - time.monotonic()
        ready = sockets.ready([*open_, link.fileno()], left)
        if left <= 0 and results not in ready:  # what came while this process was stopped is read
            more_time -= 1
            if time.monotonic() >= end or more_time < 0 or _cpu_s(child) > used + job.quiet_s / 2:
                return False
            quiet_end += job.quiet_s
        if ready == {link.fileno()}:  # the child has ended, and another process holds its end
            break
        if output in ready:
            more = os.read(output, 1 << 20)
            outcome.printed_bytes += len(more)
            outcome.output += more[: max(0, job.limits.output_bytes - len(outcome.output))]
            open_ = open_ if more else [results]
        if results in ready:
            more = os.read(results, 1 << 16)
            data += more
            data = _take_messages(data, outcome)
            quiet_end, used, more_time = time.monotonic() + job.quiet_s, _cpu_s(child), 3
            open_ = open_ if more else []
    return True


def _take_messages(data: bytearray, outcome: Outcome) -> bytearray:
    """Takes the whole messages at the start of the data. Returns the rest."""
    while len(data) >= HEAD.size:
        size = HEAD.size + HEAD.unpack(data[: HEAD.size])[0]
        if size > _MOST_BYTES:
            raise _BadMessage
        if len(data) < size:
            break
        try:
            kind, what = worker.read(data[HEAD.size : size])
        except Exception as error:
            raise _BadMessage from error
        if kind == "result":
            outcome.result = what
        elif kind == "error":
            outcome.error = what
        elif kind == "cuda error":
            outcome.error = CudaError(*what)
        else:
            outcome.told.setdefault(str(kind), []).append(what)
        data = data[size:]
    return data


def result_of(outcome: Outcome, name: str) -> Any:
    """The result of a job. Raises what it raised, or `KernelEnded`."""
    if outcome.ended:
        raise KernelEnded(f"{name} gave no result: {outcome.ended}")
    if outcome.error is not None:
        raise outcome.error
    return outcome.result
