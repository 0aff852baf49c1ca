"""Races, and barriers that only part of a block reaches, as data and as text."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, cast

from gpureduce.core.sources import text_of
from gpureduce.text import plain, ranges

_DEEDS = {"read": "reads", "write": "writes", "atomic": "updates", "end": "ends with"}
_WIDTH = 31  # of a thread's column: two fit on a terminal


@dataclass(frozen=True)
class Place:
    """A line of a kernel, and the name of its barrier or fence, if the place is one.

    Two threads that waited at the same execution of a barrier have the same `meeting` number.
    `text` is the text of the line; empty if gpureduce was not built from it.
    """

    file: str
    line: int
    what: str = ""
    meeting: int = 0
    text: str = field(default="", compare=False, repr=False)

    def __post_init__(self) -> None:
        """Takes the line's text now: a user's kernel may have another text later."""
        if not self.text:
            object.__setattr__(self, "text", text_of(self.file, self.line))

    @property
    def short(self) -> str:
        """File and line, without folders."""
        return f"{PurePosixPath(self.file).name}:{self.line}"

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Side:
    """One of the two accesses of a race: thread, kind, place, and the barriers around it.

    `copy` is true for a bulk copy that the thread's block issued; it belongs to no thread.
    `volatile` is true for an access to a volatile variable.
    `before` and `after` are the thread's last barrier or fence before the access and the next one.
    """

    block: int
    thread: int
    copy: bool
    kind: str
    place: Place
    before: Place | None
    after: Place | None
    volatile: bool = False

    @property
    def warp(self) -> int:
        """The thread's warp in its block."""
        return self.thread // 32

    @property
    def name(self) -> str:
        """The thread's name in a sentence."""
        if self.copy:
            return f"a bulk copy of block {self.block}"
        return f"thread {self.thread} of block {self.block}"


