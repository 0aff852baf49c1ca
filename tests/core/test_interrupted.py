"""Right sums after interruptions, forks and changes of the environment; no crash at exit."""

from __future__ import annotations

import gc
import os
import re
import signal
import threading
from pathlib import Path

import numpy as np
import pytest

import gpureduce
from cases import CSRC, Stopped, broken_off_after, run_python
from gpureduce import lazy_import
from gpureduce.core import arrays, dtypes

SMALL = np.ones(100_000, np.float32)


def check_next(strategy):
    for _ in range(3):
        assert float(gpureduce.sum(SMALL, strategy, device="emulator").value) == SMALL.size


def test_errstate_is_as_it_was_while_the_exception_is_kept():
    """The traceback keeps generators alive; an errstate block in one would end too late."""
    conversion = dtypes.convert(np.dtype(np.float64), np.dtype(np.float32))
    outside = np.geterr()

    def add(piece):
        assert np.geterr() == outside
        raise Stopped

    with pytest.raises(Stopped) as kept:
        arrays.add_pieces(np.ones((40, 40))[::2, ::2], conversion, add)
    assert np.geterr() == outside
    with np.errstate(all="raise"):
        del kept
        gc.collect()
        assert set(np.geterr().values()) == {"raise"}


def test_counts_that_need_too_much_memory_are_refused():
    with pytest.raises(ValueError, match=r"would need 66 GiB or more"):
        gpureduce.explain("cascade", n=2**40)
    with pytest.raises(ValueError, match="GiB or more"):
        gpureduce.explain("tiles", n=2**37)


NESTED = """
import signal, sys
import numpy as np, gpureduce as g

inner = []
def handler(number=None, frame=None):
    if number:
        signal.setitimer(signal.ITIMER_REAL, 0.07)
    if len(inner) < 20:
        inner.append(float(g.sum(np.ones(5000, np.float32), "last_block", device="emulator").value))
        with g.emulator.schedule("lockstep"):
            inner.append(float(g.sum(np.ones(5000, np.float32), "exact", device="emulator").value))
        inner.append(5000.0 + len(g.races("missing_barrier", n=300, block=64).races) - 1)
        inner.append(g.explain("sequential", n=5000).n)

def counts(strategy):
    found = g.explain(strategy, n=2**21, sample=False)
    return {k: v for k, v in vars(found).items() if k == "counts"}

large = np.ones(2**24, np.float32)
handler()  # a handler that interrupts an import of what it uses would find half a module
inner.clear()
expected = counts("grid_sync")
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.02)
assert counts("grid_sync") == expected
assert float(g.sum(large, "grid_sync", device="emulator").value) == large.size
assert float(g.sum(large, "last_block", device="emulator").value) == large.size
assert not g.races("cascade", n=2**16)
signal.setitimer(signal.ITIMER_REAL, 0)
assert len(inner) >= 4 and set(inner) == {5000.0}, inner
"""


HALF_IMPORTED = """
import signal, sys
import numpy as np, gpureduce as g

said = []
def handler(*_):
    try:
        g.sum(np.ones(500), "last_block", device="emulator")
    except ImportError as error:
        said.append(str(error))

class Finder:  # Python asks it for each module that is imported
    def find_spec(self, name, path=None, target=None):
        if "gpureduce.core.any_array" in sys.modules and not said:
            signal.raise_signal(signal.SIGALRM)

signal.signal(signal.SIGALRM, handler)
sys.meta_path.insert(0, Finder())
assert g.sum(np.ones(5000), "last_block", device="emulator").value == 5000
assert len(said) == 1 and "makes such a call once before" in said[0], said
handler()
assert len(said) == 1
"""


def test_a_signal_handler_that_interrupts_the_import_of_what_it_calls():
    run_python(HALF_IMPORTED)


def test_a_child_that_a_signal_handler_forks_in_the_middle_of_an_import():
    """It still imports what the handler interrupted: its calls say the same."""
    add = '        g.sum(np.ones(500), "last_block", device="emulator")\n'
    fork = "        child = os.fork()\n        if child: return os.waitpid(child, 0)\n"
    code = HALF_IMPORTED.replace(add, fork + add).replace("import signal", "import os, signal")
    child = 'os._exit(0 if said and "such a call once" in said[0] else 1)'
    run_python(
        code.replace(
            "        said.append(str(error))\n", f"        said.append(str(error)); {child}\n"
        )
        .replace("return os.waitpid(child, 0)", "return said.append(os.waitpid(child, 0)[1])")
        .split("assert len(said)")[0]
        + "assert said == [0], said\n"
    )


@pytest.mark.parametrize("threads", ["1", "2"])
def test_signal_handlers_in_the_middle_of_an_emulated_team(threads):
    """They sum, look for races and count on the thread whose team waits for them."""
    run_python(NESTED, GPUREDUCE_THREADS=threads)


