"""The renderer: tables of rows, as data, and records as text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpureduce.bench.runner import Row
from gpureduce.text import EMULATED, table

Cell = Callable[[Row], str]
Lines = tuple[list[str], list[list[str]]]  # the heads, and the cells of each line


def listing(rows: Sequence[Row], columns: Mapping[str, Cell]) -> Lines:
    """A line for each row. Columns whose cells are all empty are left out."""
    kept = {head: cell for head, cell in columns.items() if any(cell(row) for row in rows)}
    return list(kept), [[cell(row) for cell in kept.values()] for row in rows]


@dataclass(frozen=True)
class Pivot:
    """A table with a line for each `key`, and a column for each contender, or other `column`.

    `head` makes the first cells of a line from its first row, and `more` the last ones from its
    rows by column.
    """

    key: Callable[[Row], Any]
    head: Mapping[str, Cell]
    cell: Cell
    column: Callable[[Row], str] = lambda row: str(row["strategy"])
    more: Mapping[str, Callable[[Mapping[str, Row]], str]] = field(default_factory=dict)

    def lines(self, rows: Iterable[Row], columns: Sequence[str] | None = None) -> Lines:
        """Heads and lines, in the order of the rows. `columns` orders the columns, or adds some."""
        found: dict[Any, dict[str, Row]] = {}
        seen: dict[str, None] = {}
        for row in rows:
            found.setdefault(self.key(row), {})[self.column(row)] = row
            seen[self.column(row)] = None
        columns = list(seen) if columns is None else columns
        body = []
        for line in found.values():
            first = next(iter(line.values()))
            cells = [self.cell(line[name]) if name in line else "" for name in columns]
            more = [make(line) for make in self.more.values()]
            body.append([*(cell(first) for cell in self.head.values()), *cells, *more])
        return [*self.head, *columns, *self.more], body


def as_table(lines: Lines, left: Sequence[str]) -> str:
    """The lines as text. All columns but `left` are flush right."""
    heads, body = lines
    return table(heads, body, [i for i, head in enumerate(heads) if head not in left])


@dataclass(frozen=True)
class Section:
    """A titled table of the rows of one measure."""

    measure: str
    title: str
    text: Callable[[Sequence[Row]], str]


def as_text(record: Row, sections: Sequence[Section], notes: Sequence[str] = ()) -> str:
    """A record as text: its sections, then notes."""
    blocks = []
    for section in sections:
        if rows := [row for row in record["rows"] if row["measure"] == section.measure]:
            blocks += [section.title, section.text(rows)]
    notes = [*notes, *[EMULATED] * (record["device"] == "emulator")]
    return "\n\n".join([*blocks, *["\n".join(notes)] * bool(notes)])


def microseconds(row: Row) -> str:
    """The median time."""
    return f"{row['median_us']:.2f}"


def over(rows: Mapping[str, Row], slower: str, quicker: str) -> str:
    """How many times as long one contender of a line takes as another one."""
    if slower not in rows or quicker not in rows:
        return ""
    return f"{rows[slower]['median_us'] / rows[quicker]['median_us']:.2f}"
