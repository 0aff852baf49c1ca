"""No process outlives the call or the program that it works for: kernels, servers, compilers."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import gpureduce
from gpureduce.core import schedule
from gpureduce.kernels import compiler_process, compiling, cubins, nvrtc, process
from gpureduce.kernels.worker import Job
from user_kernels import TREE, plain

pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="no compiler")
PREPARE = """
import contextlib, os, random, signal, subprocess, sys, threading, time
import numpy as np, gpureduce
from gpureduce.kernels import process

HEAD = "#include <unistd.h>\\n__global__ void f(const float *in, float *out, size_t n) "
array = np.ones(9, np.float32)

def kernel(body, seconds=60):
    made = gpureduce.kernel(HEAD + "{ " + body + " }", limits=gpureduce.Limits(seconds=seconds))
    made.loaded([("f32", "f32")])  # compiled now
    return made

sleeper = kernel("*out = *in; while (n) usleep(100000);")
quick = kernel("*out = *in;")
gpureduce.sum(array, quick)  # the server runs
"""


@pytest.fixture
def mark(monkeypatch) -> Iterator[str]:
    """An environment variable that all processes of a test inherit."""
    name = f"GPUREDUCE_TEST={os.getpid()}.{time.monotonic_ns()}"
    monkeypatch.setenv(*name.split("="))
    yield name
    for pid in marked(name):
        os.kill(pid, signal.SIGKILL)


def marked(mark: str) -> dict[int, str]:
    """The processes that inherited a mark, with their command lines; none that have ended."""
    found = {}
    for entry in Path("/proc").iterdir():
        try:
            if mark.encode() in (entry / "environ").read_bytes().split(b"\0"):
                found[int(entry.name)] = (entry / "cmdline").read_text().replace("\0", " ")
        except (OSError, ValueError):
            continue
    return found


def all_end(mark: str, seconds: float = 10) -> bool:
    return within(seconds, lambda: not marked(mark))


def within(seconds: float, holds: Callable[[], object]) -> bool:
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def started(code: str) -> subprocess.Popen[str]:
    """A program that has printed its first line."""
    caller = subprocess.Popen(
        [sys.executable, "-P", "-c", PREPARE + code], text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert caller.stdout.readline() == "ready\n", caller.communicate()
    return caller


def is_running(mark: str, child_of: str = "worker.serve", count: int = 2) -> bool:
    """Whether a job runs: the server and its child have the same command line."""
    return sum(child_of in line for line in marked(mark).values()) == count


class Interrupted(BaseException):
    """Raised by a signal handler."""


RUN = "print('ready', flush=True)\ngpureduce.sum(array, sleeper)\n"

# --- a caller that is interrupted, or that ends --------------------------------------------------

INTERRUPTED = """
class Interrupted(BaseException): pass
def interrupt(*_):
    if again:
        signal.setitimer(signal.ITIMER_REAL, 1e-6 + random.random() * 0.002)
        again.pop()
    raise Interrupted
signal.signal(signal.SIGALRM, interrupt)
random.seed(int(sys.argv[1]))
print("ready", flush=True)
again = []
for i in range(12):
    gpureduce.sum(array, quick)
    again = [0] * (i % 2)
    with contextlib.suppress(Interrupted):  # the second one
        with contextlib.suppress(Interrupted):
            signal.setitimer(signal.ITIMER_REAL, 1e-4 + random.random() * 0.02)
            gpureduce.sum(array, sleeper)
        signal.setitimer(signal.ITIMER_REAL, 0)
