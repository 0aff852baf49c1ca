"""Records as the lectures print their tables, with the lecture's own figures beside ours."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gpureduce import lectures
from gpureduce.lectures import Record, Row


@dataclass(frozen=True)
class Table:
    """A table that prints as text, and as HTML in a notebook."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()

    def __str__(self) -> str:
        from gpureduce.text import table

        text = table(self.head, self.rows, right=range(1, len(self.head)))
        return "\n".join([self.title, "", text, *self.notes])

    def _repr_html_(self) -> str:
        def row(cells: Sequence[str], tag: str) -> str:
            side = [' style="text-align:left"', *[' style="text-align:right"'] * len(cells)]
            made = (
                f"<{tag}{s}>{html.escape(c)}</{tag}>" for s, c in zip(side, cells, strict=False)
            )
            return "<tr>" + "".join(made) + "</tr>"

        body = "\n".join(row(cells, "td") for cells in self.rows)
        notes = "".join(f"<div><small>{html.escape(note)}</small></div>" for note in self.notes)
        title = f"<div><b>{html.escape(self.title)}</b></div>"
        return f"{title}<table>\n{row(self.head, 'th')}\n{body}\n</table>{notes}"


def short_device(record: Record) -> str:
    """The device in a word or two, for table heads and chart labels."""
    return "emulator" if record.emulated else record.device.removeprefix("NVIDIA ")


def _size(n: int) -> str:
    for unit, name in ((2**20, "Mi"), (2**10, "Ki")):
        if n % unit == 0:
            return f"{n // unit} {name}"
    return str(n)


def _figure(value: float | None) -> str:
    """Three significant digits at least, and no exponent."""
    if value is None:
        return ""
    before = math.floor(math.log10(abs(value))) if value else 0
    return f"{value:.{max(0, 2 - before)}f}"


def in_unit(row: Row, unit: str) -> float:
    """A row's figure in the unit that its lecture prints."""
    if unit == "GB/s":
        return row.gb_s
    return row.median_us / 1e3 if unit == "ms" else row.median_us


def provenance_note(record: Record) -> str:
    """One sentence: where, with what and when a record was made."""
    made = record.made
    if record.emulated:
        smaller = f", inputs {record.shrink} times smaller than the lecture's"
        return (
            f"Here: an emulated GPU on {made['date']}{smaller if record.shrink > 1 else ''}. "
            "Emulated times tell nothing about a card."
        )
    return (
        f"{record.device}: driver {made['driver']}, CUDA {made['toolkit']}, {made['date']}, "
        f"commit {str(made['commit'])[:9]}; medians of {record.rows[0].repeats}."
    )


def _notes(record: Record) -> list[str]:
    gpu = lectures.find(record.lecture).gpu
    return ["", provenance_note(record), *([f"Theirs: {gpu}."] if gpu else [])]


def _ratio_note(pairs: Sequence[tuple[Row, float | None]]) -> list[str]:
    """The last rung's speedup over the first; an emulated one would tell nothing."""
    (first, their_first), (last, their_last) = pairs[0], pairs[-1]
    if first.source == "emulator" or not their_first or not their_last:
        return []
    mine, lecture = first.median_us / last.median_us, their_first / their_last
    return [f"{last.label} over {first.label}: {mine:.2f}x here, {lecture:.2f}x in the lecture."]


def _grid(
    title: str, pairs: Sequence[tuple[Row, float | None]], unit: str, across: Callable[[Row], str]
) -> Table:
    """Kernels down, one quantity across, ours and theirs side by side."""
    columns = list(dict.fromkeys(across(row) for row, _ in pairs))
    labels = list(dict.fromkeys(row.label for row, _ in pairs))
    cells = {(row.label, across(row)): (in_unit(row, unit), theirs) for row, theirs in pairs}
    head = ["", *(text for c in columns for text in (c, "theirs"))]
    body = [
        [label, *(_figure(v) for c in columns for v in cells.get((label, c), (None, None)))]
        for label in labels
    ]
    return Table(f"{title} ({unit})", head, body)


def _warp_execution(record: Record) -> list[Table]:
    tables = []
    pairs = list(zip(record.rows, record.theirs, strict=True))
    for block in dict.fromkeys(row.block for row in record.rows):
        here = [pair for pair in pairs if pair[0].block == block]
        made = _grid(f"M = {block} threads per block", here, "ms", lambda row: _size(row.n))
        largest = [pair for pair in here if pair[0].n == here[-1][0].n]
        tables.append(Table(made.title, made.head, made.rows, _ratio_note(largest)))
    return tables


