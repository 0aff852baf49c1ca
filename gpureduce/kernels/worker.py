"""The process that runs users' kernels: a server that has gpureduce loaded, and a child per job.

The server never runs a kernel. For each job it forks a child, which limits itself, loads the
kernel, does the job, and ends. process.py is the other side.

The server ends when the caller does: its end of the socket is closed then. The child ends when the
server does, by a signal of the operating system. Its time is limited by a clock of its own, too.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import io
import os
import pickle
import resource
import signal
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, is_dataclass, replace
from typing import Any, BinaryIO, ClassVar

import numpy as np

from gpureduce import _emulator, _emulator_traced
from gpureduce.core import registry, sources
from gpureduce.core.checks import finite, whole
from gpureduce.core.results import SumResult
from gpureduce.errors import CudaError
from gpureduce.kernels import faults, variables
from gpureduce.kernels.emulated_text import for_the_emulator
from gpureduce.kernels.programs import modern
from gpureduce.kernels.sockets import ready
from gpureduce.kernels.source_text import KernelError
from gpureduce.lazy_import import load

HEAD = struct.Struct("<Q")
MOST_SECONDS = 1e8  # of a job: three years, which setrlimit and setitimer take
_GRACE_S = 2  # for the caller to end a child whose time is over; then its own clock does
_LOOK_S = 5  # an idle server looks this often whether its caller has ended
_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 22, 38
_libc = ctypes.CDLL(None)
# Of a machine: its number in a filter of system calls, and the calls that start a process.
_STARTS = {"x86_64": (0xC000003E, 56, 57, 58, 435), "aarch64": (0xC00000B7, 220, 435)}


@dataclass(frozen=True)
class Limits:
    """What a job may take.

    Attributes
    ----------
    seconds
        Its time, by the clock.
    memory_bytes
        Its memory, beyond that of the process when the job begins.
    output_bytes
        What is kept of the text that it prints.

    Examples
    --------
    >>> import gpureduce
    >>> text = "__global__ void f(const float *in, float *out, size_t n) { out[0] = in[0]; }"
    >>> gpureduce.kernel(text, limits=gpureduce.Limits(seconds=2)).limits.seconds
    2
    """

    seconds: float = 20.0
    memory_bytes: int = 2 << 30
    output_bytes: int = 1 << 16

    def __post_init__(self) -> None:
        """Raises for limits that no job can keep."""
        if not 0 < finite("seconds", self.seconds) <= MOST_SECONDS:
            raise ValueError(
                f"seconds must be above 0 and at most {MOST_SECONDS:g}, not {self.seconds!r}"
            )
        whole("memory_bytes", self.memory_bytes, 1 << 26, 1 << 62)
        whole("output_bytes", self.output_bytes, 0, 1 << 30)

    def times(self, count: int) -> Limits:
        """The limits of a job that has this many calls."""
        return replace(self, seconds=min(self.seconds * count, MOST_SECONDS))


@dataclass(frozen=True)
class Loaded:
    """A compiled kernel for a job: its libraries by build, and the strategy that runs it.

    `text` is its source, and `file` the name of that in reports.
    """

    name: str
    file: str
    text: str
    traits: int
    dtypes: tuple[str, ...]
    finishes: tuple[str, ...]
    plain: tuple[str, ...]
    traced: tuple[str, ...]
    pair: tuple[int, int] | None
    kind: str = "kernel"
    on_card: ClassVar[bool] = False

    @property
    def compiled_text(self) -> str:
        """The text that the emulator's compiler read."""
        return for_the_emulator(modern(self.text))

    def strategy(self) -> registry.Strategy:
        """Loads the kernel into both builds of the emulator."""
        _emulator.guard_memory()
        _emulator_traced.guard_memory()
        index = _emulator.add_kernel(self.name, self.traits, self.plain)
        if index != _emulator_traced.add_kernel(self.name, self.traits, self.traced):
            raise RuntimeError("the two builds of the emulator number their strategies differently")
        sources.add(self.file, self.text)
        variables.loaded += [*self.plain, *self.traced]
        how = (self.finishes, index, self.traits, self.pair, self.kind)
        return registry.added(self.name, self.dtypes, *how)


@dataclass(frozen=True)
class Job:
    """A call: the module and the name of a function, and its arguments.

    The function gets the strategy first, and then a function that tells something to the caller. A
    job that tells nothing for `quiet_s` seconds is ended.
    """

    module: str
    function: str
    kernel: Any  # Loaded, or on_card.OnCard
    arguments: tuple[Any, ...]
    named: dict[str, Any]
    limits: Limits
    quiet_s: float = float("inf")


def write(stream: BinaryIO, what: object) -> None:
    """Writes one message: its length, then the pickle."""
    data = pickle.dumps(what)
    stream.write(HEAD.pack(len(data)) + data)
    stream.flush()


_BASES = (SumResult, tuple, BaseException, np.generic, np.ndarray, np.dtype)
_OF_NUMPY = ("scalar", "_reconstruct", "_frombuffer")  # which make its scalars and arrays


class _Careful(pickle.Unpickler):
    """Loads data only: data classes, tuples, numbers and arrays, and errors.

    The other functions of these packages, and of the modules that they import, run code.
    """

    def find_class(self, module: str, name: str) -> Any:
        package = module.partition(".")[0]
        if package in ("builtins", "gpureduce", "numpy", "ml_dtypes") and "." not in name:
            found = super().find_class(module, name)
            if isinstance(found, type) and (is_dataclass(found) or issubclass(found, _BASES)):
                return found
            if package == "numpy" and name in _OF_NUMPY:
                return found
        raise pickle.UnpicklingError(f"{module}.{name} is not expected from a kernel's process")


