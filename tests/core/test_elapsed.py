"""Kernel times of arrays on a card: read when somebody looks at them, and as right as ever."""

from __future__ import annotations

import concurrent.futures
import copy
import dataclasses
import pickle
import time

import numpy as np
import pytest

import gpureduce
from cases import KERNELS, array_of, needed_dtype, numpy_dtype, run_python, same_bits
from gpureduce.core import devices, gpu_arrays
from producers import ByDLPack, ByExchange, ByInterface

THERE = ByExchange(array_of("float32", 1000))
LATER = {"kernel_ms", "d2h_ms"}
FIELDS = {field.name for field in dataclasses.fields(gpureduce.Timing)}


@pytest.fixture(autouse=True)
def emulator_for_a_card(monkeypatch):
    monkeypatch.setattr(gpu_arrays, "_module", devices.emulator)


def timing(strategy="fast", array=THERE, **more):
    return gpureduce.sum(array, strategy, **more).timing


def is_unread(made):
    return "_elapsed" in vars(made) and not LATER & set(vars(made))


def test_times_are_read_once_and_when_looked_at():
    made = timing()
    assert is_unread(made) and made.n == 1000 and made.total_ms > 0
    assert 0 < made.kernel_ms < made.total_ms and made.d2h_ms == 0
    assert set(vars(made)) == FIELDS
    assert made.kernel_ms == vars(made)["kernel_ms"]


@pytest.mark.parametrize("look", [repr, hash, dataclasses.asdict, dataclasses.astuple, copy.copy,
                                  copy.deepcopy, pickle.dumps, lambda t: t.gb_s,
                                  lambda t: t == timing(), lambda t: t.d2h_ms])  # fmt: skip
def test_every_way_to_look_finds_a_number(look):
    made = timing()
    assert is_unread(made)
    look(made)
    assert set(vars(made)) == FIELDS and made.kernel_ms > 0


def test_copies_equal_what_they_are_made_of():
    for read_before in (False, True):
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            made = timing()
            if read_before:
                assert made.kernel_ms > 0
            data = pickle.dumps(made, protocol)
            assert b"lapsed" not in data
            found = pickle.loads(data)
            assert found == made and hash(found) == hash(made) and repr(found) == repr(made)
    made = timing()
    assert copy.copy(made) == made and dataclasses.replace(made) == made
    assert dataclasses.asdict(made) == vars(made)
    assert pickle.loads(pickle.dumps(gpureduce.sum(THERE)))[1].n == 1000


def test_other_names_are_no_attributes():
    made = timing()
    assert not hasattr(made, "kernel_us") and is_unread(made)
    with pytest.raises(AttributeError, match="'Timing' object has no attribute 'kernl_ms'"):
        _ = made.kernl_ms
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.kernel_ms = 1.0


def test_a_thousand_unread_times():
    """More than are kept open: those beyond are read at once."""
    start = time.perf_counter()
    made = [timing("one_block") for _ in range(1500)]
    whole = (time.perf_counter() - start) * 1e3
    assert is_unread(made[0]) and len({id(t) for t in made}) == 1500
    gpureduce.free_scratch()
    times = [t.kernel_ms for t in made]
    assert all(0 < t.kernel_ms <= t.total_ms for t in made) and sum(times) < whole
    del made
    assert timing().kernel_ms > 0


def test_unread_times_outlive_free_scratch():
    made = timing()
    gpureduce.free_scratch()
    assert gpureduce.emulator.live_bytes() == 0
    assert timing().kernel_ms > 0 and made.kernel_ms > 0


def test_other_threads_read_them():
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for _ in range(50):
            made = timing()
            found = pool.map(lambda one: one.kernel_ms, [made] * 8)
            assert len(set(found)) == 1
        results = list(pool.map(lambda _: timing(), range(400)))
    assert all(0 < made.kernel_ms <= made.total_ms for made in results)


