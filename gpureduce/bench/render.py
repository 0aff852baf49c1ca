"""The renderer: tables of rows, as data, and records as text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpureduce.bench.runner import Row
from gpureduce.text import EMULATED, rate_text, size_text, table

Cell = Callable[[Row], str]
Lines = tuple[list[str], list[list[str]]]  # the heads, and the cells of each line
By = Mapping[str, Row]  # the rows of a line, by contender or by another column


def of(name: str, form: str | Callable[[Any], str] = "") -> Cell:
    """The cell of a field; "" where there is none."""

    def cell(row: Row) -> str:
        value = row.get(name)
        if value is None:
            return ""
        return format(value, form) if isinstance(form, str) else form(value)

    return cell


BYTES, GB_S, US = of("nbytes", size_text), of("gb_s", rate_text), of("median_us", ".2f")
MATRIX: Cell = "{0[rows]:,} x {0[columns]:,}, axis {0[axis]}".format
_STRATEGY = of("strategy")


def listing(rows: Sequence[Row], columns: Mapping[str, Cell]) -> Lines:
    """A line for each row. Columns whose cells are all empty are left out."""
    kept = {head: cell for head, cell in columns.items() if any(cell(row) for row in rows)}
    return list(kept), [[cell(row) for cell in kept.values()] for row in rows]


@dataclass(frozen=True)
class Pivot:
    """A table with a line for each case, and a column for each contender, or other `column`.

    `head` has the first cells of a line, which tell the lines apart together with the fields `key`.
    `first` has cells of a line's first row, and `more` the last ones, from its rows by column.
    """

    head: Mapping[str, Cell]
    cell: Cell = US
    column: Cell = _STRATEGY
    more: Mapping[str, Callable[[By], str]] = field(default_factory=dict)
    first: Mapping[str, Cell] = field(default_factory=dict)
    key: Sequence[str] = ()

    def lines(self, rows: Iterable[Row], columns: Sequence[str] | None = None) -> Lines:
        """Heads and lines, in the order of the rows. `columns` are shown, in their order."""
        found: dict[Any, dict[str, Row]] = {}
        seen: dict[str, None] = {}
        for row in rows:
            line = [row.get(name) for name in self.key]
            line += [cell(row) for cell in self.head.values()]
            found.setdefault(tuple(line), {})[self.column(row)] = row
            seen[self.column(row)] = None
        columns = list(seen) if columns is None else columns
        body = []
        for by in found.values():
            row = next(iter(by.values()))
            cells = [cell(row) for cell in (*self.head.values(), *self.first.values())]
            cells += [self.cell(by[name]) if name in by else "" for name in columns]
            body.append([*cells, *(make(by) for make in self.more.values())])
        return [*self.head, *self.first, *columns, *self.more], body


def ratio(slower: str, quicker: str, form: str = ".2f") -> Callable[[By], str]:
    """How many times as long one contender of a line takes as another one."""

    def cell(by: By) -> str:
        if slower not in by or quicker not in by:
            return ""
        return format(by[slower]["median_us"] / by[quicker]["median_us"], form)

    return cell


def quickest(by: By, names: Iterable[str]) -> str:
    """The quickest of these contenders of a line; "" without any."""
    return min(names, key=lambda name: float(by[name]["median_us"]), default="")


def as_table(lines: Lines, left: Sequence[str]) -> str:
    """The lines as text. All columns but `left` are flush right."""
    heads, body = lines
    return table(heads, body, [i for i, head in enumerate(heads) if head not in left])


def as_text(
    record: Row, sections: Mapping[str, tuple[str, Callable[[Sequence[Row]], str]]],
    notes: Sequence[str] = (),
) -> str:  # fmt: skip
    """A record as text: for each measure a title and a table of its rows, then notes."""
    blocks = []
    for measure, (title, text) in sections.items():
        if rows := [row for row in record["rows"] if row["measure"] == measure]:
            blocks += [title, text(rows)]
    notes = [*notes, *[EMULATED] * (record["device"] == "emulator")]
    return "\n\n".join([*blocks, *["\n".join(notes)] * bool(notes)])
