"""`races`: runs a strategy's kernels on the emulator and reports accesses to memory that race."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from gpureduce import _emulator_traced, _host
from gpureduce.core import dtypes, exact, registry, running_on_device, sources
from gpureduce.core.checks import listed, named_keywords, whole
from gpureduce.core.plan import Plan, launch_of
from gpureduce.core.schedule import ORDERS, Schedule, checked
from gpureduce.emulator import race_picture
from gpureduce.emulator.explain import find_whole
from gpureduce.emulator.race import (
    ATOMIC,
    MISSING,
    ONE_WRITER,
    FoundRaces,
    Place,
    Race,
    Side,
    SplitBarrier,
    Unwritten,
)  # fmt: skip

SCHEDULES = ("forward", "reverse", "lockstep", "random 0", "random 1", "random 2")
_MOST_ATOMICS = 8  # places after which a block stops


@dataclass(frozen=True)
class Races(FoundRaces):
    """The findings of `races`; true if there are any.

    `races` are pairs of lines that race, the most frequent first; `barriers` those that only part
    of a block reached; `faults` what ended a launch (a deadlock, say), by schedule; `wrong` the
    sums that came out wrong, by schedule, beside the right one, `expected`.

    >>> import gpureduce
    >>> found = gpureduce.races("missing_barrier")
    >>> bool(found), len(found.races), found.races[0].sides[0].place.line
    (True, 1, 18)
    """

    def __str__(self) -> str:
        return race_picture.text(self)

    def _repr_html_(self) -> str:
        return race_picture.html(self)

    def plot(self, race: int = 0) -> Any:
        """The timeline of one race as a matplotlib figure: two threads, and no barrier between."""
        figure = race_picture.picture(self, race).plot().figure
        import matplotlib.pyplot as plt

        plt.close(figure)  # a notebook shows what a cell returns, once
        return figure

    def svg(self, race: int = 0) -> str:
        """The same picture as SVG."""
        return race_picture.picture(self, race).svg()


@named_keywords
def races(
    strategy: str | registry.UserKernel,
    n: int | None = None,
    dtype: npt.DTypeLike | None = None,
    block: int = 256,
    grid: int | None = None,
    schedules: str | Schedule | Sequence[str | Schedule] = SCHEDULES,
) -> Races:
    """Run a strategy's kernels on the emulator and look for races; no GPU is needed.

    Two accesses to the same bytes race if two threads make them, at least one of them writes, not
    both are atomic, and nothing says which comes first: no barrier that both threads pass, no
    ``__syncwarp`` that names both, no fences on either side of atomics, no end of a launch. A race
    is found whether or not the sum comes out right. Of running sums, the last one is looked at.

    Not seen: branches that these numbers do not take; launches that overlap others (the emulator's
    follow one another).

    Parameters
    ----------
    strategy
        A name or alias out of `strategies`, the ones that are wrong on purpose included; or a
        kernel of yours, out of `kernel`.
    n
        How many elements to add up; by default enough for several blocks.
    dtype
        The elements' dtype: by default int32, float32 for `exact`, or the own dtype of a kernel of
        yours. Numbers of four bytes and more are added up in it, as in the lectures.
    block, grid
        As in `sum`.
    schedules
        In which orders to run the threads: ``"forward"``, ``"reverse"``, ``"lockstep"``,
        ``"random SEED"``. More orders find more only where a kernel takes other branches.

    Examples
    --------
    >>> import gpureduce
    >>> bool(gpureduce.races("sequential"))
    False
    >>> found = gpureduce.races("missing_barrier")
    >>> found.races[0].missing
    '__syncthreads()'
    """
    if isinstance(strategy, registry.UserKernel):
        return cast(Races, strategy.call("races", n, dtype, block, grid, schedules))
    chosen, elements = find_whole(strategy, "strategy", dtype)
    dtype = dtypes.name_of(elements)
    blocks, grids, _ = launch_of(chosen, block, grid, None)
    alone = isinstance(schedules, (str, Schedule))
    orders = (schedules,) if alone else listed("schedules", schedules)
    if not orders:
        raise ValueError(f"schedules must name at least one of {', '.join(ORDERS)}")
    if n is None:
        n, grids = _default_size(chosen, dtype, blocks, grids)
    n = whole("n", n, 1, 2**24)  # each access is looked at
    return examine(_emulator_traced, chosen, n, dtype, (blocks, grids), orders)


def _default_size(chosen: registry.Strategy, dtype: str, block: int, grid: int) -> tuple[int, int]:
    """Several blocks and a ragged end; a ring of bulk copies must come round."""
    if chosen.traits & _host.EIGHT:  # elements of a thread
        return 32 * block + 7, grid
    if chosen.traits & _host.RING and not grid:
        tile = 32768 // dtypes.named(dtype).itemsize
        return 8 * tile + 7, 1
    return 8 * block + 7, grid


def named_schedule(wanted: str | Schedule) -> tuple[str, Schedule]:
    """A schedule and the name that it goes by in a report."""
    if isinstance(wanted, Schedule):
        schedule = wanted
    elif not isinstance(wanted, str):
        raise TypeError(f"a schedule is a name or a Schedule, not {type(wanted).__name__}")
    else:
        order, _, seed = wanted.partition(" ")
        is_seeded = order in ("random", "lockstep") and seed.isdecimal()
        if order not in ORDERS or (seed and not is_seeded):
            raise ValueError(f"a schedule is one of {', '.join(ORDERS)}, or 'random 7': {wanted!r}")
        schedule = Schedule(order, int(seed or 0))
    checked(schedule)
    seeded = schedule.order == "random" or (schedule.order == "lockstep" and schedule.seed)
    name = schedule.order + (f" {schedule.seed}" if seeded else "")
    return name, schedule


def examine(
    module: ModuleType,
    strategy: registry.Strategy,
    n: int,
    dtype: str,
    launch: tuple[int, int],
    schedules: Sequence[str | Schedule],
    result: npt.DTypeLike | None = None,
    stops: bool = False,
    reset: Callable[[], None] | None = None,
) -> Races:
    """The work of `races`, for any traced build of the emulator, and for a sum of any dtype.

    If nothing is found, and atomics pass on what fences publish, `stops` adds random orders: in
    each of them, a block stops after another atomic of the kernel. `reset` runs before each order.
    """
    array = numbers(n, dtype)
    result = dtypes.in_itself(array.dtype, strategy.pair) if result is None else result
    conversion = dtypes.convert_for(array.dtype, result, strategy.pair)
    expected = exact.right_sum(array, conversion.result)
    block, grid = launch
    found = _Found(n=n, dtype=dtype, block=block, grid=grid or None)
    plan = Plan(strategy, conversion, *launch_of(strategy, block or None, grid or None, None))
    orders = dict(map(named_schedule, schedules))
    left = list(orders)
    while left:
        schedule = orders[name := left.pop(0)]
        if reset:
            reset()
        reports: list[str] = []
        try:
            bits, fault = running_on_device.last_sum(
                module, "watched", plan, array, schedule, reports
            )
        except MemoryError as error:
            raise MemoryError(
                f"races would need more than its 4 GiB to record all accesses of {strategy.name} "
                f"for n={n}: use a smaller n"
            ) from error
        if not reports:
            raise MemoryError(f"no memory for the results about {strategy.name} with n={n}")
        if fault:
            found.faults[name] = fault
        elif (value := value_of(conversion, bits)) != expected:
            found.wrong[name] = value
        found.add(name, report := json.loads(reports[0]))
        if stops and not left and not (found.races() or found.faults or found.wrong):
            more = [f"random {seed}" for seed in range(min(report["atomics"], _MOST_ATOMICS))]
            left = [name for name in more if name not in orders]
            orders |= dict(map(named_schedule, left))
    return Races(
        strategy.name, n, dtype, block, grid or None, tuple(orders),
        found.races(), tuple(found.barriers.values()), found.faults, found.wrong, expected,
        tuple(found.unwritten.values()), tuple(found.alike.values()), found.stops,
    )  # fmt: skip


def value_of(conversion: dtypes.Conversion, bits: bytes) -> Any:
    """The sum as a number. A kernel leaves a number of 8 bytes, or digits, which are longer."""
    if len(bits) == 8:
        return conversion.value(bits)
    total = exact.new(conversion.result)
    total.add_state(bits, 0, True)
    return exact.value(total, conversion.result)


def numbers(n: int, dtype: str) -> dtypes.Array:
    """Small numbers of which the sum is exact in any dtype, and each of which counts."""
    return (1 + np.arange(n) % 2).astype(dtypes.named(dtype))


class _Found:
    """The findings of several runs. Each pair of lines is kept once."""

    def __init__(self, **launch: Any) -> None:
        self.launch = launch
        self.by_lines: dict[tuple[Any, ...], Race] = {}
        self.barriers: dict[tuple[Any, ...], SplitBarrier] = {}
        self.faults: dict[str, str] = {}
        self.wrong: dict[str, Any] = {}
        self.unwritten: dict[Place, Unwritten] = {}
        self.alike: dict[tuple[str, int], str] = {}
        self.stops: dict[str, str] = {}
        self.together: set[tuple[Place, str] | None] = set()
        self.flags: dict[tuple[Any, ...], bool] = {}  # whether lines may set and read a flag
        self.polled: set[Place] = set()

    def add(self, schedule: str, report: dict[str, Any]) -> None:
        for row in report["races"]:
            self._add_race(schedule, row)
        for row in report["barriers"]:
            places = tuple(_place(place) for place in row["places"])
            threads = tuple(tuple(place["threads"]) for place in row["places"])
            split = SplitBarrier(row["block"], places, threads, tuple(row["ended"]))
            self.barriers.setdefault(places, split)
        for row in report["unwritten"]:
            read = Unwritten(row["block"], row["thread"], row["address"], _place(row))
            self.unwritten.setdefault(read.place, read)
        for row in report["stops"][:1]:
            who = f"block {row['block']}"
            who = who if row["whole"] else f"warp {row['thread'] // 32} of {who}"
            self.stops[schedule] = f"{who} stopped after its atomic at {_place(row)}"

    def _add_race(self, schedule: str, row: dict[str, Any]) -> None:
        if not row["differ"]:  # any of the threads may be the last to store
            line, address = row["sides"][1]["line"], row["address"]
            said = f"line {line}: threads store the same value to {address}; one of them would do"
            self.alike.setdefault((row["sides"][1]["file"], line), said)
            return
        sides = tuple(_side(side) for side in row["sides"])
        if _is_guess(row["sides"], sides):
            return
        race = Race(
            sides, _address(row, sides), row["missing"], row["count"], (schedule,), row["fenced"]  # type: ignore[arg-type]
        )  # fmt: skip
        if row["together"]:
            self.together.add(_store_of(race))
        lines = tuple(sorted((s.place.file, s.place.line, s.kind) for s in sides))
        self.polled |= {s.place for s, one in zip(sides, row["sides"], strict=True) if one["polls"]}
        self.flags[lines] = self.flags.get(lines, True) and _is_relaxed(race)
        known = self.by_lines.get(lines)
        if known:
            more = MISSING.index(race.missing) > MISSING.index(known.missing)
            race = dataclasses.replace(
                race if more else known,
                count=known.count + race.count,
                schedules=tuple(dict.fromkeys((*known.schedules, schedule))),
                fenced=known.fenced and race.fenced,
            )
        self.by_lines[lines] = race

    def races(self) -> tuple[Race, ...]:
        found = [
            dataclasses.replace(race, missing=self._missing(race), **self.launch)
            for lines, race in self.by_lines.items()
            if not (self.flags[lines] and self.polled & {side.place for side in race.sides})
            and not (_is_one_line(race) and self._is_updated(race))
        ]
        return tuple(sorted(found, key=lambda race: -race.count))

    def _is_updated(self, race: Race) -> bool:
        """Whether an atomic races with a store: then its threads may well store the same value."""
        store = _store_of(race)
        return any("atomic" in {side.kind for side in one.sides} and _store_of(one) == store
                   for one in self.by_lines.values())  # fmt: skip

    def _missing(self, race: Race) -> str:
        """What would mend a race: no barrier does if threads store at one line in the same step."""
        if {side.kind for side in race.sides} == {"atomic"}:  # of a block alone
            return ATOMIC
        all_of_them, store = self.by_lines.values(), _store_of(race)
        if store not in self.together and not _adds_from_blocks(race, all_of_them):
            return race.missing
        if any(_may_add(one) and _store_of(one) == store for one in all_of_them):
            return ATOMIC
        return ONE_WRITER if _is_one_line(race) else race.missing


def _place(row: dict[str, Any]) -> Place:
    return Place(row["file"], row["line"], row.get("what", ""), row.get("meeting", 0))


def _side(row: dict[str, Any]) -> Side:
    before, after = (_place(row[edge]) if row[edge] else None for edge in ("before", "after"))
    place = Place(row["file"], row["line"])
    return Side(
        row["block"], row["thread"], row["copy"], row["kind"], place, before, after, row["volatile"]
    )  # fmt: skip


def _is_guess(rows: list[dict[str, Any]], sides: tuple[Side, ...]) -> bool:
    """Whether a thread loads what its compare-and-swap compares: an old value does no harm."""
    swaps = [s for s in sides if "atomicCAS" in sources.text_of(s.place.file, s.place.line)]
    return any(row["guess"] for row in rows) and any(side.kind == "atomic" for side in swaps)


def _is_relaxed(race: Race) -> bool:
    """Whether a volatile load meets a volatile store or an atomic, as where warps poll a flag."""
    (one, other), sides = race.lanes, race.sides
    same_warp = one[0] == other[0] and one[1] // 32 == other[1] // 32
    return (
        not same_warp
        and any(side.kind == "read" for side in sides)
        and all(side.volatile or side.kind == "atomic" for side in sides)
    )


def _is_one_line(race: Race) -> bool:
    """Whether two threads store at one line of the kernel, at the same time."""
    first, second = race.sides
    return first.kind == second.kind == "write" and first.place == second.place


def _adds_from_blocks(race: Race, races: Iterable[Race]) -> bool:
    """Whether blocks read and store one element at one line, as in ``*out = *out + sum``."""
    first, second = race.sides
    kinds = [
        {side.kind for side in one.sides}
        for one in races
        if one.sides[0].block != one.sides[1].block
        and {side.place for side in one.sides} == {first.place} == {second.place}
        and _store_of(one) == _store_of(race)
    ]
    return first.block != second.block and {"write"} in kinds and {"read", "write"} in kinds


def _may_add(race: Race) -> bool:
    """Whether a thread may add to the value it reads: its store is at that line or a later one."""
    by_kind = {side.kind: side.place.line for side in race.sides}
    return set(by_kind) == {"read", "write"} and by_kind["read"] <= by_kind["write"]


def _store_of(race: Race) -> tuple[Place, str] | None:
    """The line of a race that stores, and the array or variable; None for one without a store."""
    places = [side.place for side in race.sides if side.kind == "write" and not side.copy]
    return (places[0], race.address.partition("[")[0]) if places else None


def _address(row: dict[str, Any], sides: Sequence[Side]) -> str:
    far = row["shared"] and any(side.block != row["owner"] for side in sides)
    return str(row["address"]) + (f" of block {row['owner']}" if far else "")
