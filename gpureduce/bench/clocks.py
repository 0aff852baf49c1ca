"""Clocks: how the runs of a contender are timed, in microseconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

Run = Callable[[], Any]
Timed = Callable[[int], list[float]]  # takes the number of runs, returns the microseconds of each

_CALLS_NS = 2_000_000  # shorter calls are repeated for this time, and their mean is one time
_SLEEP_CYCLES = 2_000_000  # some 1 ms: the time in which Python puts a call on the stream


def of_calls(call: Run) -> Timed:
    """Times a call. If it is short, each time is the mean of several.

    Warm-up calls come first and are not counted: sleeping threads wake one by one, during many
    short calls.
    """

    def timed(repeats: int) -> list[float]:
        start = now = time.perf_counter_ns()
        took = warm_ups = 0
        while warm_ups < 2 or now - start < _CALLS_NS:
            call()
            before, now = now, time.perf_counter_ns()
            took = now - before
            warm_ups += 1
        calls = max(1, min(1000, _CALLS_NS // max(1, took)))
        times = []
        for _ in range(repeats):
            start = time.perf_counter_ns()
            for _ in range(calls):
                call()
            times.append((time.perf_counter_ns() - start) / calls / 1e3)
        return times

    return timed


def _repeated(once: Callable[[], float]) -> Timed:
    return lambda repeats: [once() for _ in range(repeats)]


def of_each(call: Run, before: Run = lambda: None) -> Timed:
    """Times single calls. `before` is called before each, and not timed."""

    def once() -> float:
        before()
        start = time.perf_counter()
        call()
        return (time.perf_counter() - start) * 1e6

    return _repeated(once)


def of_thread(call: Run, often: int) -> Timed:
    """The processor time of this thread: the mean of `often` calls."""

    def once() -> float:
        if often > 1:  # small: reload the cache, which the other contenders used
            call()
        start = time.thread_time()
        for _ in range(often):
            call()
        return (time.thread_time() - start) / often * 1e6

    return _repeated(once)


class OnCard:
    """Times calls on a card, by PyTorch's events. The L2 cache is flushed before each."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.flushed = torch.empty(1 << 28, dtype=torch.uint8, device="cuda")

    def _flush(self) -> None:
        self.flushed.zero_()
        self.torch.cuda.synchronize()

    def by_clock(self, call: Run) -> Timed:
        """Times calls on streams of their own, by the processor's clock."""
        return of_each(call, self._flush)

    def by_events(self, call: Run) -> Timed:
        """Times the work of calls on the current stream."""
        torch = self.torch

        def once() -> float:
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            self.flushed.zero_()
            torch.cuda._sleep(_SLEEP_CYCLES)
            start.record()
            call()
            end.record()
            end.synchronize()
            return float(start.elapsed_time(end)) * 1e3

        return _repeated(once)