def read(data: bytes | bytearray) -> Any:
    """A message that a child wrote."""
    return _Careful(io.BytesIO(data)).load()


def _at_most(what: int, most: int) -> None:
    hard = resource.getrlimit(what)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(what, (most, most))


def _limit_time(limits: Limits) -> None:
    """For a kernel on a card, which cannot reach the host. The driver needs files and threads."""
    _at_most(resource.RLIMIT_CPU, int(limits.seconds) + _GRACE_S)
    _at_most(resource.RLIMIT_CORE, 0)
    signal.setitimer(signal.ITIMER_REAL, limits.seconds + _GRACE_S)


def _limit(limits: Limits) -> None:
    with open("/proc/self/statm") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    _limit_time(limits)
    _at_most(resource.RLIMIT_AS, now + limits.memory_bytes)
    _at_most(resource.RLIMIT_FSIZE, 0)
    _at_most(resource.RLIMIT_NOFILE, 64)
    _at_most(resource.RLIMIT_NPROC, 0)
    _start_no_process()


def _start_no_process() -> None:
    """Root's kernels start none, either, whom RLIMIT_NPROC does not limit: fork() gives EPERM."""
    machine, *calls = _STARTS.get(os.uname().machine, (0,))
    load, equal, at_least, give, most = 0x20, 0x15, 0x35, 0x06, len(calls)
    rows = [(load, 0, 0, 4), (equal, 0, most + 3, machine), (load, 0, 0, 0)]
    rows += [(at_least, most + 1, 0, 1 << 30)]  # those of the x32 ABI
    rows += [(equal, most - i, 0, call) for i, call in enumerate(calls)]
    rows += [(give, 0, 0, 0x7FFF0000), (give, 0, 0, 0x00050000 | errno.EPERM)]
    text = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *row) for row in rows))
    if calls and _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0:
        _libc.prctl(_PR_SET_SECCOMP, 2, struct.pack("HP", len(rows), ctypes.addressof(text)))


def _do(job: Job, results: BinaryIO) -> None:
    module = __import__(job.module, fromlist=[job.function])
    function: Callable[..., Any] = getattr(module, job.function)
    # Code of the kernel runs as soon as its library is loaded: the constructors of globals.
    (_limit_time if job.kernel.on_card else _limit)(job.limits)
    try:
        strategy = job.kernel.strategy()
    except ImportError as error:
        raise KernelError(
            f"{error}: the kernel's global arrays count towards "
            f"limits.memory_bytes={job.limits.memory_bytes}"
        ) from None

    def tell(kind: str, what: object) -> None:
        write(results, (kind, what))

    tell("result", function(strategy, tell, *job.arguments, **job.named))


def end_with(parent: int) -> None:
    """Has a signal end this process when its parent ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it has ended before
        os._exit(1)


def _child(server: int, data: bytearray, results_fd: int, output_fd: int) -> None:
    """Does one job. Never returns, and runs no destructor of a kernel."""
    status = 1
    try:
        end_with(server)
        os.setsid()
        os.dup2(output_fd, 1)
        os.dup2(output_fd, 2)
        os.close(output_fd)
        with contextlib.suppress(BrokenPipeError), os.fdopen(results_fd, "wb") as results:
            try:
                _do(pickle.loads(data), results)
                status = 0
            except CudaError as error:
                said = faults.readable(str(error), pickle.loads(data).kernel.compiled_text)
                write(results, ("cuda error", (said, error.name)))
            except Exception as error:
                write(results, ("error", error))
    finally:
        os._exit(status)


def _outlasts(link: socket.socket, caller: int, child: int) -> bool:
    """Waits for the child's end. False if the caller ends or gives up before."""
    pause = 0.0005
    while not os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
        # While a job runs, the caller sends nothing: `ready` means that it has closed its end. If
        # another process holds that end open, too, only the parent's number tells of the end.
        if ready([link.fileno()], pause) or os.getppid() != caller:
            return False
        pause = min(pause * 1.5, 0.01)
    return True


def received(link: socket.socket, size: int) -> bytearray | None:
    """So many bytes; None if the other process has ended."""
    data = bytearray(size)
    rest = memoryview(data)
    while rest and (count := link.recv_into(rest)):
        rest = rest[count:]
    return None if rest else data


def _serve_job(link: socket.socket, caller: int) -> bool:
    """Waits for a job and does it. False if the caller ends or gives up before."""
    while not ready([link.fileno()], _LOOK_S):
        if os.getppid() != caller:
            return False
    head, descriptors, _, _ = socket.recv_fds(link, HEAD.size, 2)
    data = received(link, HEAD.unpack(head)[0]) if head else None
    if data is None:
        return False
    server, child = os.getpid(), os.fork()
    if not child:
        link.close()
        _child(server, data, *descriptors)
    del data  # an array may be large
    for descriptor in descriptors:
        os.close(descriptor)
    try:
        link.sendall(HEAD.pack(child))
        is_wanted = _outlasts(link, caller, child)
    finally:
        os.kill(child, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child, signal.SIGKILL)  # what the kernel may have started
        status = os.waitpid(child, 0)[1]
    if is_wanted:
        link.sendall(HEAD.pack(status))
    return is_wanted


def serve(number: int, caller: int) -> None:
    """Serves a process at the other end of this socket until it closes its end. Never returns."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal: the other process decides
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # the caller's may be ignored or blocked
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for name in ("examination", "check_on_card", "jobs"):  # so that no child imports them
        load(f"kernels.{name}")
    link = socket.socket(fileno=number)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it has closed its end
        while _serve_job(link, caller):
            pass
    os._exit(0)
