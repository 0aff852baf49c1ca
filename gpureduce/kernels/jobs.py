"""What the process for kernels does for `sum`, `explain` and `races`: the same calls, there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gpureduce
from gpureduce import emulator
from gpureduce.core.registry import Strategy
from gpureduce.core.results import SumResult
from gpureduce.core.schedule import Schedule
from gpureduce.emulator.explain import explain
from gpureduce.emulator.races import races

Tell = Callable[[str, object], None]


def add(strategy: Strategy, _: Tell, array: Any, order: Schedule, **named: Any) -> SumResult:
    """The sum of an array, in the caller's order of threads."""
    with emulator.schedule(*order):
        return gpureduce.sum(array, strategy, device="emulator", **named)  # type: ignore[arg-type]


def count(strategy: Strategy, _: Tell, **named: Any) -> Any:
    """The counts. All blocks run: which ones of a kernel do the same is not known."""
    named["sample"] = False
    return explain(strategy, **named)  # type: ignore[arg-type]


def race(strategy: Strategy, _: Tell, **named: Any) -> Any:
    """The races."""
    return races(strategy, **named)  # type: ignore[arg-type]
