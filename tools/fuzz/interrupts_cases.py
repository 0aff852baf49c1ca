"""Signals at random moments of public calls, and the calls that follow.

A handler raises an exception, which must come out of the call unchanged, or adds up something
itself. shim.cpp makes the clock of gpureduce run faster, which asks for signals every 50 ms of it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

import gpureduce
from tools.fuzz import calls, notes, shim
from tools.fuzz.outcomes import Answer, Failure, Mischief, describe

MOST = 1 << 15
_SPEED = 1000
_ONES = np.ones(70_000, np.float32)
_took: dict[str, float] = {}
_ignored: list[str] = []


class Signals:
    """A signal handler that acts at one signal, and the exception that it raised there."""

    def __init__(self) -> None:
        self.act: Callable[[], None] | None = None
        self.raised: BaseException | None = None

    def handle(self, number: int, frame: object) -> None:
        act, self.act = self.act, None
        if act:
            act()

    def throw(self, kind: type[BaseException]) -> None:
        self.raised = kind("by a signal handler")
        raise self.raised


_signals = Signals()


def _told_to_nobody(unraisable: Any) -> None:
    """Python drops what a handler raises in a destructor."""
    _ignored.append(describe(unraisable.exc_value))


def prepare(_: argparse.Namespace) -> None:
    """Set the handler, and the speed of the clock."""
    signal.signal(signal.SIGALRM, _signals.handle)
    signal.signal(signal.SIGUSR1, _signals.handle)
    sys.unraisablehook = _told_to_nobody
    shim.loaded().fuzz_speed(_SPEED)


def _inner(rng: Random) -> None:
    """The calls that a handler may make."""
    name = rng.choice((*calls.NEXT, "cpu"))
    device = None if name == "cpu" else "emulator"
    value = gpureduce.sum(_ONES, name, device=device).value
    if value != len(_ONES):
        raise Failure(f"in a handler, {name} gave {value!r}, not {len(_ONES)}")


def _act(rng: Random) -> Callable[[], None]:
    way = rng.random()
    kind = Mischief if rng.random() < 0.5 else KeyboardInterrupt

    def add_up() -> None:
        _inner(rng)
        if way > 0.9:
            _signals.throw(kind)

    return add_up if way > 0.8 else lambda: _signals.throw(kind)


def _send(rng: Random, delay: float) -> Callable[[], None]:
    """Have a signal come after so many seconds; returns what ends the sending."""
    if rng.random() < 0.8:
        signal.setitimer(signal.ITIMER_REAL, delay)
        return lambda: signal.setitimer(signal.ITIMER_REAL, 0)
    main = threading.main_thread().ident or 0

    def from_thread() -> None:
        time.sleep(delay)
        if rng.random() < 0.5:
            signal.pthread_kill(main, signal.SIGUSR1)
        else:
            os.kill(os.getpid(), signal.SIGUSR1)

    sender = threading.Thread(target=from_thread)
    sender.start()
    return sender.join


def _attempt(call: calls.Call, act: Callable[[], None], send: Callable[[], Any]) -> Answer:
    """Run a call during which the signal comes, or after which it has no effect."""
    answer = Answer()
    stop: Any = None
    try:
        try:
            _signals.act = act
            stop = send()
            answer.value = call.run()
        finally:
            _signals.act = None
    except BaseException as error:
        answer.error = error
    _signals.act = None
    if stop:
        stop()
    return answer


def _duration(call: calls.Call) -> float:
    """About how long calls of that key take."""
    if call.key not in _took:
        start = time.perf_counter()
        with contextlib.suppress(*[call.error] * bool(call.error)):
            call.check(call.run())
        _took[call.key] = time.perf_counter() - start
    return _took[call.key]


def _judge(call: calls.Call, answer: Answer) -> str:
    error, raised = answer.error, _signals.raised
    if isinstance(error, Failure):
        raise error
    if raised is not None:
        if error is raised:
            return "interrupted"
        if _ignored:
            return "unchecked"
        got = f"became {describe(error)}" if error else "was lost"
        raise Failure(f"{describe(raised)} {got}") from error
    if error is not None:
        if call.error and isinstance(error, call.error):
            return answer.name
        raise Failure(f"{call.key} raised {describe(error)}") from error
    call.check(answer.value)
    return "right"


def case(rng: Random) -> str:
    """A call, a signal in its middle, and the next calls."""
    call = calls.call_of(rng, MOST)
    delay = max(1e-6, rng.uniform(0, 1.2) * _duration(call))
    notes.add(f"{call.key}, after {delay * 1e3:.2f} ms")
    _signals.raised = None
    _ignored.clear()
    act = _act(rng)
    answer = _attempt(call, act, lambda: _send(rng, delay))
    outcome = _judge(call, answer)
    answer.error = None
    if _signals.raised is not None:  # its frames keep a memory limit as long as they live
        _signals.raised.__traceback__ = None
    if rng.random() < 0.1:
        calls.check_memory()
    strategy = call.key.partition(" ")[0]
    calls.check_next(rng, strategy if strategy in calls.KERNELS else None)
    if rng.random() < 0.2 and not call.error:
        call.check(call.run())
    return outcome