def test_the_environment_is_read_with_the_gil_alone():
    """Or before there is another thread: in what runs when the library is loaded."""
    texts = {str(path.relative_to(CSRC)): path.read_text() for path in CSRC.rglob("*.[ch]*")}
    uses = {name: len(re.findall(r"\bgetenv\(", text)) for name, text in texts.items()}
    assert {name: count for name, count in uses.items() if count} == {
        "threads/processors.c": 1,  # gr_read_environment()
        "cpu/instruction_set.c": 1,  # choose()
        "bindings/host/module.c": 1,  # with the GIL
    }


END = """
import sys, threading, time
import numpy as np, gpureduce as g
big = np.zeros(2**31, np.float32)  # untouched pages cost no memory
def work(depth):
    if depth:
        return list(map(work, [depth - 1]))  # some C stack, as of any callback
    while True:
        {call}
threading.Thread(target=work, args=(100,), daemon=True).start()
time.sleep(0.2)
class Slow:  # as large programs, which take a while to end
    def __del__(self, sleep=time.sleep):
        sleep(0.3)
sys.modules["slow"] = Slow()
"""


@pytest.mark.parametrize(
    "call",
    [
        'g.sum(big, "exact")',
        'g.sum(big[: 2**23], "sequential", device="emulator")',
        'g.integrate("pi", n=2**30, strategy="cpu")',
    ],
)
def test_the_interpreter_ends_while_a_daemon_thread_sums(call):
    run_python(END.format(call=call), GPUREDUCE_THREADS="3")


IMPORTS_OF_RANDOM_NUMBERS = """
import os, random, signal, sys, threading
import gpureduce
from gpureduce.core import arrays

def fired(*_):
    fired.was = True
    raise KeyboardInterrupt

def outcome(seconds):
    signal.signal(signal.SIGALRM, fired)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        arrays.random_numbers(1)
        signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        return 2
    return 1 if hasattr(fired, "was") else 0

ends = []
for i in range(75):
    child = os.fork()
    if not child:
        os._exit(outcome(0.0005 + 0.0004 * i))
    ends.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
assert "numpy.random" not in sys.modules
print(ends.count(1), set(ends) <= {0, 1, 2}, 2 in ends)
"""


def test_an_interruption_while_numpy_random_is_imported():
    """Cython's code dropped it, so that Ctrl-C of a command had no effect."""
    assert run_python(IMPORTS_OF_RANDOM_NUMBERS).split() == ["0", "True", "True"]


def test_a_first_use_sets_no_handlers_that_run_before_forks():
    """Such a handler would run before ours, and what it locks may be what an import waits for."""
    run_python(
        "import os, sys, numpy as np, gpureduce as g\n"
        "def refuse(**handlers): assert 'before' not in handlers, handlers\n"
        "os.register_at_fork = refuse\n"
        "array = np.arange(20000, dtype=np.int32)\n"
        "for strategy in ('cascade', 'fast'):\n"
        "    g.sum(array, strategy, device='emulator')\n"
        "for strategy in ('exact', 'cpu', 'numpy', 'auto'):\n"
        "    g.sum(array, strategy)\n"
        "g.sum(array.reshape(100, 200), axis=0)\n"
        "g.devices()\n"
        "assert 'logging' not in sys.modules"
    )


def test_nothing_is_set_up_at_its_first_use():
    """A fork in the middle of that would leave it half done in the child."""
    for path in CSRC.rglob("*.[ch]*"):
        assert "pthread_once" not in path.read_text(), path
        if path.name != "forks.h":
            assert "pthread_atfork" not in path.read_text(), path


FORK_IN_A_COPY = """
import os, signal, sys
import numpy as np, gpureduce as g
array, child = np.ones(12_000_000), -1
def fork(*_):
    global child
    child = os.fork()
g.sum(array, "last_block", device="emulator")  # what is kept lets the next one copy at once
signal.signal(signal.SIGALRM, fork)
signal.setitimer(signal.ITIMER_REAL, 0.005)
value = float(g.sum(array, "last_block", device="emulator").value)
if child == 0:
    again = float(g.sum(array, "last_block", device="emulator").value)
    os._exit(not value == again == array.size)
_, status = os.waitpid(child, 0)
sys.exit(status != 0 or value != array.size)
"""


@pytest.mark.parametrize("threads", ["1", "4"])
def test_a_signal_handler_that_forks_during_a_copy(threads):
    """The child copies anew what threads of its parent had begun."""
    run_python(FORK_IN_A_COPY, GPUREDUCE_THREADS=threads)


