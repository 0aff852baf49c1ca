"""Replays of users' kernels, and of what a verdict found wrong."""

from __future__ import annotations

import dataclasses
from typing import Any

import gpureduce
from gpureduce.core import dtypes, registry
from gpureduce.core.dtypes import Array
from gpureduce.core.plan import launch_sizes
from gpureduce.core.schedule import Schedule
from gpureduce.emulator import replay_picture
from gpureduce.emulator.replay import BLOCK, Replay, build
from gpureduce.emulator.replay_steps import NOTHING, Recording
from gpureduce.kernels import faults, trials
from gpureduce.kernels.check import subjects_of
from gpureduce.kernels.kernel import Kernel
from gpureduce.kernels.verdict import Verdict

_MOST_N = 4096  # of a failure that is shown


def replay(
    made: Kernel, n: int | None, dtype: Any, block: int | None, grid: int | None,
    schedule: str | Schedule, values: Any,
) -> Replay:  # fmt: skip
    """`gpureduce.replay` of a kernel of a user."""
    elements = dtypes.named(made.dtypes[0] if dtype is None else dtype)
    block = block or made.domain.condition.usual_block or BLOCK
    threads, blocks = launch_sizes(block, grid)
    n = made.usual_size(n, block, 4) if values is None else n

    def runs(arrays: list[Array], wanted: Any, *how: Any) -> list[Recording]:
        made.check_size(arrays[0].size, block)
        pairs = made.pairs(elements, wanted)
        found: tuple[Recording, ...] = made.run(
            "gpureduce.kernels.jobs", "record_all", pairs, arrays, wanted, *how,
            limits=made.limits.times(len(arrays)), may_be_obsolete=True,
        )  # fmt: skip
        told = [one.fault and faults.readable(trials.told(one.fault), made.text) for one in found]
        return [dataclasses.replace(one, fault=why) for one, why in zip(found, told, strict=True)]

    texts = {made.file: made.text.splitlines()}
    name = made.signature.named("in") or "in"
    return build(
        made.name, n, elements, threads, blocks, schedule, values, runs, name, texts,
        made.pair,
    )  # fmt: skip


def failing(made: Kernel, verdict: Verdict) -> Replay:
    """A replay of what a verdict found wrong: a failure, or else a race. Else any run."""
    made, _ = made.with_fewer_elements()  # as the verdict did
    failures = [*verdict.failures, *verdict.reasons.values()]
    failure = next((one for one in failures if one.case.n <= _MOST_N), None)
    if failure:
        case = failure.case
        order = case.order if case.order != trials.ON_CARD else "lockstep"
        how = case.dtype, case.block, case.grid or None, order
        shown = replay(made, case.n, *how, None)
        if shown.is_right:
            shown = replay(made, None, *how, _numbers(made, case))
    elif verdict.races and verdict.races.races:
        return gpureduce.replay(made, race=verdict.races.races[0])
    else:
        shown = replay(made, None, verdict.dtypes[0], None, None, "lockstep", None)
    return dataclasses.replace(shown, start=_first_wrong(shown))


def _numbers(made: Kernel, case: trials.Case) -> Array:
    """The elements of a case."""
    ((dtype, load, acc, finish),), _, _ = subjects_of(made, [case.dtype])
    strategy = registry.STRATEGIES["sequential"]  # any: the numbers depend on the types alone
    return trials.Subject(strategy, dtype, load, acc, finish, made.text).numbers(case)


def _first_wrong(shown: Replay) -> int:
    """The step that the page opens at.

    That is the first step that adds an element twice, or else the last one with an element that is
    then lost; where neither is known, the first value that is no such sum, or the last store.
    """
    stores = [i for i, step in enumerate(shown.steps) if step.kind in ("store", "atomic")]
    if shown.fault or shown.is_right or not stores:
        return shown.start
    sums = shown.arrays[shown.steps[stores[-1]].array or 0]
    words = replay_picture.held(shown, len(shown.steps) - 1)[1]
    inside = range(sums.base, sums.base + sums.count * sums.element)
    numbers = {part for (_, owner, byte), (_, part) in words.items()
               if owner == -1 and byte in inside}  # fmt: skip
    if None in numbers and shown.unknown is not None:
        return shown.unknown
    total = sum((shown.parts[one] for one in numbers if one is not None), NOTHING)
    held = [(i, shown.parts[one]) for i, step in enumerate(shown.steps)
            for one in (*step.parts, *step.result_parts) if one is not None]  # fmt: skip
    lost, at = (1 << shown.n) - 1 & ~total.once, stores[-1]
    for i, part in reversed(held):
        if part.once & lost:
            at, lost = i, lost & ~part.once
    return next((i for i, part in held if part.twice & total.twice), at)
