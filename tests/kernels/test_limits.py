"""Kernels that take too much, or reach for files and processes: they end, and harm nothing."""

from __future__ import annotations

import errno
import io
import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import gpureduce
from cases import run_python
from gpureduce.kernels import process, worker
from user_kernels import TREE, plain

pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="no compiler")
HEADERS = "".join(
    f"#include <{name}>\n" for name in "stdio.h stdlib.h unistd.h fcntl.h sys/wait.h".split()
)
FAST = gpureduce.Limits(seconds=2, memory_bytes=256 << 20)


def value_of(body: str, limits: gpureduce.Limits = FAST, head: str = "") -> float:
    text = HEADERS + head + plain(f"if (threadIdx.x + blockIdx.x) return;\n{body}")
    k = gpureduce.kernel(text, limits=limits)
    k.loaded([("f32", "f32")])  # compiled now, so that the caller's time is that of the kernel
    return float(gpureduce.sum(np.ones(8, np.float32), k).value)


def test_time():
    start = time.monotonic()
    with pytest.raises(gpureduce.KernelEnded, match="more than 2 s"):
        value_of("for (volatile int x = 1; x;) {}")
    assert time.monotonic() - start < 8
    assert value_of("out[0] = in[0];") == 1


def test_memory():
    assert value_of("out[0] = malloc(size_t(1) << 30) == 0;") == 1
    assert value_of("out[0] = malloc(size_t(1) << 20) != 0;") == 1


def test_files(tmp_path):
    path = tmp_path / "file"
    body = f'int f = open("{path}", O_CREAT | O_WRONLY, 0600); out[0] = write(f, "x", 1);'
    assert value_of(body) == -1
    assert not path.exists() or path.stat().st_size == 0


def test_code_that_runs_when_a_library_is_loaded_has_the_limits(tmp_path):
    """The constructors of globals wrote files and took any memory."""
    path = tmp_path / "file"
    head = f"""static int written, got;
    static struct Global {{
        Global()
        {{
            written = write(open("{path}", O_CREAT | O_WRONLY, 0600), "x", 1);
            got = malloc(size_t(1) << 30) != nullptr;
        }}
    }} global;
    """
    assert value_of("out[0] = 10 * written + got;", head=head) == -10
    assert path.stat().st_size == 0
    with pytest.raises(gpureduce.KernelEnded, match="more than 2 s"):
        value_of("out[0] = 1;", head="static struct Global { Global() { for (;;) usleep(9); } } g;")


def test_no_code_of_a_kernel_runs_after_its_job(capfd):
    late = 'fprintf(stderr, "late\\n");'
    head = f"static void late() {{ {late} }}\n"
    head += (
        f"static struct Global {{ Global() {{ atexit(late); }} ~Global() {{ {late} }} }} global;\n"
    )
    assert value_of("out[0] = 6;", head=head) == 6
    assert capfd.readouterr() == ("", "")


def test_a_library_that_the_limit_of_memory_does_not_allow():
    head = "__device__ char large[1ul << 30];\n"
    with pytest.raises(gpureduce.KernelError, match=r"global arrays count .*=268435456"):
        value_of("out[0] = large[n];", head=head)
    plenty = gpureduce.Limits(memory_bytes=3 << 30)
    assert value_of("out[0] = 1 + large[n];", plenty, head) == 1
    # Code is allowed for: the least memory is enough for a kernel of eight pairs of types.
    k = gpureduce.kernel(TREE, limits=gpureduce.Limits(memory_bytes=1 << 26))
    assert gpureduce.sum(np.ones(1000, np.int8), k).value == 1000


@pytest.mark.parametrize("call", ["fork()", "vfork()", "syscall(SYS_clone3, 0, 0)"])
def test_processes(call):
    """Root's kernels start none, either."""
    body = f"int p = {call}; if (!p) _exit(0); out[0] = p < 0 ? errno : 0;"
    head = "#include <errno.h>\n#include <sys/syscall.h>\n"
    assert value_of(body, head=head) in (errno.EPERM, errno.EAGAIN)


