"""Times calls in turns: on a card by CUDA events, with a flushed L2 cache."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

Run = Callable[[], Any]

_ENOUGH_MS = 200.0  # of runs of one call: a slow call is repeated less often
_SLEEP_CYCLES = 2_000_000  # some 1 ms: the time in which Python puts a call on the stream


def _by_clock(run: Run) -> float:
    """Milliseconds of a call, by the processor's clock."""
    start = time.perf_counter()
    run()
    return (time.perf_counter() - start) * 1e3


class OnCard:
    """Times calls on a card, with PyTorch's events."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.flushed = torch.empty(1 << 28, dtype=torch.uint8, device="cuda")

    def by_clock(self, run: Run) -> float:
        """Milliseconds of a call on a stream of its own, by the processor's clock."""
        self.flushed.zero_()
        self.torch.cuda.synchronize()
        return _by_clock(run)

    def by_events(self, run: Run) -> float:
        """Milliseconds of a call's work on the current stream."""
        torch = self.torch
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.flushed.zero_()
        torch.cuda._sleep(_SLEEP_CYCLES)
        start.record()
        run()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end))


def medians(
    runs: dict[str, Run], clocked: set[str], card: OnCard | None, repeats: int
) -> dict[str, float]:
    """Milliseconds of each call: the median of `times`."""
    found = times(runs, clocked, card, repeats)
    return {name: statistics.median(taken) for name, taken in found.items()}


def times(
    runs: dict[str, Run], clocked: set[str], card: OnCard | None, repeats: int
) -> dict[str, list[float]]:
    """Milliseconds of several runs of each call, in turns, after one that warms up."""

    def once(name: str) -> float:
        if card is None:
            return _by_clock(runs[name])
        return card.by_clock(runs[name]) if name in clocked else card.by_events(runs[name])

    for name in runs:
        once(name)
    found: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, taken in found.items():
            if sum(taken) < _ENOUGH_MS:
                taken.append(once(name))
    return found


def without_failing(
    runs: dict[str, Run], look: Callable[[str, Any], None] = lambda name, result: None
) -> dict[str, str]:
    """Takes out the other libraries' calls that fail, and returns why. Ours must not fail.

    `look` gets each name and result, and may raise.
    """
    failed = {}
    for name in list(runs):
        try:
            result = runs[name]()
        except Exception as error:
            if name.startswith(("exact", "fast")):
                raise
            failed[name] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
            del runs[name]
        else:
            look(name, result)
    return failed
