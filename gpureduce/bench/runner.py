"""The runner: groups of contenders that alternate, and a row for each contender.

Contenders of a group take turns in several rounds, so that clock drift and other load affect all of
them equally.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpureduce.bench import libraries
from gpureduce.bench.clocks import Timed
from gpureduce.core.dtypes import quietly

Row = dict[str, Any]
Progress = Callable[[int, int, str], None]
ROUNDS = 3
_ENOUGH_US = 200_000.0  # of single runs of one contender: a slow call is repeated less often
_SLOW_US = 1e6  # a call that took as long when it was checked does not run again: that is its time


@dataclass
class Contender:
    """A kernel, a call of ours, or a call of another library.

    `timed` returns the microseconds of so many runs, and `value` the sum. `fields` are those of its
    row; some are known only after it has run. One that `may_fail` is left out if `value` raises.
    """

    strategy: str
    timed: Timed
    value: Callable[[], Any]
    fields: Row = field(default_factory=dict)
    may_fail: bool = False


@dataclass(frozen=True)
class Turns:
    """How often contenders run: `repeats` times in all, in `rounds` rounds.

    With `warm_up`, each runs once before the first round. A contender that has run for `enough_us`
    does not run again.
    """

    repeats: int
    rounds: int = ROUNDS
    warm_up: bool = False
    enough_us: float = math.inf


def one_by_one(repeats: int) -> Turns:
    """Turns of single runs."""
    return Turns(repeats, repeats, warm_up=True, enough_us=_ENOUGH_US)


@dataclass(frozen=True)
class Group:
    """Contenders that alternate on one case, whose fields all of their rows have.

    `check` gets the name and the value of each contender before any is timed, and may raise.
    `after` makes more fields of a row from its contender.
    """

    name: str
    case: Row
    contenders: Callable[[], Iterable[Contender]]
    turns: Turns
    check: Callable[[str, Any], None] | None = None
    after: Callable[[Contender], Row] = lambda contender: {}


class Latest:
    """Keeps the latest value of a function, such as a large array. Frees it before the next."""

    def __init__(self, make: Callable[..., Any]) -> None:
        self._make = make
        self._key: tuple[Any, ...] | None = None
        self._value: Any = None

    def __call__(self, *key: Any) -> Any:
        """The value for these arguments."""
        if key != self._key:
            self._key = self._value = None
            self._value = self._make(*key)
            self._key = key
        return self._value


def in_turns(contenders: Sequence[Contender], turns: Turns) -> list[list[float]]:
    """The times of each contender, in microseconds."""
    times: list[list[float]] = [[] for _ in contenders]
    emulated = all(one.fields.get("source") == "emulator" for one in contenders)
    single = (emulated or len(contenders) == 1) and not turns.warm_up
    rounds = 1 if single else min(turns.rounds, turns.repeats)
    if turns.warm_up:
        for contender in contenders:
            contender.timed(1)
    for turn in range(rounds):
        share = turns.repeats // rounds + (turn < turns.repeats % rounds)
        for contender, found in zip(contenders, times, strict=True):
            if sum(found) < turns.enough_us:
                found += contender.timed(share)
    return times


def row_of(case: Row, contender: Contender, times: Sequence[float]) -> Row:
    """The row of a contender."""
    return {
        **case,
        "strategy": contender.strategy,
        **contender.fields,
        "repeats": len(times),
        "median_us": statistics.median(times),
        "low_us": min(times),
        "high_us": max(times),
    }


def _tried(contender: Contender, check: Callable[[str, Any], None]) -> str | float:
    """Why a contender is left out, or the microseconds that it took. Ours must not fail."""
    start = time.perf_counter()
    try:
        value = contender.value()
    except Exception as error:
        if not contender.may_fail:
            raise
        return f"{type(error).__name__}: {error}".splitlines()[0][:200]
    check(contender.strategy, value)
    return (time.perf_counter() - start) * 1e6


def _rows(group: Group) -> list[Row]:
    rows, contenders, slow = [], [], []
    for one in group.contenders():
        found = quietly(_tried, one, group.check) if group.check else 0.0
        if isinstance(found, str):
            rows.append({**group.case, "strategy": one.strategy, "failed": found})
        elif found > _SLOW_US and group.turns.enough_us < math.inf:
            slow.append((one, [found]))
        else:
            contenders.append(one)
    times = quietly(in_turns, contenders, group.turns)
    for one, taken in [*zip(contenders, times, strict=True), *slow]:
        rows.append(row_of(group.case, one, taken) | group.after(one))
    return rows


def measure(groups: Sequence[Group], progress: Progress | None = None) -> Iterator[Row]:
    """A row for each contender of each group: the case, the contender, and its times.

    A row of a contender that was left out has the field "failed" instead of times.
    """
    for done, group in enumerate(groups):
        if progress:
            progress(done, len(groups), group.name)
        yield from _rows(group)
        libraries.free()
    if progress:
        progress(len(groups), len(groups), "")