def _lab(record: Record) -> list[Table]:
    lecture = lectures.sources()["warp_level_lab"]["rows"]
    head = ["", "ms", "GB/s", "speedup", "step", "% of peak"]
    head += ["theirs: ms", "GB/s", "speedup", "step"]
    body = []
    for i, (row, their) in enumerate(zip(record.rows, lecture, strict=True)):
        before, their_before = record.rows[max(i - 1, 0)], lecture[max(i - 1, 0)]
        body.append(
            [
                row.label, f"{row.median_us / 1e3:.4f}", f"{row.gb_s:.2f}",
                f"{record.rows[0].median_us / row.median_us:.2f}",
                f"{before.median_us / row.median_us:.2f}",
                "" if row.percent_of_peak is None else f"{row.percent_of_peak:.1f}",
                f"{their['kernel_ms']:.3f}", f"{their['gb_s']:.2f}", f"{their['speedup']:.2f}",
                f"{their_before['kernel_ms'] / their['kernel_ms']:.2f}",
            ]
        )  # fmt: skip
    first = record.rows[0]
    title = f"{_size(first.n)} int32, {first.block} threads per block"
    notes = _ratio_note(list(zip(record.rows, record.theirs, strict=True)))
    return [Table(title, head, body, notes)]


def _plain_grid(across: str, title: str) -> Callable[[Record], list[Table]]:
    def made(record: Record) -> list[Table]:
        pairs = list(zip(record.rows, record.theirs, strict=True))
        unit = lectures.find(record.lecture).unit
        return [_grid(title, pairs, unit, lambda row: str(getattr(row, across)))]

    return made


def _trapezoid(record: Record) -> list[Table]:
    """Times, how far each value is from the integral, and in how many ways a race was wrong."""
    exact = float(lectures.sources()["trapezoid_lecture"]["value"])
    loop, their_loop = record.rows[0], record.theirs[0] or 1.0
    head = ["", "us", "speedup", "value", "off by", "values in 8 runs", "theirs: s", "speedup"]
    body = []
    for row, theirs in zip(record.rows, record.theirs, strict=True):
        values = row.facts["values"]
        body.append(
            [
                row.label, _figure(row.median_us),
                "" if record.emulated else _figure(loop.median_us / row.median_us),
                f"{values[0]:.12f}", f"{abs(values[0] - exact):.1e}", str(len(set(values))),
                "" if theirs is None else f"{theirs:.2f}",
                "" if theirs is None else _figure(their_loop / theirs),
            ]
        )  # fmt: skip
    return [Table(f"{loop.n} float64 samples", head, body)]


def _rungs(record: Record) -> list[Table]:
    pairs = [(row, None) for row in record.rows]
    made = _grid("Every rung, float32, by number of elements", pairs, "GB/s", lambda r: _size(r.n))
    kept = [i for i, name in enumerate(made.head) if name != "theirs"]
    rows = [[row[i] for i in kept] for row in made.rows]
    return [Table(made.title, [made.head[i] for i in kept], rows)]


_COUNTERS = (
    ("duration_us", "us"),
    ("memory_pct", "memory %"),
    ("dram_throughput_pct", "DRAM %"),
    ("compute_sm_pct", "compute %"),
    ("executed_instructions", "instructions"),
    ("achieved_occupancy_pct", "occupancy %"),
    ("active_warps_per_sm", "warps per SM"),
)


def _counter(value: float | None, key: str) -> str:
    if value is None:
        return "n/a"
    return f"{value:,.0f}" if key == "executed_instructions" else f"{value:.2f}"


def _profile(record: Record) -> list[Table]:
    lecture = lectures.sources()["seven_kernels_report"]
    head = ["", *(name for _, name in _COUNTERS)]
    ours = [[row.label, *(_counter(row.facts.get(k), k) for k, _ in _COUNTERS)]
            for row in record.rows]  # fmt: skip
    order = [lecture["metrics"].index(key) for key, _ in _COUNTERS]
    theirs = [
        [label, *(_counter(figures[at], k) for at, (k, _) in zip(order, _COUNTERS, strict=True))]
        for label, figures in lecture["kernels"].items()
    ]
    return [Table(short_device(record), head, ours), Table(lecture["gpu"], head, theirs)]


_SHOWN: dict[str, Callable[[Record], list[Table]]] = {
    "warp_execution": _warp_execution,
    "lab": _lab,
    "block_sweep": _plain_grid("block", "Throughput by threads per block"),
    "block_grid": _plain_grid("grid", "The cascade by block and grid"),
    "profile": _profile,
    "trapezoid": _trapezoid,
    "rungs": _rungs,
}


@dataclass(frozen=True)
class Tables:
    """A lecture's tables, with a line on where ours come from."""

    title: str
    tables: Sequence[Table]
    notes: Sequence[str]

    def __str__(self) -> str:
        parts: list[Any] = [self.title, *self.tables, "\n".join(n for n in self.notes if n)]
        return "\n\n".join(str(part) for part in parts)

    def _repr_html_(self) -> str:
        notes = "".join(f"<div><small>{html.escape(note)}</small></div>" for note in self.notes)
        return "".join(table._repr_html_() for table in self.tables) + notes


def show(record: Record) -> Tables:
    """The record as its lecture prints it, the lecture's own figures beside it."""
    experiment = lectures.find(record.lecture)
    title = f"{experiment.name}: {experiment.about}"
    return Tables(title, _SHOWN[record.lecture](record), _notes(record))
