"""Rows of the verify-counters report: counters of a launch, and of a line of the source.

Also the instructions that the compiler predicates instead of branching around them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpureduce.core.sources import Place
from gpureduce.emulator.explain import Explanation
from gpureduce.hardware.counters import Instruction, Seen, by_opcode, size_of
from gpureduce.hardware.reasons import line_why

# The counters of a line, by opcode.
LINE_COUNTERS = {
    "shared_load_lanes": ("lanes", r"LDS"),
    "shared_load_wavefronts": ("wavefronts", r"LDS"),
    "shared_store_lanes": ("lanes", r"STS"),
    "shared_store_wavefronts": ("wavefronts", r"STS"),
}


@dataclass(frozen=True)
class Row:
    """One counter of one launch. `why` is the cause of a difference, with the evidence."""

    strategy: str
    n: int
    block: int
    grid: int
    counter: str
    model: int
    hardware: int
    why: str = ""
    rows: int = 0  # of the matrix, for sums along an axis

    @property
    def difference(self) -> int:
        """The hardware's count minus the model's."""
        return self.hardware - self.model

    @property
    def verdict(self) -> str:
        """``"equal"``, ``"explained"`` or ``"differs"``."""
        if self.model == self.hardware:
            return "equal"
        return "explained" if self.why else "differs"

    def __str__(self) -> str:
        return (
            f"{self.strategy} {size_of(self.n, self.rows)} block={self.block} {self.counter}: "
            f"model {self.model:,}, hardware {self.hardware:,}{': ' if self.why else ''}{self.why}"
        )


@dataclass(frozen=True)
class LineRow(Row):
    """One counter of one line of the source, in one launch."""

    place: Place | None = None


@dataclass(frozen=True)
class Predicated:
    """A predicated access to shared memory: warps issue it with lanes off instead of branching.

    `place` is its line in the source, if known.
    """

    strategy: str
    n: int
    block: int
    text: str
    issued: int
    lanes: int
    wavefronts: int
    place: Place | None = None
    rows: int = 0


def predicated(seen: Seen) -> list[Predicated]:
    """The predicated shared memory accesses of a launch."""
    case = seen.case
    return [
        Predicated(
            case.strategy, case.n, case.block, i.text.strip(), i.issued, i.lanes, i.wavefronts,
            i.place, case.rows,
        )
        for i in seen.code
        if i.predicated and i.issued and re.match("LDS|STS", i.opcode)
    ]  # fmt: skip


def by_line(seen: Seen, found: Explanation) -> list[LineRow]:
    """The counts of `explain` and of the GPU for each line; empty if the lines are unknown."""
    model: dict[Place, Counter[str]] = {}
    for line in found.lines:
        counts = {name: line.counters[name] for name in LINE_COUNTERS}
        if any(counts.values()):
            model[Place(Path(line.file).name, line.line, line.text)] = Counter(
                {**counts, "cluster_store_lanes": line.details["cluster_store_lanes"]}
            )
    code: dict[Place, list[Instruction]] = {}
    for instruction in seen.code:
        if instruction.place:
            code.setdefault(instruction.place, []).append(instruction)
    if not code:
        return []
    rows, case = [], seen.case
    at = (case.strategy, case.n, case.block, case.grid)
    for place in sorted({*model, *code}):
        machine = code.get(place, [])
        own, theirs = model.get(place, Counter()), Counter(by_opcode(machine, LINE_COUNTERS))
        for name in LINE_COUNTERS:
            if own[name] or theirs[name]:
                same = own[name] == theirs[name]
                why = "" if same else line_why(name, own, theirs, machine)
                rows.append(LineRow(*at, name, own[name], theirs[name], why, case.rows, place))
    return rows


# --- as plain values, for records ---------------------------------------------------------------

LINE_COLUMNS = (
    "strategy", "n", "block", "grid", "place", "counter", "model", "hardware", "difference",
    "verdict", "why", "rows",
)  # fmt: skip
PREDICATED_COLUMNS = (
    "strategy", "n", "block", "place", "text", "issued", "lanes", "wavefronts", "rows",
)  # fmt: skip


def as_values(rows: Iterable[object], columns: Sequence[str]) -> list[list[Any]]:
    """Rows in the order of their columns; a place is a key into `sources_of`."""

    def value(row: object, column: str) -> Any:
        found = getattr(row, column)
        return found if column != "place" else found.key if found else ""

    return [[value(row, column) for column in columns] for row in rows]


def sources_of(rows: Iterable[LineRow | Predicated | Instruction]) -> dict[str, str]:
    """The text of the source lines of the rows, by place."""
    return {place.key: place.text for place in sorted({row.place for row in rows if row.place})}


def place_of(key: str, sources: dict[str, str]) -> Place | None:
    """The place for a key of `sources_of`."""
    if not key:
        return None
    file, _, line = key.rpartition(":")
    if key not in sources or not (line.isascii() and line.isdecimal() and len(line) < 10):
        raise ValueError(f"{key!r} is not one of its sources, with a file and a line")
    return Place(file, int(line), sources[key])


# --- as text --------------------------------------------------------------------------------------


def lines_text(rows: Sequence[LineRow]) -> list[str]:
    """Lines of text: how many counts per source line agree, and the rows that differ."""
    if not rows:
        return []
    equal = sum(row.verdict == "equal" for row in rows)
    lines = [f"by lines of the source: {equal:,} of {len(rows):,} counts are equal"]
    lines += [f"{row.place}\n  {row.verdict}: {row}" for row in rows if row.difference]
    return ["", *lines]


def predicated_text(rows: Sequence[Predicated]) -> list[str]:
    """Lines of text on the predicated instructions, each in its worst case, by source line."""
    lines: list[str] = []
    last: object = ()
    for one in worst_cases(rows):
        if one.place != last:
            lines.append(str(one.place) if one.place else "(line unknown)")
        last = one.place
        lines.append(
            f"  {one.strategy} {size_of(one.n, one.rows)} block={one.block} {one.text}: "
            f"{one.issued:,} warps, "
            f"{one.lanes:,} lanes"
        )
    said = "predicated instead of branched around (warps that issue it, and their active lanes):"
    return ["", said, *lines] if lines else []


def worst_cases(rows: Iterable[Predicated]) -> list[Predicated]:
    """For each instruction, the launch with the fewest active lanes per warp, by source line."""
    worst: dict[tuple[object, ...], Predicated] = {}
    for one in rows:
        known = worst.setdefault((one.strategy, one.place, one.text), one)
        if one.issued / max(one.lanes, 1) > known.issued / max(known.lanes, 1):
            worst[one.strategy, one.place, one.text] = one
    order = {name: i for i, name in enumerate(dict.fromkeys(one.strategy for one in rows))}
    nowhere = Place("", 0, "")
    return sorted(worst.values(), key=lambda one: (order[one.strategy], one.place or nowhere))
