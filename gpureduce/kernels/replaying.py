"""Replays of users' kernels, and of what a verdict found wrong."""

from __future__ import annotations

import dataclasses
from typing import Any

import gpureduce
from gpureduce.core import dtypes, registry
from gpureduce.core.dtypes import Array
from gpureduce.core.plan import launch_sizes
from gpureduce.emulator.provenance import NOTHING
from gpureduce.emulator.replay import BLOCK, Call, Replay, build
from gpureduce.emulator.replay_steps import Recording
from gpureduce.kernels import faults, trials
from gpureduce.kernels.check import subjects_of
from gpureduce.kernels.kernel import Kernel
from gpureduce.kernels.verdict import Verdict

_MOST_N = 4096  # of a failure that is shown


def replay(made: Kernel, call: Call, by_host: bool = False) -> Replay:
    """`gpureduce.replay` of a kernel of a user. `by_host`: the host adds up its block sums."""
    elements = dtypes.named(made.dtypes[0] if call.dtype is None else call.dtype)
    usual = made.domain.condition.usual_block or BLOCK
    block, _ = launch_sizes(usual if call.block is None else call.block, call.grid)
    n = made.usual_size(call.n, block, 4) if call.values is None else call.n

    def record(arrays: list[Array], wanted: Any, *how: Any) -> list[Recording]:
        made.check_size(arrays[0].size, block)
        shown, *others = made.run(
            "gpureduce.kernels.jobs", "record_all", made.pairs(elements, wanted), arrays, wanted,
            *how, by_host, limits=made.limits.times(len(arrays)), may_be_obsolete=True,
        )  # fmt: skip
        fault = shown.fault and faults.readable(trials.told(shown.fault), made.text)
        return [shown._replace(fault=fault), *others]

    call = call._replace(n=n, dtype=elements, block=block)
    name, texts = made.signature.named("in") or "in", {made.file: made.text.splitlines()}
    return build(made.name, call, record, texts, name, made.pair)


def failing(made: Kernel, verdict: Verdict) -> Replay:
    """A replay of what a verdict found wrong: a failure, or else a race. Else any run."""
    made, _ = made.with_fewer_elements()  # as the verdict did
    failures = [*verdict.failures, *verdict.reasons.values()]
    failure = next((one for one in failures if one.case.n <= _MOST_N), None)
    if failure:
        case = failure.case
        order = case.order if case.order != trials.ON_CARD else "lockstep"
        call = Call(case.n, case.dtype, case.block, case.grid or None, order)
        shown = replay(made, call, by_host=True)
        if shown.is_right:
            (how,), _, _ = subjects_of(made, [case.dtype])
            strategy = registry.STRATEGIES["sequential"]  # any: the numbers depend on the types
            numbers = trials.subject_of(strategy, *how, made.text).numbers(case)
            shown = replay(made, call._replace(n=None, values=numbers), by_host=True)
    elif verdict.races and verdict.races.races:
        return gpureduce.replay(made, race=verdict.races.races[0])
    else:
        shown = replay(made, Call(dtype=verdict.dtypes[0]))
    return dataclasses.replace(shown, start=_first_wrong(shown))


def _first_wrong(shown: Replay) -> int:
    """The step that the page opens at.

    That is the first step that adds an element twice, or else the last one with an element that is
    then lost; where neither is known, the first value that is no such sum, or the last store.
    """
    stores = [i for i, step in enumerate(shown.steps) if step.kind in ("store", "atomic")]
    if shown.fault or shown.is_right or not stores:
        return shown.start
    sums: dict[int, int | None] = {}  # by place in the array of the last store: the parts
    for step in (shown.steps[i] for i in stores):
        if step.array == shown.steps[stores[-1]].array:
            sums |= zip(step.offsets, step.result_parts or step.parts, strict=False)
    if None in sums.values() and shown.unknown is not None:
        return shown.unknown
    total = sum((shown.parts[one] for one in {*sums.values()} if one is not None), NOTHING)
    held = [(i, shown.parts[one]) for i, step in enumerate(shown.steps)
            for one in (*step.parts, *step.result_parts) if one is not None]  # fmt: skip
    lost, at = (1 << shown.n) - 1 & ~total.once, stores[-1]
    for i, part in reversed(held):
        if part.once & lost:
            at, lost = i, lost & ~part.once
    return next((i for i, part in held if part.twice & total.twice), at)