def test_the_longest_time():
    assert value_of("out[0] = in[0];", gpureduce.Limits(seconds=worker.MOST_SECONDS)) == 1
    assert gpureduce.Limits(seconds=worker.MOST_SECONDS).times(3).seconds == worker.MOST_SECONDS


def test_a_large_array_goes_to_the_process_in_linear_time():
    """256 MiB took two minutes: each part that came was added to a copy of those before it."""
    mine, other = socket.socketpair()
    array = bytes(1 << 28)
    sender = threading.Thread(target=mine.sendall, args=[array])
    sender.start()
    start = time.monotonic()
    assert worker.received(other, len(array)) == array
    sender.join()
    assert time.monotonic() - start < 30  # less than 1
    mine.close()
    assert worker.received(other, 1) is None
    other.close()


def test_the_server_comes_back():
    assert value_of("out[0] = 3;") == 3
    assert process._server is not None
    process._server.process.kill()
    process._server.process.wait()
    assert value_of("out[0] = 4;") == 4


def test_an_error_in_the_process_is_the_callers():
    k = gpureduce.kernel(plain("out[0] = in[0];"))
    with pytest.raises(ValueError, match="block must be"):
        gpureduce.explain(k, n=100, dtype="float32", block=7)
    with pytest.raises(ValueError, match="n must be from 1"):
        gpureduce.races(k, n=0)


HANGS = "for (volatile int x = 1; x;) {}"


def _children_of(pid: int) -> list[int]:
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as file:
                    fields = file.read().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == pid and fields[0] != "Z":
                found.append(int(entry))
    return found


def test_a_caller_that_is_interrupted_ends_the_kernel():
    def interrupt(signum, frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        assert value_of("out[0] = 1;") == 1  # the server runs
        with pytest.raises(gpureduce.KernelEnded):
            value_of(HANGS, gpureduce.Limits(seconds=0.2))
        server = process._server.process.pid
        signal.setitimer(signal.ITIMER_REAL, 1.5)
        with pytest.raises(KeyboardInterrupt):
            value_of(HANGS, gpureduce.Limits(seconds=60))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    time.sleep(0.5)
    assert not _children_of(server) and not os.path.exists(f"/proc/{server}")
    assert value_of("out[0] = 2;") == 2


def test_a_caller_that_dies_takes_the_kernel_with_it(tmp_path):
    text = HEADERS + plain(f"if (threadIdx.x + blockIdx.x) return;\n{HANGS}")
    code = (
        "import numpy as np, gpureduce\n"
        "from gpureduce.kernels import process\n"
        f"k = gpureduce.kernel({text!r}, limits=gpureduce.Limits(seconds=60))\n"
        "process.start()\n"
        "print(process._server.process.pid, flush=True)\n"
        "gpureduce.sum(np.ones(8, np.float32), k)\n"
    )
    caller = subprocess.Popen([sys.executable, "-P", "-c", code], stdout=subprocess.PIPE, text=True)
    server = int(caller.stdout.readline())
    end = time.monotonic() + 20
    while not (children := _children_of(server)) and time.monotonic() < end:
        time.sleep(0.05)
    assert children
    caller.kill()
    caller.wait()
    caller.stdout.close()
    while any(os.path.exists(f"/proc/{pid}") for pid in [*children, server]):
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"seconds": 0}, "seconds must be above 0"),
        ({"seconds": 1e10}, r"seconds must be above 0 and at most 1e\+08"),
        ({"seconds": float("nan")}, "seconds must be finite"),
        ({"memory_bytes": 5}, "memory_bytes must be from"),
        ({"output_bytes": -1}, "output_bytes must be from 0"),
    ],
)
def test_limits_that_cannot_be(limits, message):
    with pytest.raises(ValueError, match=message):
        gpureduce.Limits(**limits)