@pytest.mark.parametrize("strategy", [*KERNELS, "fast", "auto", "exact"])
def test_the_launch_and_the_value_are_those_of_the_long_way(strategy):
    """By name, and with everything said that is the default."""
    for dtype in ("int32", "int64", "float16", "bfloat16", "float32"):
        if needed_dtype(strategy, dtype):
            continue
        wide = "int64" if dtype == "int32" else dtype
        array = ByDLPack((np.arange(3001) % 64).astype(numpy_dtype(dtype)))  # exact in any order
        value, short = gpureduce.sum(array, strategy)
        long = gpureduce.sum(array, strategy, dtype=wide, device="emulator")
        same = dict.fromkeys(("kernel_ms", "d2h_ms", "total_ms"), 0.0)
        assert dataclasses.replace(short, **same) == dataclasses.replace(long.timing, **same)
        assert same_bits(value, long.value)
        quick = gpureduce.sum(array, strategy, timing=False)
        assert type(quick) is gpureduce.SumResult and quick.timing is None
        assert same_bits(quick.value, value)
        assert short.kernel_ms > 0 and short.d2h_ms >= 0


def test_finishes_are_those_that_ran():
    for finish, launches in (("host", 1), ("relaunch", 2)):
        made = timing("sequential", finish=finish)
        assert (made.finish, made.launches) == (finish, launches)
        assert (made.d2h_ms > 0) == (finish == "host")
    assert timing("one_block", finish="single", block=64).finish == "single"
    made = timing("warp_shfl", block=64, grid=3)
    assert (made.block, made.grid, made.finish) == (64, 3, "relaunch")


def test_parts_and_pieces_are_added_up():
    array = np.ones(2**18, np.complex64)
    whole, half = (timing("last_block", ByInterface(part)) for part in (array, array.real))
    assert whole.launches == 2 * half.launches and 0 < whole.kernel_ms < whole.total_ms
    wide = np.broadcast_to(array_of("int8", 3), (2**22, 3))  # two launches
    made = timing("fast", ByInterface(wide))
    assert made.launches == 2 and 0 < made.kernel_ms < made.total_ms


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("strategy", ["fast", "exact"])
def test_half_floats_are_rounded_once(dtype, strategy):
    kind = array_of(dtype, 0).dtype
    for values in ([1, 2**-8, 2**-8, 2**-13], [60000, 60000], [1e-7, -2e-7], [np.nan], [np.inf]):
        array = ByDLPack(np.array(values).astype(kind))
        exact = array.array.astype(np.float64).sum()
        with np.errstate(over="ignore"):
            want = exact.astype(kind)
        for way in ({}, {"dtype": kind}, {"timing": False}, {"device": "emulator"}):
            value = gpureduce.sum(array, strategy, **way).value
            assert value.dtype == kind and (value == want or (np.isnan(value) and np.isnan(want)))
    wide = ByDLPack(array_of(dtype, 100))
    assert gpureduce.sum(wide, strategy, dtype="float64").value.dtype == np.float64


NO_BFLOAT16 = """
import sys
sys.modules["ml_dtypes"] = None
import numpy as np, gpureduce
from producers import ByInterface
from gpureduce import _emulator
from gpureduce.core import devices, gpu_arrays
import producers
class Bits(producers.ByDLPack):
    def __dlpack__(self, **words):
        capsule = super().__dlpack__(**words)
        self.managed.tensor.dtype = producers.DLDataType(4, 16, 1)
        return capsule
ones = Bits(np.full(1001, 0x3f80, np.uint16))
for strategy in ("fast", "exact"):
    for timing in (True, False):
        value = gpureduce.sum(ones, strategy, device="emulator", timing=timing).value
        assert value == 1001 and value.dtype == np.float32, value
"""


def test_bfloat16_without_ml_dtypes_gives_float32():
    run_python(NO_BFLOAT16)


def test_errors_leave_the_next_call_working():
    made = timing()
    for _ in range(100):
        with pytest.raises(ValueError, match="block"):
            timing("redux", ByExchange(array_of("int32", 1000)), block=2048)
        with pytest.raises(TypeError, match="convert the array first"):
            timing(dtype="float16")
        with pytest.raises(gpureduce.CudaError):
            gpureduce.sum(THERE, "cub")
    with gpureduce.emulator.memory_limit(1), pytest.raises(MemoryError):
        timing()
    assert timing().kernel_ms > 0 and made.kernel_ms > 0


AS_ON_A_CARD = """
import atexit, os, pickle, sys, threading
import numpy as np
import gpureduce
from gpureduce.core import devices, gpu_arrays
from producers import ByExchange
if sys.argv[1] == "emulator":
    gpu_arrays._module = devices.emulator
    there = ByExchange(np.ones(1000, np.float32))
else:
    import torch
    there = torch.ones(1000, device="cuda")
"""

