"""The two orders of a race's accesses, each as a replay."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

from gpureduce.core.schedule import Schedule
from gpureduce.emulator.race import Race, Side
from gpureduce.emulator.replay_steps import BARRIERS, ReplayData

# With another seed than 0, lanes and warps go from the last to the first.
ORDERS = (
    Schedule("lockstep"), Schedule("lockstep", 1), Schedule("forward"), Schedule("reverse"),
    *(Schedule("random", seed) for seed in range(8)),
)  # fmt: skip
_KINDS = {"read": "load", "write": "store", "atomic": "atomic"}

_Shown = TypeVar("_Shown", bound=ReplayData)


def both_orders(race: Race, run: Callable[[Schedule], _Shown]) -> list[_Shown]:
    """Replays in which the first access comes first, and the second one; fewer if none was found.

    `run` makes the replay for an order of threads.
    """
    found: dict[bool, _Shown] = {}
    for order in ORDERS:
        shown = run(order)
        marks = _nearest(shown, race)
        if marks and (marks[0] < marks[1]) not in found:
            text = f"nothing orders the two: {race.remedy}"
            found[marks[0] < marks[1]] = replace(shown, marks=marks, race=text, start=min(marks))
        if len(found) == 2:
            break
    return [found[is_first] for is_first in (True, False) if is_first in found]


def _nearest(shown: ReplayData, race: Race) -> tuple[int, int] | None:
    """The steps of the two accesses: the nearest ones that no barrier orders."""
    first, second = ([*_steps_of(shown, side, race.address)] for side in race.sides)
    pairs = ((abs(a - b), a, b) for a in first for b in second if a != b)
    block = race.sides[0].block if race.sides[0].block == race.sides[1].block else None
    for _, a, b in sorted(pairs):
        between = shown.steps[min(a, b) : max(a, b)]
        if not any(step.kind in BARRIERS and step.block == block for step in between):
            return a, b
    return None


def _steps_of(shown: ReplayData, side: Side, address: str) -> Iterator[int]:
    warp, lane = divmod(side.thread, 32)
    wanted = side.place.line, _KINDS.get(side.kind), side.block, warp
    for number, step in enumerate(shown.steps):
        is_side = (step.line, step.kind, step.block, step.warp) == wanted and lane in step.lanes
        if is_side and _address(shown, number, lane) == address:
            yield number


def _address(shown: ReplayData, number: int, lane: int) -> str:
    """The word that a lane accesses, as a race names it."""
    step = shown.steps[number]
    array = shown.arrays[step.array or 0]
    index = step.offsets[step.lanes.index(lane)] // array.element
    return array.name if array.count == 1 else f"{array.name}[{index}]"