class TestMessages:
    """A kernel that writes to the descriptor of the results."""

    def test_garbage_is_no_result(self):
        """Whatever a kernel sends, the caller raises KernelEnded, soon and with little memory."""
        write = "for (int f = 3; f < 64; f++) {{ {} }}"
        for body in (
            'write(f, "some text instead of a message", 30);',
            "unsigned long long x = 1ull << 60; write(f, &x, 8);",
            'unsigned long long x = 3; write(f, &x, 8); write(f, "abc", 3);',
        ):
            with pytest.raises(gpureduce.KernelEnded, match="it sent what is no result"):
                value_of(write.format(body))
            assert value_of("out[0] = 5;") == 5

    @pytest.mark.parametrize(
        ("module", "name"),
        [
            ("gpureduce.kernels.process", "os.system"),
            ("gpureduce.kernels.process", "run"),
            ("gpureduce.kernels.process", "_Server"),
            ("numpy", "f2py.os.system"),
            ("numpy", "load"),
            ("numpy.testing", "rundocs"),
            ("builtins", "eval"),
            ("builtins", "Exception.__subclasses__"),
        ],
    )
    def test_no_function_is_called_for_it(self, module, name):
        names = b"".join(b"\x8c" + bytes([len(x)]) + x.encode() for x in (module, name))
        with pytest.raises(pickle.UnpicklingError, match="is not expected"):
            worker.read(b"\x80\x04" + names + b"\x93.")

    def test_numbers_and_arrays_are_read(self):
        import ml_dtypes

        for protocol in (4, 5):
            for one in (
                np.float32(2),
                np.arange(3.0),
                ml_dtypes.bfloat16(0.5),
                np.ones(2, ml_dtypes.bfloat16),
                gpureduce.sum([1.0, 2.0]),
                ValueError("text"),
            ):
                written = io.BytesIO()
                pickler = pickle.Pickler(written, protocol)
                pickler.dispatch_table = {}  # Dask registers its own functions for exceptions
                pickler.dump(one)
                found = worker.read(written.getvalue())
                assert type(found) is type(one) and str(found) == str(one)


class TestControlCharacters:
    """A kernel's output, and its text in messages, cannot command a terminal."""

    PRINTS = (
        r'printf("\x1b[2J\x1b]0;t\a \xc2\x9b" "31m a\rb\r\n\tgr\u00fc\u00df \u2192 ");'
        r'printf("\u202eabc\xff\n");'
    )
    SEEN = "\\x1b[2J\\x1b]0;t\\x07 \\x9b31m a\\rb\n\tgrüß → \\u202eabc\ufffd\n"

    @staticmethod
    def is_harmless(text):
        return all(char in "\n\t" or char.isprintable() for char in text)

    def test_in_a_verdict(self):
        prints = f"{{ if (!threadIdx.x && !blockIdx.x && n == 97) {{ {self.PRINTS} }}"
        verdict = gpureduce.check(TREE.replace("{", prints, 1), "int32", blocks=64)
        assert verdict.right
        assert verdict.printed.startswith(self.SEEN)
        for text in (str(verdict), verdict._repr_html_(), verdict.report(every=True)):
            assert self.is_harmless(text) and "\\x1b[2J" in text and "grüß → " in text

    def test_of_a_sum(self, capsys):
        value_of(self.PRINTS + "out[0] = 1;")
        assert capsys.readouterr().out == self.SEEN

    def test_in_faults_and_names_of_files(self):
        text = '#line 1 "\x1b[31m"\n' + plain('assert(in == nullptr && "\x1b[31m");')
        verdict = gpureduce.check(text, blocks=64)
        assert not verdict and self.is_harmless(str(verdict) + repr(verdict))
        grade = gpureduce.grade(text, {"require": [{"rule": "right"}], "blocks": "64"})
        assert self.is_harmless(str(grade) + grade._repr_html_())

    def test_in_what_a_compiler_says(self):
        with pytest.raises(gpureduce.KernelError, match=r"error: .*\\x1b\[31m") as error:
            gpureduce.check("#error \x1b[31m red\n" + TREE)
        assert self.is_harmless(str(error.value))


