"""The part of a check that runs on a card: right or wrong there, and the time beside the ladder's.

Runs in the process for kernels, so a kernel that faults or hangs takes no other sums with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gpureduce.bench.benchmark import benchmark
from gpureduce.core import devices, dtypes
from gpureduce.core.devices import Device
from gpureduce.core.dtypes import Array
from gpureduce.core.plan import Launch
from gpureduce.core.registry import Strategy
from gpureduce.core.summation import sum as sum_of
from gpureduce.errors import CudaError
from gpureduce.kernels import ladder, trials
from gpureduce.kernels.conditions import Domain
from gpureduce.kernels.trials import ON_CARD, Case, Failure, Subject

N = 2**26  # elements of the sums that are timed: more than a cache holds
_REPEATS = 6
_OFTEN = 5  # runs of each large case: a race may go well once
_LARGE = ((2**20 + 1, 1024), (2**20, 1024), (2**22 + 7, 256), (2**22, 256))


@dataclass(frozen=True)
class CardResult:
    """The findings of a check on a card.

    `times` are the microseconds of a sum of 2**26 elements in blocks of the default size, by the
    ladder's rungs, by `fast`, and by the kernel, which comes last; empty if it was wrong. `why_not`
    says why the kernel was not run.
    """

    card: str
    tried: int = 0
    dtype: str = ""
    times: tuple[tuple[str, float], ...] = ()
    right: bool = False
    why_not: str = ""

    @property
    def own_us(self) -> float:
        """The kernel's time."""
        return self.times[-1][1]

    @property
    def share_of_fast(self) -> float:
        """The kernel's speed, where that of `fast` is 1."""
        return dict(self.times[:-1])["fast"] / self.own_us

    @property
    def place(self) -> int:
        """Its place among the rungs and `fast`, from 1, the slowest first."""
        return 1 + sum(us > self.own_us for _, us in self.times[:-1])

    def as_dict(self) -> dict[str, Any]:
        """All of it as plain values, for JSON."""
        return {
            "card": self.card,
            "tried": self.tried,
            "dtype": self.dtype,
            "n": N,
            "microseconds": dict(self.times),
            "why_not": self.why_not,
        }

    def sentences(self, name: str) -> str:
        """The result as text."""
        if self.why_not:
            return f"Not run on the {self.card}: {self.why_not}"
        if not self.times and self.right:
            return f"All {self.tried} sums on the {self.card} came out right; a block is not timed."
        if not self.times:
            return f"{self.tried} sums on the {self.card}; not timed, since one was wrong."
        ordered = sorted(self.times, key=lambda row: -row[1])
        at = [row[0] for row in ordered].index(self.times[-1][0])
        shown = [f"{name}, yours ({us:,.1f} µs)" if rung == self.times[-1][0]
                 else f"{rung} ({us:,.1f} µs)" for rung, us in ordered]  # fmt: skip
        around = ", ".join(shown[max(0, at - 2) : at + 3])
        gb_s = N * dtypes.named(self.dtype).itemsize / self.own_us / 1e3
        return (
            f"All {self.tried} sums on the {self.card} came out right. It adds up {N:,} "
            f"{self.dtype} in {self.own_us:,.1f} µs ({gb_s:,.0f} GB/s), {self.share_of_fast:.0%} "
            f"of the speed of fast, and is number {self.place} of {len(self.times)}, slowest "
            f"first: {around}."
        )


@dataclass(frozen=True)
class _OnCard(Subject):
    """A kernel with one pair of types, loaded onto a card."""

    device: Device

    def run(self, array: Array, case: Case, traced: bool = False, fresh: bool = True) -> Array:
        """The sum that the kernel leaves. Raises CudaError for a fault."""
        launch = Launch(self.strategy.index, self.load, self.acc, case.block, case.grid,
                        self.finish, self.device.index, timed=False)  # fmt: skip
        bits = devices.module_of(self.device).sum(array, launch)[0]
        return self._entries(bits)

    def fault(self, error: Exception) -> str:
        """CUDA's name of the error and its text."""
        return str(error).partition(", from ")[0]


def _cases(
    subject: Subject, seed: int, where: Domain, large: Sequence[tuple[int, int]]
) -> Iterator[Case]:
    """The cases of the emulator, without its orders of threads; and large ones."""
    distinct = (replace(case, order=ON_CARD) for case in trials.cases(subject, seed, where))
    yield from dict.fromkeys(distinct)
    for n, block in large:
        for _ in range(_OFTEN * where.allows(block, n)):
            yield Case(n, block, 0, ON_CARD, "different", subject.dtype)


def _try_all(
    subject: _OnCard, cases: Iterator[Case], tell: Callable[[str, object], None]
) -> tuple[int, Failure | None]:
    """The number of sums made, and the smallest case that failed. A fault ends the run."""
    tried, failures = 0, []
    for case in cases:
        tell("case", case)
        failure = subject.wrong(case)
        tried += 1
        if failure and failure.fault:
            return tried, failure
        if failure:
            failures.append(failure)
    return tried, trials.smallest(subject, failures, tell) if failures else None


def _runs(name: str, device: str) -> bool:
    """Whether a rung runs on this card."""
    try:
        sum_of(np.zeros(64, np.int32), name, "int32", device=device)
    except CudaError:
        return False
    return True


def examine(
    strategy: Strategy,
    tell: Callable[[str, object], None],
    subjects: Sequence[tuple[Any, ...]],
    results: Sequence[str],
    seed: int,
    where: Domain,
    device: str,
    n: int = N,
    large: Sequence[tuple[int, int]] = _LARGE,
) -> bool:
    """Tries the kernel on a card, for each dtype, and times `n` elements of the first one."""
    card, right = devices.choose_device(device), True
    for name, load, acc, finish in subjects:
        subject = _OnCard(strategy, name, load, acc, finish, "", card)
        subject = subject.by_host() if where.condition.full else subject
        tried, failure = _try_all(subject, _cases(subject, seed, where, large), tell)
        tell("tried", tried)
        if failure:
            tell("failure", failure)
            right = False
        if failure and failure.fault:
            return False
    if not right:
        return False
    if where.alone and where.condition.full:
        return True  # it adds up no more than a block has
    dtype, accumulate = subjects[0][0], results[0]
    names = [name for name in (*ladder.LADDER, "fast") if _runs(name, device)]
    try:
        rows = list(benchmark(
            [*names, subject.strategy],  # type: ignore[list-item]
            [n], [dtype], [where.condition.usual_block], device=device, repeats=_REPEATS,
            accumulate=accumulate, progress=lambda *_: tell("stage", "timing"),
        ))  # fmt: skip
    except CudaError as error:  # for so many elements
        last = Case(n, where.condition.usual_block or 256, 0, ON_CARD, "different", dtype)
        tell("failure", Failure(last, fault=subject.fault(error)))
        return False
    times = [(row.strategy, row.median_us) for row in rows]
    times[-1] = ("(yours)", times[-1][1])
    tell("times", (dtype, tuple(times)))
    return True