process._stop()
print("done", flush=True)
sys.stdin.read()
"""


def test_an_interrupted_call_leaves_no_process_and_no_message(mark):
    """29 of 40 kernels went on, and their servers printed tracebacks."""
    done = subprocess.Popen(
        [sys.executable, "-P", "-c", PREPARE + INTERRUPTED, "1"], text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert [done.stdout.readline() for _ in range(2)] == ["ready\n", "done\n"]
    assert within(5, lambda: list(marked(mark)) == [done.pid]), marked(mark)
    assert done.communicate("", timeout=60)[1] == ""


def skip_if_ignored(number):
    if signal.getsignal(number) is signal.SIG_IGN:
        pytest.skip(f"{number.name} is ignored here: by nohup, or in the background of a shell")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_caller_that_a_signal_ends_leaves_no_process(mark, number):
    skip_if_ignored(number)
    caller = started(RUN)
    assert within(20, lambda: is_running(mark))
    caller.send_signal(number)
    assert caller.communicate(timeout=60) == ("", "")
    assert all_end(mark)


def test_a_fork_of_the_caller_does_not_keep_the_server(mark):
    """It has the socket to the server, too, which is not closed with the caller then."""
    caller = started("threading.Timer(1, lambda: os.fork() or time.sleep(60)).start()\n" + RUN)
    assert within(20, lambda: is_running(mark))
    assert within(20, lambda: len(marked(mark)) == 4)  # the fork has no server
    caller.kill()
    caller.wait()
    assert within(10, lambda: is_running(mark, count=0)), marked(mark)
    assert len(marked(mark)) == 1  # the fork


def test_a_server_that_is_ended_takes_the_kernel_with_it(mark):
    caller = started(RUN)
    assert within(20, lambda: is_running(mark))
    server = min(pid for pid, line in marked(mark).items() if "worker.serve" in line)
    os.kill(server, signal.SIGKILL)
    assert "the process for kernels of yours has ended; call again" in caller.communicate()[1]
    assert all_end(mark)


def test_a_server_that_cannot_start_says_why(monkeypatch, tmp_path):
    """Nothing is printed but what the caller raises."""
    kernel = gpureduce.kernel(TREE)
    kernel.loaded([("f64", "f64")])
    (tmp_path / "python").write_text("#!/bin/sh\necho a reason >&2; exit 1\n")
    (tmp_path / "python").chmod(0o755)
    process._stop()
    with monkeypatch.context() as changed:
        changed.setattr(sys, "executable", str(tmp_path / "python"))
        for delay in (0, 0.3):
            process.start()
            time.sleep(delay)
            with pytest.raises(RuntimeError, match=r"for kernels .* has ended: a reason"):
                gpureduce.sum(np.ones(3), kernel)
    assert gpureduce.sum(np.ones(3), kernel).value == 3


@pytest.mark.parametrize(
    "how",
    [
        "threading.Thread(target=gpureduce.sum, args=(array, sleeper), daemon=True).start()",
        "atexit.register(gpureduce.sum, array, quick)",
        "atexit.register(process.start)",
        "import weakref; weakref.finalize(process, gpureduce.sum, array, quick)",
    ],
)
def test_a_program_that_ends_meanwhile(mark, how):
    end = "\nprint('ready', flush=True)\ntime.sleep(0.3)\nsys.exit(0)"
    caller = started("import atexit\n" + how + end)
    assert caller.communicate(timeout=60) == ("", "")
    assert all_end(mark)


def test_a_kernel_has_a_clock_of_its_own(mark):
    """For a caller that is stopped, as by Ctrl-Z."""
    caller = started("sleeper = kernel('*out = *in; for (;;) usleep(100000);', seconds=1)\n" + RUN)
    assert within(20, lambda: is_running(mark))
    caller.send_signal(signal.SIGSTOP)
    assert within(10, lambda: is_running(mark, count=1)), "the kernel runs longer than its limit"
    caller.send_signal(signal.SIGCONT)
    said = caller.communicate(timeout=60)[1]
    assert "f gave no result: it took more than 1 s and was ended" in said
    assert all_end(mark)


def test_a_result_counts_that_came_while_the_caller_was_stopped(mark):
    caller = started(
        "slow = kernel('if (!threadIdx.x) usleep(300000); *out = 5;', seconds=1)\n"
        "print('ready', flush=True)\nprint(gpureduce.sum(array, slow, timing=False)[0])"
    )
    time.sleep(0.1)
    caller.send_signal(signal.SIGSTOP)
    time.sleep(1.5)
    caller.send_signal(signal.SIGCONT)
    assert caller.communicate(timeout=60) == ("5.0\n", "")


def test_a_caller_with_many_open_files(mark):
    """select() takes descriptors up to 1023."""
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 1200:
        pytest.skip("fewer files can be open")
    code = (
        "import resource\n"
        "hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))\n"
        "files = [open(os.devnull) for _ in range(1100)]\n"
        "process._stop()\n"
        "print('ready', flush=True)\n"
        "print(gpureduce.sum(array, kernel('*out = 7;'))[0])"
    )
    assert started(code).communicate(timeout=60) == ("7.0\n", "")


# --- compilers -----------------------------------------------------------------------------------

# A compiler that does not end, has a child that is deaf to most signals, and prints its version.
DEAF = """#!/bin/sh
[ "$1" = --version ] && echo deaf && exit
trap "" TERM INT HUP
(trap "" TERM INT HUP; sleep 100; sleep 100) &
sleep 100
sleep 100
"""


@pytest.fixture
def _deaf(tmp_path, monkeypatch, mark):
    (tmp_path / "c++").write_text(DEAF)
    (tmp_path / "c++").chmod(0o755)
    monkeypatch.setenv("CXX", str(tmp_path / "c++"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def compilers(mark: str) -> list[int]:
    return [pid for pid, line in marked(mark).items() if "sleep" in line or "c++" in line]


@pytest.mark.usefixtures("_deaf")
def test_a_compiler_that_takes_too_long_is_ended_with_its_children(mark, monkeypatch, tmp_path):
    """Their parent was ended, and the call waited for them."""
    monkeypatch.setattr(compiling, "_TIME_S", 0.5)
    start = time.monotonic()
    with pytest.raises(gpureduce.KernelError, match=r"took more than 0\.5 s and was ended"):
        gpureduce.sum(np.ones(3), gpureduce.kernel(TREE))
    assert time.monotonic() - start < 20 and within(2, lambda: not compilers(mark))
    kept = (tmp_path / "cache/gpureduce/kernels").iterdir()
    assert all(path.name.startswith("headers-") for path in kept)


@pytest.mark.usefixtures("_deaf")
def test_a_compiler_that_does_not_even_print_its_version(mark, monkeypatch, tmp_path):
    """The call waited for ever."""
    (tmp_path / "c++").write_text(DEAF.replace("--version", "--versions"))
    monkeypatch.setattr(compiler_process, "_VERSION_S", 0.5)
    compiling._compiler.cache_clear()
    for probe in (compiling.compiler, lambda: cubins._version(str(tmp_path / "c++"))):
        with pytest.raises(RuntimeError, match=r"c\+\+ --version took more than 0\.5 s"):
            probe()
    assert within(2, lambda: not compilers(mark))


@pytest.mark.usefixtures("_deaf")
def test_a_compiler_by_a_relative_path(monkeypatch, tmp_path):
    """It runs in another folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CXX", "./c++")
    assert compiling.compiler().command == (str(tmp_path / "c++"),)


