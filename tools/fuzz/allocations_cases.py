"""Public calls in which an allocation fails, and the calls that follow.

The call must raise MemoryError, or do without. shim.cpp lets allocations fail; with --python,
Python's own allocators do, and gpureduce's C does not.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable
from random import Random
from typing import Any

import gpureduce
from tools.fuzz import calls, notes, shim
from tools.fuzz.outcomes import Answer, Failure, describe

MOST = 1 << 13
_by_python = False


def prepare(arguments: argparse.Namespace) -> None:
    """Take note of the allocators that are to fail."""
    global _by_python
    _by_python = arguments.python
    shim.loaded()


def _count(run: Callable[[], Any]) -> int:
    """How many allocations a call makes."""
    library = shim.loaded()
    library.fuzz_fail(0, shim.COUNT)
    with contextlib.suppress(ValueError, TypeError, MemoryError):  # what the call must raise
        run()
    seen = int(library.fuzz_seen())
    library.fuzz_fail(0, shim.OFF)
    return seen


def _attempt(run: Callable[[], Any], nth: int, how: int) -> Answer:
    """Run a call whose n-th allocation fails."""
    fail = shim.loaded().fuzz_fail
    answer = Answer()
    try:
        fail(nth, how)
        answer.value = run()
        fail(0, 0)
    except BaseException as error:
        fail(0, 0)
        answer.error = error
    return answer


def _attempt_by_python(run: Callable[[], Any], nth: int, _: int) -> Answer:
    import _testcapi

    answer = Answer()
    try:
        _testcapi.set_nomemory(nth, nth + 1)
        answer.value = run()
        _testcapi.remove_mem_hooks()
    except BaseException as error:
        _testcapi.remove_mem_hooks()
        answer.error = error
    return answer


def _judge(call: calls.Call, answer: Answer) -> str:
    if isinstance(answer.error, Failure):
        raise answer.error
    if answer.error is None:
        call.check(answer.value)
        return "right"
    if isinstance(answer.error, (MemoryError, call.error or MemoryError)):
        return answer.name
    raise Failure(f"{call.key} raised {describe(answer.error)}") from answer.error


def case(rng: Random) -> str:
    """A call with an allocation that fails, then the same call, then others."""
    call = calls.call_of(rng, MOST)
    notes.add(call.key)
    cold = rng.random() < 0.4
    if cold:
        gpureduce.free_scratch()
    most = 400 if _by_python else _count(call.run)
    if rng.random() < 0.5:
        gpureduce.free_scratch()
    nth = rng.randint(1, max(1, most))
    how = rng.choice((shim.ONE, shim.ALL_FROM))
    if _by_python:  # which may go on for ever where all of its allocations fail
        how = shim.ONE
    notes.add(f"allocation {nth} of {most}{' and all later ones' if how == shim.ALL_FROM else ''}")
    attempt = _attempt_by_python if _by_python else _attempt
    outcome = _judge(call, attempt(call.run, nth, how))
    if rng.random() < 0.1:
        calls.check_memory()
    if not call.error:
        call.check(call.run())
    strategy = call.key.partition(" ")[0]
    calls.check_next(rng, strategy if strategy in calls.KERNELS else None)
    return outcome