def test_schedules_end_whatever_happens():
    """A handler raises as a ``with`` block begins or ends, and the test keeps the exception."""
    kept, rng = [], np.random.default_rng(4)

    def stop(*_):
        raise Stopped

    def enter_and_leave():
        while True:
            with gpureduce.emulator.schedule("reverse"):
                pass

    before = signal.signal(signal.SIGALRM, stop)
    gc.disable()  # what is raised during a collection may be dropped
    try:
        for _ in range(1000):
            try:
                signal.setitimer(signal.ITIMER_REAL, float(rng.uniform(1e-5, 2e-4)))
                enter_and_leave()
            except Stopped as error:
                kept.append(error)
            assert gpureduce.emulator.current().order == "forward"
    finally:
        signal.signal(signal.SIGALRM, before)
        gc.enable()


def test_schedules_in_one_another():
    outer, inner = gpureduce.emulator.schedule("reverse"), gpureduce.emulator.schedule("random", 3)
    for _ in range(2):
        with outer as first, pytest.raises(RuntimeError, match="entered already"), outer:
            pass
        with outer, inner as second:
            assert gpureduce.emulator.current() is second
        assert first.order == "reverse" and second == ("random", 3)
        assert gpureduce.emulator.current().order == "forward"


def test_memory_limits_end_whatever_happens():
    """In any order, and where a signal handler raises in the middle.

    Leaving the inner one lifted the outer one's limit, too.
    """
    first, second = gpureduce.emulator.memory_limit(1000), gpureduce.emulator.memory_limit(1 << 30)
    large = np.ones(2**16)

    def fits():
        for order in ("forward", "lockstep"):  # two builds of the emulator
            with gpureduce.emulator.schedule(order):
                try:
                    gpureduce.sum(large, "global_tree", device="emulator")
                except MemoryError:
                    return False
        return True

    with first:
        assert not fits()
        with gpureduce.emulator.memory_limit(1 << 30):
            with pytest.raises(KeyError), gpureduce.emulator.memory_limit(np.int64(2000)):
                raise KeyError
            assert fits()
        assert not fits()
        second.__enter__()
        assert fits()
    assert fits()
    second.__exit__(None, None, None)
    rng = np.random.default_rng(3)

    def limit():
        for _ in range(1000):
            with gpureduce.emulator.memory_limit(1000):
                pass

    for _ in range(300):
        broken_off_after(float(rng.uniform(1e-6, 3e-4)), limit)
    assert fits()


def test_imports_do_not_wait_for_each_other(monkeypatch):
    """A signal handler may wait for a thread that imports, in the middle of an import."""
    begun, done = threading.Event(), threading.Event()

    def import_module(name):
        if name == "gpureduce.slow":
            begun.set()
            assert done.wait(60)
        return name

    monkeypatch.setattr(lazy_import.importlib, "import_module", import_module)
    thread = threading.Thread(target=lazy_import.load, args=["slow"])
    thread.start()
    assert begun.wait(60) and lazy_import.load("quick") == "gpureduce.quick"
    done.set()
    thread.join()
    assert not lazy_import._importing


def test_an_import_without_an_end_does_not_stop_forks(monkeypatch):
    """An exception at a bad moment may leave an entry; and a handler may fork in an import."""
    monkeypatch.setattr(lazy_import, "_PATIENCE_S", 0.1)
    for number in (1, threading.get_ident()):
        lazy_import._importing[object()] = number
        kept = (
            [number] if number == threading.get_ident() else []
        )  # the child has this thread alone
        child = os.fork()
        if not child:
            os._exit(0 if list(lazy_import._importing.values()) == kept else 1)
        assert os.waitpid(child, 0)[1] == 0
        lazy_import._importing.clear()


IMPORTED = """
import sys
class Broken(BaseException): pass
class Finder:
    def find_spec(self, name, *_):
        if name == "numpy":
            raise Broken  # as a signal handler does
sys.meta_path.insert(0, Finder())
try:
    import gpureduce
except Broken:
    print("right")
"""


def test_an_exception_during_the_import_of_numpy_is_not_replaced():
    """By the ImportError that C's import of NumPy makes of any exception."""
    assert run_python(IMPORTED) == "right\n"


FIRST_USE_BEFORE_A_FORK = """
import os, sys, threading, time
import numpy as np, gpureduce as g
array, go = np.arange(20000, dtype=np.int32), threading.Event()
def first():
    go.set()
    g.sum(array, "cascade", device="emulator")
sys.setswitchinterval(1e-6)
threading.Thread(target=first).start()
go.wait()
end = time.perf_counter() + float(sys.argv[1])
while time.perf_counter() < end:
    pass
child = os.fork()
if child == 0:
    for s in ("cascade", "unroll_full", "one_block"):
        assert g.sum(array, s, device="emulator").value == 199990000
    os._exit(0)
_, status = os.waitpid(child, 0)
sys.exit(status != 0)
"""

