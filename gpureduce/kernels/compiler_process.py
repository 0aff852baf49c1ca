"""Runs compilers with limits, and so that none of their processes outlives a call or its caller.

Each compiler is the leader of a session, in which a shell waits for the end of a socket: closed by
this process, or by the operating system when this process ends. It then ends the whole session.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from gpureduce.kernels import sockets
from gpureduce.kernels.source_text import KernelError

# For each process. g++, clang++, nvcc and NVRTC take less than 0.4 GiB for any kernel of the tests.
_MEMORY_BYTES = 2 << 30
_FILE_BYTES = 256 << 20
_SAID_BYTES = 1 << 20  # of messages are kept
_VERSION_S = 15
_SHELL = """exec 3<&0 </dev/null
(read -r line; kill -KILL 0) <&3 >/dev/null 2>&1 &
exec 3<&-
ulimit -v {memory} 2>/dev/null
ulimit -f {file} 2>/dev/null
ulimit -c 0 2>/dev/null
ulimit -t {seconds} 2>/dev/null
exec "$@"
"""
_BEYOND = (
    (
        r"out of memory|memory exhausted|[Cc]annot allocate memory|bad_alloc|Killed|"
        "catastrophic error processing",
        f"the compiler needs more than {_MEMORY_BYTES >> 30} GiB of memory for the kernel: take "
        "smaller arrays with initial values, fewer nested templates and macros, and include only "
        "files that end",
    ),
    (
        r"File too large|[Ff]ile size limit",
        f"the compiled kernel takes more than {_FILE_BYTES >> 20} MiB: take smaller arrays with "
        "initial values",
    ),
    (
        r"relocation truncated to fit|relocation R_\w+ out of range",
        "the kernel's global arrays take more than 2 GiB: take smaller ones",
    ),
)


def beyond_a_limit(said: str) -> str:
    """The limit that a compiler reached, by its messages, in a sentence; empty for none."""
    return next((why for pattern, why in _BEYOND if re.search(pattern, said)), "")


def version(command: Sequence[str]) -> str:
    """The version that a compiler prints; empty if it fails. Raises RuntimeError if it hangs."""
    try:
        ((status, said),) = run([[*command, "--version"]], Path(tempfile.gettempdir()), _VERSION_S)
    except KernelError:
        words = f"{' '.join(command)} --version"
        raise RuntimeError(f"{words} took more than {_VERSION_S} s and was ended") from None
    return "" if status else said


def run(commands: Sequence[Sequence[str]], folder: Path, seconds: float) -> list[tuple[int, str]]:
    """Runs commands at the same time, in a folder. Returns the status and messages of each.

    Raises KernelError if they take longer than `seconds`.
    """
    started: list[subprocess.Popen[bytes]] = []
    ours, theirs = sockets.pair()
    with ours:  # closed even if a process was started and is not yet in the list
        try:
            with theirs:
                for command in commands:
                    started.append(_start(command, folder, theirs, seconds))
            said = _messages(started, time.monotonic() + seconds)
            statuses = [process.wait(seconds) for process in started]
        except (TimeoutError, subprocess.TimeoutExpired):
            raise KernelError(f"the compiler took more than {seconds:g} s and was ended") from None
        finally:
            for process in started:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                assert process.stdout is not None
                process.stdout.close()
    return list(zip(statuses, said, strict=True))


def _start(
    command: Sequence[str], folder: Path, theirs: socket.socket, seconds: float
) -> subprocess.Popen[bytes]:
    limits = {"memory": _MEMORY_BYTES >> 10, "file": _FILE_BYTES >> 9, "seconds": int(seconds) + 5}
    # A sanitizer that is preloaded reserves more address space than any limit allows.
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    environment |= {"LC_ALL": "C.UTF-8", "TMPDIR": str(folder)}  # files that are left go with it
    return subprocess.Popen(
        ["/bin/sh", "-c", _SHELL.format(**limits), "sh", *command], cwd=folder, env=environment,
        stdin=theirs.fileno(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        start_new_session=True,
    )  # fmt: skip


def _messages(started: Sequence[subprocess.Popen[bytes]], end: float) -> list[str]:
    """What processes print until they end. Raises TimeoutError if that is too late."""
    said = [bytearray() for _ in started]
    running = {process.stdout.fileno(): i for i, process in enumerate(started) if process.stdout}
    while running:
        left = end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        found = sockets.ready(running, min(left, 1))
        for descriptor in found:
            text = said[running[descriptor]]
            more = os.read(descriptor, 1 << 16)
            text += more[: _SAID_BYTES - len(text)]
            if not more:
                del running[descriptor]
        if not found:  # a child of fork() may hold a pipe open
            running = {d: i for d, i in running.items() if started[i].poll() is None}
    return [text.decode(errors="replace") for text in said]
