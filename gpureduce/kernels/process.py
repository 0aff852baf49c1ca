"""Calls into the process that runs users' kernels (worker.py): starts it, and listens to it."""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpureduce.errors import CudaError
from gpureduce.kernels import worker
from gpureduce.kernels.worker import HEAD, Job

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
    """The outcome of a job: its result, or why there is none; its messages; its output."""

    result: Any = None
    error: Exception | None = None
    ended: str = ""
    told: list[tuple[str, Any]] = field(default_factory=list)
    printed: str = ""
    printed_bytes: int = 0


class _Server:
    """The server process and the socket to it."""

    def __init__(self) -> None:
        self.link, other = socket.socketpair()
        root = str(Path(__file__).parents[2])
        code = (
            f"import sys; sys.path.insert(0, {root!r}); from gpureduce.kernels import worker; "
            f"worker.serve({other.fileno()})"
        )
        environment = {k: v for k, v in os.environ.items() if k != "GPUREDUCE_BACKEND"}
        environment |= {"GPUREDUCE_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", code], pass_fds=[other.fileno()], env=environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        other.close()
        self.pid = os.getpid()

    def stop(self) -> None:
        """Ends the server, in the process that started it."""
        self.link.close()
        if self.pid == os.getpid():
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(1)
                return
            self.process.kill()
            self.process.wait()

    def number(self) -> int:
        """A number that the server sends: a child's id, or its exit status."""
        data = b""
        while len(data) < HEAD.size:
            is_there = select.select([self.link], [], [], _PATIENCE_S)[0]
            more = self.link.recv(HEAD.size - len(data)) if is_there else b""
            if not more:
                raise RuntimeError("the process for kernels of yours has ended; call again")
            data += more
        return int(HEAD.unpack(data)[0])


_lock = threading.RLock()
_server: _Server | None = None
_is_busy = False  # the server has a job


def _forget() -> None:
    """In a child made by fork(): another thread may have held the lock."""
    global _lock, _is_busy
    _lock, _is_busy = threading.RLock(), False


os.register_at_fork(after_in_child=_forget)


def _stop() -> None:
    global _server
    if _server:
        _server.stop()
    _server = None


atexit.register(_stop)


def start() -> None:
    """Starts the server, so that the first job finds it ready."""
    if not _lock.acquire(blocking=False):
        return  # another thread's job has started it
    try:
        if not _is_busy:
            _start()
    finally:
        _lock.release()


def _start() -> None:
    global _server
    if _server and _server.pid != os.getpid():  # the server is that of a parent process
        _server.process.returncode = 0
        _stop()
    elif _server and _server.process.poll() is not None:
        _stop()
    if _server is None:
        _server = _Server()


def run(job: Job, listen: Callable[[str, Any], None] | None = None) -> Outcome:
    """Does a job in a child process. One runs at a time, and those of signal handlers beside it."""
    global _is_busy
    with _lock:
        if _is_busy:  # a signal handler calls from this thread's own job
            return _run_beside(job, listen)
        try:
            _is_busy = True
            _start()
            assert _server is not None
            return _run(_server, job, listen)
        except BaseException:
            _stop()
            raise
        finally:
            _is_busy = False


def _run_beside(job: Job, listen: Callable[[str, Any], None] | None) -> Outcome:
    server = _Server()
    try:
        return _run(server, job, listen)
    finally:
        server.stop()


class _BadMessage(Exception):
    """A kernel wrote to the descriptor of the results."""


def _run(server: _Server, job: Job, listen: Callable[[str, Any], None] | None) -> Outcome:
    results, results_end = os.pipe()
    output, output_end = os.pipe()
    try:
        data = pickle.dumps(job)
        socket.send_fds(server.link, [HEAD.pack(len(data))], [results_end, output_end])
        os.close(results_end)
        os.close(output_end)
        results_end = output_end = -1
        server.link.sendall(data)
        child = server.number()
        outcome, in_time, is_bad = Outcome(), True, False
        try:
            in_time = _listen(job, server.link, (results, output), outcome, listen)
        except _BadMessage:
            is_bad = True
        if is_bad or not in_time:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        status = server.number()
    finally:
        for descriptor in (results, output, results_end, output_end):
            if descriptor >= 0:
                os.close(descriptor)
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


def _listen(
    job: Job,
    link: socket.socket,
    pipes: tuple[int, int],
    outcome: Outcome,
    listen: Callable[[str, Any], None] | None,
) -> bool:
    """Reads what the child sends until it ends or closes its pipe. False if its time is over."""
    results, output = pipes
    end, printed, data, open_ = time.monotonic() + job.limits.seconds, b"", b"", {results, output}
    quiet_end = time.monotonic() + job.quiet_s
    while results in open_:
        left = min(end, quiet_end) - time.monotonic()
        watched: list[Any] = [*open_, link]
        ready = select.select(watched, [], [], max(left, 0))[0]
        if left <= 0:
            outcome.printed = printed.decode(errors="replace")
            return False
        if ready == [link]:  # it has ended, and a process that was forked meanwhile has its pipe
            break
        if output in ready:
            more = os.read(output, 1 << 16)
            outcome.printed_bytes += len(more)
            printed += more[: max(0, job.limits.output_bytes - len(printed))]
            open_ -= set() if more else {output}
        if results in ready:
            more = os.read(results, 1 << 16)
            data = _take_messages(data + more, outcome, listen)
            quiet_end = time.monotonic() + job.quiet_s
            open_ -= set() if more else {results}
    outcome.printed = printed.decode(errors="replace")
    return True


def _take_messages(
    data: bytes, outcome: Outcome, listen: Callable[[str, Any], None] | None
) -> bytes:
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
            outcome.told.append((kind, what))
            if listen:
                listen(kind, what)
        data = data[size:]
    return data


def result_of(outcome: Outcome, name: str) -> Any:
    """The result of a job. Raises what it raised, or `KernelEnded`."""
    if outcome.ended:
        raise KernelEnded(f"{name} gave no result: {outcome.ended}")
    if outcome.error is not None:
        raise outcome.error
    return outcome.result
