"""Replays of users' kernels, and of what a verdict found wrong."""

from __future__ import annotations

import dataclasses
from typing import Any

import gpureduce
from gpureduce.core import dtypes, registry
from gpureduce.core.dtypes import Array
from gpureduce.core.plan import launch_sizes
from gpureduce.core.schedule import Schedule
from gpureduce.emulator.replay import BLOCK, Replay, build
from gpureduce.emulator.replay_steps import Recording
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
    if values is None and n is None and not made.signature.takes_n:
        n = made.domain.sizes[0] if made.domain.sizes else 4 * block * made.domain.per_thread

    def runs(arrays: list[Array], mutes: bool, wanted: Any, *how: Any) -> list[Recording]:
        made.check_size(arrays[0].size if arrays else 0, block)
        pairs = made.pairs(elements, wanted)
        found: tuple[Recording, ...] = made.run(
            "gpureduce.kernels.jobs", "record_all", pairs, arrays, mutes, wanted, *how,
            limits=made.limits.times(max(len(arrays), 1)), may_be_obsolete=True,
        )  # fmt: skip
        return [_readable(one, made.text) for one in found]

    texts = {made.file: made.text.splitlines()}
    name = made.signature.named("in") or "in"
    return build(
        made.name, n, elements, threads, blocks, schedule, values, runs, name, texts,
        made.pair,
    )  # fmt: skip


def _readable(run: Recording, text: str) -> Recording:
    """A recording with its fault as a sentence."""
    fault = faults.readable(trials.told(run.fault), text) if run.fault else ""
    return dataclasses.replace(run, fault=fault)


def failing(made: Kernel, verdict: Verdict) -> Replay:
    """A replay of what a verdict found wrong: a failure, or else a race. Else any run."""
    failures = [*verdict.failures, *verdict.reasons.values()]
    failure = next((one for one in failures if one.case.n <= _MOST_N), None)
    if failure:
        case = failure.case
        order = case.order if case.order != trials.ON_CARD else "lockstep"
        shown = replay(made, None, case.dtype, case.block, case.grid or None, order,
                       _numbers(made, case))  # fmt: skip
    elif verdict.races and verdict.races.races:
        found = verdict.races
        return gpureduce.replay(
            made, found.n, block=found.block, grid=found.grid, dtype=found.dtype,
            race=found.races[0],
        )  # fmt: skip
    else:
        shown = replay(made, None, verdict.dtypes[0], None, None, "lockstep", None)
    return dataclasses.replace(shown, start=_first_wrong(shown))


def _numbers(made: Kernel, case: trials.Case) -> Array:
    """The elements of a case."""
    ((dtype, load, acc, finish),), _, _ = subjects_of(made, [case.dtype])
    strategy = registry.STRATEGIES["sequential"]  # any: the numbers depend on the types alone
    return trials.Subject(strategy, dtype, load, acc, finish, made.text).numbers(case)


def _first_wrong(shown: Replay) -> int:
    """The step that the page opens at: of a wrong sum, the last store."""
    if shown.fault or shown.is_right:
        return shown.start
    stores = (i for i, step in enumerate(shown.steps) if step.kind in ("store", "atomic"))
    return max(stores, default=0)
