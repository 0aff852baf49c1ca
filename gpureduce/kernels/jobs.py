"""The calls of `sum`, `explain` and `races` that the process for users' kernels makes."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import gpureduce
from gpureduce import _host, emulator
from gpureduce.core import devices, on_device
from gpureduce.core.cumsum import cumsum
from gpureduce.core.dtypes import convert_for
from gpureduce.core.plan import Plan
from gpureduce.core.registry import Strategy
from gpureduce.core.results import SumResult
from gpureduce.core.schedule import Schedule
from gpureduce.emulator.explain import explained
from gpureduce.emulator.races import races
from gpureduce.emulator.replay_steps import Recording, record
from gpureduce.kernels.trials import Case, Failure, subject_of

Tell = Callable[[str, object], None]


def add(strategy: Strategy, _: Tell, array: Any, order: Schedule, **named: Any) -> SumResult:
    """The sum of an array, or its running sums, in the caller's order of threads."""
    call: Any = cumsum if strategy.kind == "scan" else gpureduce.sum
    with emulator.schedule(*order):
        found: SumResult = call(array, strategy, device="emulator", **named)
    return found


def count(strategy: Strategy, _: Tell, **named: Any) -> Any:
    """The counts. All blocks run: which ones of a kernel do the same is not known."""
    named["sample"] = False
    return explained(strategy, **named)


def count_cases(
    strategy: Strategy,
    _: Tell,
    subject: tuple[Any, ...],
    cases: Sequence[tuple[int, int]],
    order: str,
) -> list[tuple[dict[str, int], int, Failure | None]]:
    """For sizes and blocks: the counters, the blocks of all launches, and whether the sum is wrong.

    The sums that are counted are the ones that are judged, so that a kernel cannot do less there.
    """
    dtype, load, acc, finish = subject
    tried = subject_of(strategy, dtype, load, acc, finish, "")
    launches = [Case(n, block, 0, order, "different", tried.dtype) for n, block in cases]
    return [tried.operations(case) for case in launches]


def measure(
    strategy: Strategy, _: Tell, array: Any, dtype: Any, block: Any, grid: Any, repeats: int,
    apart: bool,
) -> tuple[list[float], int | None, int | None]:  # fmt: skip
    """The times of the launches, in ms; block and grid."""
    plan = Plan(strategy, convert_for(array.dtype, dtype, strategy.pair), block or 0, grid or 0)
    finish = strategy.finishes[0] if strategy.finishes == ("host",) else None
    plan = replace(plan, finish=finish)
    device = devices.choose_device("emulator")
    return on_device.measure(plan, array, device, copies=1, repeats=repeats, apart=apart)


def race(strategy: Strategy, _: Tell, **named: Any) -> Any:
    """The races."""
    return races(strategy, **named)  # type: ignore[arg-type]


def record_all(
    strategy: Strategy, _: Tell, arrays: list[Any], wanted: Any, block: int, grid: int | None,
    schedule: Schedule, by_host: bool,
) -> list[Recording]:  # fmt: skip
    """The steps of a kernel, for each array. `by_host`: the host adds up its block sums."""
    if by_host and not strategy.traits & _host.FINISHES:
        strategy = replace(strategy, finishes=("host",))
    found = []
    for one in record(strategy, arrays, wanted, block, grid, Schedule(*schedule)):
        found.append(one)
        ctypes.CDLL(None).fflush(None)
        with open(os.devnull, "w") as nothing:  # what the kernel prints comes once
            os.dup2(nothing.fileno(), 1)
    return found