FIRST_USE_DURING_A_FORK = """
import os, sys, threading, time
asked = threading.Event()
# Hooks run in the reverse order of their registration: this one after gpureduce's own.
os.register_at_fork(before=lambda: (asked.set(), time.sleep(float(sys.argv[1]))))
import numpy as np, gpureduce as g
array = np.arange(20000, dtype=np.int32)
def first():
    asked.wait()
    g.sum(array, "cascade", device="emulator")
threading.Thread(target=first).start()
child = os.fork()
if child == 0:
    assert g.sum(array, "cascade", device="emulator").value == 199990000
    os._exit(0)
_, status = os.waitpid(child, 0)
sys.exit(status != 0)
"""

IMPORT_DURING_A_FORK = """
import os, sys, threading, time
import numpy as np, gpureduce
use = {
    "explain": lambda: gpureduce.explain("sequential", n=256).n,
    "sum": lambda: gpureduce.sum(np.ones(1 << 24, np.float32)).value,
}[sys.argv[1]]
for pause in (0.0005, 0.002, 0.005):
    thread = threading.Thread(target=use)
    thread.start()
    time.sleep(pause)
    child = os.fork()
    if child == 0:
        use()
        os._exit(0)
    thread.join()
    assert os.waitpid(child, 0)[1] == 0
"""

IMPORT_OF_ANOTHER_PACKAGE = """
import os, signal, sys, threading, time
import gpureduce
package, call = sys.argv[1:]
if package in sys.modules:  # numpy.random, before NumPy 2.3
    sys.exit()
begun = threading.Event()
class Finder:
    def find_spec(self, name, *_):
        if name == package:
            begun.set()
            time.sleep(0.2)
sys.meta_path.insert(0, Finder())
thread = threading.Thread(target=eval, args=(call, globals()))
thread.start()
assert begun.wait(60)
child = os.fork()
if child == 0:
    signal.alarm(20)
    eval(call)
    os._exit(0)
thread.join()
assert os.waitpid(child, 0)[1] == 0
"""


BEFORE = (0.0001, 0.0005, 0.0012, 0.004)
DURING = (0.001, 0.006, 0.015)
FORKS = {
    "before a fork": [(FIRST_USE_BEFORE_A_FORK, str(delay)) for delay in BEFORE],
    "during a fork": [(FIRST_USE_DURING_A_FORK, str(delay)) for delay in DURING],
    "imports of counts": [(IMPORT_DURING_A_FORK, "explain")],
    "imports of sums": [(IMPORT_DURING_A_FORK, "sum")],
    "ml_dtypes": [
        (IMPORT_OF_ANOTHER_PACKAGE, "ml_dtypes", "gpureduce.sum([1.0], dtype='bfloat16')")
    ],
    "numpy.random": [
        (
            IMPORT_OF_ANOTHER_PACKAGE,
            "numpy.random",
            "list(gpureduce.benchmark(['cpu'], [64], ['float32'], repeats=1))",
        )
    ],
}


@pytest.mark.skipif("LD_PRELOAD" in os.environ, reason="a sanitizer's malloc() may hang in a child")
@pytest.mark.parametrize("what", FORKS)
def test_a_first_use_in_another_thread_beside_a_fork(what):
    for script in FORKS[what]:
        run_python(*script, timeout=60)


RAISED_IN_QUIET_CALLS = """
import signal
import numpy as np, gpureduce

class Broken(Exception):
    pass

def handler(*_):
    raise Broken

strided = np.ones((8, 8), np.float16)[::2, ::2]
calls = [
    lambda: gpureduce.sum(strided, "cpu"),
    lambda: gpureduce.sum(strided, "numpy"),
    lambda: gpureduce.trapezoid(np.ones(5), np.arange(5.0), strategy="cpu"),
    lambda: gpureduce.integrate("pi", n=100, strategy="numpy"),
]
before = np.geterr()
signal.signal(signal.SIGALRM, handler)
for call in calls:
    call()
    for i in range(300):
        try:
            signal.setitimer(signal.ITIMER_REAL, 2e-4 + i % 40 * 1e-5)
            while True:
                call()
        except Broken:
            pass
        assert np.geterr() == before, i
"""


def test_error_settings_of_numpy_after_a_handler_raised():
    run_python(RAISED_IN_QUIET_CALLS)


def test_error_settings_are_changed_in_one_place():
    """NumPy's errstate is Python code: a handler may raise before it has changed them back."""
    package = Path(gpureduce.__file__).parent
    found = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if re.search(r"np\.(errstate\(|seterr)", path.read_text())
    }
    assert found == {"core/dtypes.py"}