COMPILE = """
import signal, sys
import gpureduce
print("ready", flush=True)
text = "__global__ void f(const float *in, float *out, size_t n) { *out = *in; }"
gpureduce.kernel(text).loaded([("f32", "f32")])
"""


@pytest.mark.usefixtures("_deaf")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_compiler_ends_with_its_caller(mark, number):
    skip_if_ignored(number)
    caller = subprocess.Popen([sys.executable, "-P", "-c", COMPILE], stderr=subprocess.DEVNULL)
    assert within(30, lambda: len(compilers(mark)) >= 6), marked(mark)
    caller.send_signal(number)
    caller.wait(20)
    assert all_end(mark), marked(mark)


@pytest.mark.usefixtures("_deaf")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_no_signal_leaves_a_compiler(mark):
    """At any time: before it runs, while it starts, while it is being ended.

    Python warns of files that subprocess.Popen has opened when it is interrupted, and may close the
    same file twice when it removes a folder.
    """

    def interrupt(*_: object) -> None:
        if again:
            signal.setitimer(signal.ITIMER_REAL, again.pop())
        raise Interrupted

    before, kernel = signal.signal(signal.SIGALRM, interrupt), gpureduce.kernel(TREE)
    compiling.compiler()
    compiling.header_folder()
    try:
        for i in range(30):
            again = [1e-5 * i] * (i % 3 == 0)
            with contextlib.suppress(Interrupted):  # the second one
                with contextlib.suppress(Interrupted, OSError):
                    signal.setitimer(signal.ITIMER_REAL, 0.001 + 0.0005 * i)
                    kernel.loaded([("u32", "u32")])
                signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert within(5, lambda: not compilers(mark)), marked(mark)