FORKED = """
unread, read = (gpureduce.sum(there).timing for _ in range(2))
kept = read.kernel_ms
gpureduce.sum(there)  # its events wait for the next sum
child = os.fork()
if child == 0:
    assert read.kernel_ms == kept
    for look in (lambda: unread.kernel_ms, lambda: repr(unread), lambda: pickle.dumps(unread)):
        try:
            look()
        except gpureduce.CudaError as error:
            assert "before the fork" in str(error)
        else:
            os._exit(3)
    del unread
    if sys.argv[1] == "emulator":
        assert gpureduce.sum(there).timing.kernel_ms > 0
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert unread.kernel_ms > 0
"""

AT_EXIT = """
unread, dropped = (gpureduce.sum(there).timing for _ in range(2))
class Late:
    def __del__(self, made=gpureduce.sum(there).timing):
        print(made.kernel_ms > 0)
kept = sys.modules["kept"] = Late()
atexit.register(lambda: print(unread.kernel_ms > 0))
in_thread = gpureduce.sum(there).timing
threading.Thread(target=lambda: print(in_thread.kernel_ms > 0)).start()
"""


def test_a_forked_child_says_that_it_cannot_read_them():
    run_python(AS_ON_A_CARD + FORKED, "emulator")


def test_they_are_read_at_exit():
    assert run_python(AS_ON_A_CARD + AT_EXIT, "emulator").split() == ["True"] * 3


# --- on a card ----------------------------------------------------------------------------------


@pytest.fixture
def on_the_card(emulator_for_a_card, monkeypatch):
    monkeypatch.undo()
    return pytest.importorskip("torch")


@pytest.mark.gpu
@pytest.mark.alone
def test_times_on_the_card_are_right_when_read_late(on_the_card):
    torch = on_the_card
    there = torch.ones(2**26, device="cuda")
    made = [timing("cascade", there) for _ in range(100)]
    assert all(is_unread(one) for one in made)
    assert all(0 < one.kernel_ms <= one.total_ms and one.percent_of_peak < 100 for one in made)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        assert pool.submit(lambda made: made.kernel_ms, timing("cascade", there)).result() > 0
    side = torch.cuda.Stream()
    made = timing("cascade", there, stream=side)
    gpureduce.free_scratch()
    assert made.kernel_ms > 0
    atomics = timing("atomic_block", there)
    assert atomics.kernel_ms > 0 and atomics.d2h_ms > 0
    pairs = torch.view_as_complex(there.reshape(-1, 2))
    assert timing("fast", pairs).kernel_ms > 0


@pytest.mark.gpu
@pytest.mark.parametrize("code", [FORKED, AT_EXIT])
def test_other_processes_and_the_end_of_this_one_on_the_card(on_the_card, code):
    run_python(AS_ON_A_CARD + code, "cuda")


def best_us(call, number=200, repeats=30):
    found = []
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(number):
            call()
        found.append((time.perf_counter() - start) / number * 1e6)
    return min(found)


@pytest.mark.gpu
@pytest.mark.parametrize("n", [1, 2**20])
@pytest.mark.alone
def test_timing_on_the_card_is_nearly_free(on_the_card, n):
    there = on_the_card.ones(n, device="cuda")
    untimed = best_us(lambda: gpureduce.sum(there, timing=False))
    assert best_us(lambda: gpureduce.sum(there)) < 1.5 * untimed


@pytest.mark.gpu
@pytest.mark.alone
def test_every_untimed_way_on_the_card_is_short(on_the_card):
    there = on_the_card.ones(64, device="cuda", dtype=on_the_card.float32)
    wide = on_the_card.ones((8, 64), device="cuda", dtype=on_the_card.float32)
    whole = on_the_card.ones(64, device="cuda", dtype=on_the_card.int32)
    shortest = best_us(lambda: gpureduce.sum(there, "fast", timing=False))
    for array, more in (
        (there, {"dtype": "float64"}),
        (wide[:, ::8], {}),
        (whole, {"dtype": "f8"}),
    ):
        us = best_us(lambda: gpureduce.sum(array, "fast", timing=False, **more))  # noqa: B023
        assert us < 1.3 * shortest, (array.dtype, more)