FORK = """
import os, sys, threading, time
import numpy as np, gpureduce
text = "__global__ void f(const float *in, float *out, size_t n)"
kernel = gpureduce.kernel(text + "{ if (!threadIdx.x) out[0] = in[0]; }", finishes=True)
array, ended = np.ones(8, np.float32), False
def work():
    while not ended:
        gpureduce.sum(array, kernel, timing=False)
gpureduce.sum(array, kernel)
thread = threading.Thread(target=work)
thread.start()
bad = 0
for _ in range(4):
    time.sleep(0.05)
    child = os.fork()
    if child == 0:
        os._exit(float(gpureduce.sum(array, kernel).value) != 1)
    bad += os.waitpid(child, 0)[1] != 0
ended = True
thread.join()
sys.exit(bad)
"""


@pytest.mark.skipif("LD_PRELOAD" in os.environ, reason="a sanitizer's malloc() may hang in a child")
def test_a_fork_while_another_thread_runs_a_kernel():
    """The child does not wait for a lock that no thread of it will release."""
    run_python(FORK, timeout=60)


def test_the_server_ends_with_its_caller_in_the_middle_of_a_job():
    code = (
        "import os, socket; from gpureduce.kernels import process, worker; process.start()\n"
        "link = process._server.link\n"
        "pipes = [*os.pipe(), *os.pipe()]\n"
        "socket.send_fds(link, [worker.HEAD.pack(1 << 20)], pipes[:2]); link.sendall(b'half')\n"
        "print(process._server.process.pid, flush=True); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True)
    server = Path(f"/proc/{int(done.stdout)}/stat")
    end = time.monotonic() + 20
    while server.exists() and server.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < end, "the process for kernels is still there"
        time.sleep(0.05)


HANDLER_CALLS = """
import signal
import numpy as np, gpureduce as g
from user_kernels import TREE

kernel = g.kernel(TREE)
calls = []

def handler(*_):
    calls.append(float(g.sum(np.ones(100, np.float32), kernel).value))

signal.signal(signal.SIGALRM, handler)
print(float(g.sum(np.ones(50, np.float32), kernel).value))
slow = g.kernel(
    "__global__ void f(const float *in, float *out, size_t n)"
    "{ if (threadIdx.x == 0)"
    " for (volatile size_t i = 0; i < 3000000000; i++) {} out[blockIdx.x] = in[0]; }",
    limits=g.Limits(seconds=100),
)
slow.loaded([("f32", "f32")])  # compiled now, so that the signal comes while it runs
signal.setitimer(signal.ITIMER_REAL, 0.1)
g.sum(np.ones(1, np.float32), slow, block=32, grid=1)
signal.setitimer(signal.ITIMER_REAL, 0)
print(calls[0], float(g.sum(np.ones(70, np.float32), kernel).value))
"""


def test_a_signal_handler_may_run_a_kernel_during_a_kernel():
    """The handler waited for ever for the lock of the call that it interrupted."""
    assert run_python(HANDLER_CALLS, timeout=200).split() == ["50.0", "100.0", "70.0"]


def test_a_pipe_that_another_process_holds_open_does_not_delay_a_result(monkeypatch):
    """As one does that another thread forks at the wrong moment: the call timed out."""
    kernel = gpureduce.kernel(TREE, limits=gpureduce.Limits(seconds=60))
    array = np.ones(100, np.float32)
    gpureduce.sum(array, kernel)
    held, send = [], process.socket.send_fds

    def send_and_hold(link, data, descriptors):
        held.extend(map(os.dup, descriptors))
        return send(link, data, descriptors)

    monkeypatch.setattr(process.socket, "send_fds", send_and_hold)
    start = time.perf_counter()
    try:
        assert gpureduce.sum(array, kernel).value == 100
    finally:
        for descriptor in held:
            os.close(descriptor)
    assert held and time.perf_counter() - start < 30