HOSTILE = {
    "a device": ('#include "/dev/zero"', "more than 2 GiB of memory"),
    "repetitions": (
        r'asm(".data\n.rept 2000000000\n.quad 1\n.endr");',
        "more than 2 GiB of memory",
    ),
    "initial values": ("__device__ int large[1ul << 31] = {1};", "takes more than 256 MiB"),
    "a large array": ("__device__ char large[1ul << 33];", "take more than 2 GiB"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_compilation_has_limits(name, monkeypatch):
    monkeypatch.setattr(compiler_process, "_MEMORY_BYTES", 1 << 29)  # less is reached sooner
    line, message = HOSTILE[name]
    use = " + large[n]" * ("large" in line)
    k = gpureduce.kernel(f"{line}\n" + plain(f"out[0] = in[0]{use};"))
    start = time.monotonic()
    with pytest.raises(gpureduce.KernelError, match=message):
        gpureduce.sum(np.ones(3, np.float32), k)
    assert time.monotonic() - start < 50


@pytest.mark.skipif(not nvrtc.find(), reason="no NVRTC")
def test_nvrtc_ends_at_once_when_it_is_interrupted(tmp_path, monkeypatch, mark):
    """It did not until it had compiled. It takes longer for this text than anybody waits."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    names = "\n".join(f"#define M{i} " + f"M{i - 1} " * 4 * (i > 1) for i in range(1, 40))
    text = names.replace("#define M1 ", "#define M1 +1") + "\n" + plain("out[0] = in[0] M39;")
    k = gpureduce.kernel(text)

    def interrupt(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 1)
        start = time.monotonic()
        with pytest.raises(Interrupted):
            cubins.cubin(k.source, k.signature, ("f32", "f32"), 90, "nvrtc")
        assert time.monotonic() - start < 3
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert within(5, lambda: not any("nvrtc.py" in line for line in marked(mark).values()))


def test_the_processor_time_of_a_tree_of_processes():
    code = "import time\nwhile time.process_time() < 0.5: pass\ntime.sleep(60)"
    top = subprocess.Popen(["sh", "-c", f"{sys.executable} -c '{code}'; exit"],
                           start_new_session=True)  # fmt: skip
    assert within(60, lambda: process.cpu_s_of_tree(top.pid) >= 0.4)
    os.killpg(top.pid, signal.SIGKILL)
    top.wait()
    assert process.cpu_s_of_tree(top.pid) == 0


@pytest.mark.parametrize(("body", "ends"), [
    ("usleep(600000);", False),  # as one that waits for a processor
    ("usleep(4000000);", True),
    ("for (volatile long k = 0; n && k < 3000000000; k++) ;", True),
])  # fmt: skip
def test_a_quiet_kernel_that_gets_no_processor_has_more_time(body, ends):
    text = "#include <unistd.h>\n" + plain(f"if (threadIdx.x) return; {body} *out = 9;")
    k = gpureduce.kernel(text, elements="many", alone=True, finishes=True)
    how = {"dtype": None, "block": 32, "grid": None, "finish": None, "timing": False,
           "order": schedule.current()}  # fmt: skip
    loaded, ones = k.loaded([("f32", "f32")]), np.ones(1, np.float32)
    job = Job("gpureduce.kernels.jobs", "add", loaded, (ones,), how, k.limits, 0.4)
    assert (process.run(job).ended == "it took more than 0.4 s and was ended") is ends