@dataclass(frozen=True)
class Race:
    """Two accesses to the same bytes that nothing orders; at least one writes.

    `address` is their address (``"shared[12]"``, ``"out[0]"``); `missing` what would mend it: a
    barrier or fence that orders the two, ``"atomicAdd()"`` where both threads add to a value, or
    ``"one writer"`` where both store a value of their own, or ``"plain load"`` in place of
    ``__ldg()`` where the two are in order; `count` how often this pair of lines
    raced; `schedules` under which orders of threads it was seen; `fenced` whether only
    the reader lacks a fence, between an atomic and its read. `n`, `dtype`, `block` and `grid` are
    the launch.

    >>> import gpureduce
    >>> race = gpureduce.races("missing_barrier").races[0]
    >>> race.address, race.missing, race.lanes
    ('shared[32]', '__syncthreads()', ((0, 0), (0, 32)))
    """

    sides: tuple[Side, Side]
    address: str
    missing: str
    count: int
    schedules: tuple[str, ...]
    fenced: bool = False
    n: int = 0
    dtype: str = ""
    block: int = 0
    grid: int | None = None

    @property
    def lanes(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """The two threads, each as (block, thread)."""
        a, b = self.sides
        return (a.block, a.thread), (b.block, b.thread)

    @property
    def timeline(self) -> str:
        """The two threads side by side, from the barrier before to the barrier after."""
        left, right = self.sides

        def row(a: str, between: str, b: str) -> str:
            return f"  {a:<{_WIDTH}} {between:^10}  {b}".rstrip()

        def barrier(a: Place | None, b: Place | None, edge: str) -> str:
            return row(event(a, edge), "=" * 10 if same(a, b) else "", event(b, edge))

        bar = row("    |", "", "    |")
        deeds = [f"line {side.place.line}: {deed(self, side)}" for side in self.sides]
        lines = [
            row(title(left), "", title(right)),
            row("-" * len(title(left)), "", "-" * len(title(right))),
            barrier(left.before, right.before, "start"),
            bar,
            row(deeds[0], "<- race ->", deeds[1]),
            bar,
            barrier(left.after, right.after, "end"),
        ]
        return "\n".join(lines)

    def __str__(self) -> str:
        first, second = self.sides
        order = "" if self.missing == "plain load" else "nothing orders the two: "
        return (
            f"{first.name} {_VERBS[first.kind]} {self.address} at {first.place}, and {second.name} "
            f"{_VERBS[second.kind]} it at {second.place}; {order}{self.remedy}"
        )

    @property
    def remedy(self) -> str:
        """What would mend it, in a sentence."""
        element = "" if " " in self.address else f"(&{self.address}, ...)"
        return REMEDIES[self.missing].format(self.address, element)


_VERBS = {"read": "reads", "write": "writes", "atomic": "updates", "end": "ends and gives up"}
ATOMIC, ONE_WRITER = "atomicAdd()", "one writer"
REMEDIES = {
    ATOMIC: "both add to {0} at once, and an addition gets lost: use atomicAdd{1}; no "
    "barrier mends it",
    ONE_WRITER: "they store different values to {0}, and one gets lost: let one of them store, or "
    "give each an element of its own",
    # As in csrc/emulator/races/detector.h, from what orders least to what orders most.
    "plain load": "__ldg() may read an older value from its cache: load without it what the kernel "
    "itself has written",
    "__threadfence()": "an atomic operation or a volatile flag links the two threads, but orders "
    "their other accesses only with a __threadfence() before it in the first and after it in the "
    "second",
    "__syncwarp()": "a __syncwarp() that names both lanes is missing between them",
    "__syncthreads()": "a __syncthreads() is missing between them",
    "cluster.sync()": "a cluster.sync() is missing between them",
    "grid.sync()": "only a barrier over the whole grid (grid.sync() in a cooperative launch) or a "
    "second launch comes between blocks",
    "copy_wait()": "a copy_wait() for the bulk copy is missing between them",
}
MISSING = tuple(REMEDIES)


@dataclass(frozen=True)
class Unwritten:
    """A read of shared memory that no thread of the block has written.

    Or a shuffle from a lane that does not take part in it; `address` is ``"lane 16"`` then.

    >>> from gpureduce.emulator.race import Place, Unwritten
    >>> print(Unwritten(0, 3, "cell[96]", Place("mine.cu", 12)))
    line 12: thread 3 reads cell[96], which no thread has written yet
    """

    block: int
    thread: int
    address: str
    place: Place

    def __str__(self) -> str:
        of_block = f" of block {self.block}" if self.block else ""
        what = (
            f"shuffles from {self.address} of its warp, which takes no part: CUDA leaves "
            "the value undefined"
            if self.address.startswith("lane ")
            else f"reads {self.address}, which no thread has written yet"
        )
        return f"line {self.place.line}: thread {self.thread}{of_block} {what}"


@dataclass(frozen=True)
class SplitBarrier:
    """A barrier that only part of a block has reached; others wait at another line, or have ended.

    CUDA requires that all threads of a block reach the same ``__syncthreads()``, or none.
    `threads` holds the waiting threads for each of the `places`. `ended` are threads that ended
    without reaching the barrier, in warps of which other threads reach it.
    """

    block: int
    places: tuple[Place, ...]
    threads: tuple[tuple[int, ...], ...]
    ended: tuple[int, ...] = ()

    def __str__(self) -> str:
        several = len(self.places) > 1
        lines = [f"block {self.block} is split over {len(self.places)} barriers:"]
        if not several:
            lines = [f"part of block {self.block} never reaches a barrier:"]
        for place, threads in zip(self.places, self.threads, strict=True):
            lines.append(f"  threads {ranges(threads)} wait in {place.what}()")
            lines.append(f"    at {place}    {place.text}".rstrip())
        if self.ended:
            lines.append(f"  threads {ranges(self.ended)}, of the same warps, have ended")
        return "\n".join(lines)


@dataclass(frozen=True)
class FoundRaces:
    """The races, split barriers and wrong sums of one strategy; true if there are any.

    `Races` describes most attributes. `unwritten` are reads of shared memory that no thread has
    written, and shuffles from absent lanes. `alike` are lines at which several threads store the
    same value to one address. Neither is a fault. `stops` tells, by schedule, after which atomic a
    block stopped until the others had ended.
    """

    strategy: str
    n: int
    dtype: str
    block: int
    grid: int | None
    schedules: tuple[str, ...]
    races: tuple[Race, ...]
    barriers: tuple[SplitBarrier, ...]
    faults: dict[str, str]
    wrong: dict[str, Any]
    expected: Any
    unwritten: tuple[Unwritten, ...] = ()
    alike: tuple[str, ...] = ()
    stops: dict[str, str] = field(default_factory=dict)

    @property
    def remarks(self) -> tuple[str, ...]:
        """What is no fault, but worth a look."""
        reads = (f"{read}; the sum does not depend on it" for read in self.unwritten)
        return (*reads, *self.alike)

    def places(self) -> str:
        """The lines that race or split a block, without what would mend them."""
        rows = [f"Threads in {name} order: {fault}" for name, fault in self.faults.items()]
        rows += [f"Part of a block misses the barrier in {barrier.places[0].short}."
                 for barrier in self.barriers]  # fmt: skip
        for race in self.races:
            a, b = (f"line {side.place.line} ({side.kind})" for side in race.sides)
            rows.append(f"{a} and {b} race on {race.address}.")
        return "\n".join(rows)

    def __bool__(self) -> bool:
        return bool(self.races or self.barriers or self.faults)

    def as_dict(self) -> dict[str, Any]:
        """The result as plain lists and dicts, with the text of each line."""
        return cast(dict[str, Any], plain(dataclasses.asdict(self)))


def title(side: Side) -> str:
    if side.copy:
        return f"block {side.block}, a bulk copy"
    return f"block {side.block}, thread {side.thread} (warp {side.warp})"


def deed(race: Race, side: Side) -> str:
    return f"{_DEEDS[side.kind]} {race.address}"


def event(place: Place | None, edge: str) -> str:
    if place is None:
        return f"({edge})"
    return f"line {place.line}: {place.what}()"


def same(a: Place | None, b: Place | None) -> bool:
    """Whether both threads synchronized there: at a barrier, or at the launch's start or end."""
    return a == b if a is None or b is None else a.meeting == b.meeting > 0
