"""The emulator: orders of threads, what the broken kernels do under them, and its memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import gpureduce
from cases import BROKEN, array_of, run_python

A = array_of("int32", 4099)


WRONG_UNDER = {
    "warp_volatile": {"forward", "reverse", "random"},
    "missing_barrier": {"forward", "random", "lockstep"},
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_kernels_are_wrong_under_some_orders(name):
    wrong = set()
    for order in gpureduce.emulator.ORDERS:
        for seed in range(4 if order == "random" else 1):
            with gpureduce.emulator.schedule(order, seed):
                result = gpureduce.sum(A, name, device="emulator", allow_broken=True)
                if int(result.value) != int(A.sum()):
                    wrong.add(order)
    assert wrong == WRONG_UNDER.get(name, wrong) != set()


def test_threads_need_no_memory_to_end():
    """The C++ runtime ends the process if it cannot register a thread_local object's destructor."""
    from gpureduce import _emulator, _emulator_traced

    for module in (_emulator, _emulator_traced):
        assert b"__cxa_thread_atexit" not in Path(module.__file__).read_bytes()


def test_schedule_is_checked_and_restored():
    with pytest.raises(ValueError, match="one of forward, reverse, random, lockstep"):
        gpureduce.emulator.schedule("backward").__enter__()
    for seed, error in ((-1, ValueError), (1.5, TypeError)):
        with pytest.raises(error, match="seed"):
            gpureduce.emulator.schedule("random", seed).__enter__()
    with gpureduce.emulator.schedule("reverse"):
        assert gpureduce.emulator.current().order == "reverse"
    assert gpureduce.emulator.current().order == "forward"


def test_memory_is_kept_for_the_next_call_and_comes_back():
    strategies = ("global_tree", "last_block", "vector_load")
    for strategy in strategies:
        gpureduce.sum(A, strategy, device="emulator")
    kept = gpureduce.emulator.live_bytes()
    for strategy in strategies * 3:
        gpureduce.sum(A, strategy, device="emulator")
    assert gpureduce.emulator.live_bytes() == kept > 0
    gpureduce.free_scratch()
    assert gpureduce.emulator.live_bytes() == 0


def test_a_limit_does_not_change_the_devices_memory():
    """In a process of its own: facts of a device are asked for once."""
    code = """
import gpureduce
with gpureduce.emulator.memory_limit(10**6):
    inside = gpureduce.devices()[-1].memory_bytes
assert inside == gpureduce.devices()[-1].memory_bytes > 10**6
"""
    run_python(code)


def test_memory_limits_are_whole_numbers():
    for wrong in (1e6, "1000", None):
        with pytest.raises(TypeError):
            gpureduce.emulator.memory_limit(wrong).__enter__()
    for wrong in (0, -1, 2**63, 2**64 + 1, 10**5000):
        with pytest.raises(ValueError, match=r"nbytes must be from 1 to 2\*\*63 - 1, not"):
            gpureduce.emulator.memory_limit(wrong).__enter__()
    with gpureduce.emulator.memory_limit(2**63 - 1):
        assert gpureduce.sum(np.ones(3), "sequential", device="emulator").value == 3


def test_emulated_time_is_called_so():
    timing = gpureduce.sum(A, "sequential", device="emulator").timing
    assert timing.source == timing.backend == "emulator"
    assert timing.percent_of_peak is None
