"""Tables of records in the lectures' layout, with the lecture's own figures beside ours."""

from __future__ import annotations

import dataclasses
import html
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpureduce.lectures import experiments
from gpureduce.lectures.experiments import Measured
from gpureduce.lectures.measuring import Row
from gpureduce.text import Table, count


def card_model(card: str) -> str:
    """A card's name without its make, memory and form factor.

    >>> from gpureduce.lectures import tables
    >>> tables.card_model("NVIDIA H100 80GB HBM3")
    'H100'
    """
    model = re.search(r"\b[A-Z]*\d\w*( Ti\b)?", card)
    return model[0] if model else card.removeprefix("NVIDIA ")


def short_device(record: Measured) -> str:
    """The device in a word or two, for table heads and chart labels."""
    if record.emulated or record.printed:
        return "emulated" if record.emulated else record.device
    return card_model(record.device)


def missing_note(record: Measured) -> str:
    """A sentence that names the missing record, if this one replaces it; else ""."""
    if not record.missing:
        return ""
    instead = "the lecture's own figures" if record.printed else f"those of an {record.device}"
    return f"{record.missing}: not recorded yet. Shown instead: {instead}."


def _figure(value: float | None) -> str:
    """A number with at least three significant digits and no exponent; empty for None."""
    if value is None:
        return ""
    before = math.floor(math.log10(abs(value))) if value else 0
    return f"{value:.{max(0, 2 - before)}f}"


def in_unit(row: Row, unit: str) -> float:
    """A row's figure in the unit that its lecture prints."""
    if unit == "GB/s":
        return row.gb_s
    return row.median_us / 1e3 if unit == "ms" else row.median_us


def provenance_note(record: Measured) -> str:
    """A sentence on a record's provenance: device, driver and toolkit, date."""
    made = record.made
    if record.printed:
        return f"As printed in \u201c{made['title']}\u201d, measured there on {record.device}."
    if record.emulated:
        smaller = f", inputs {record.shrink} times smaller than on a card"
        return (
            f"Here: an emulated GPU on {made['date']}{smaller if record.shrink > 1 else ''}. "
            "Emulated times tell nothing about a card."
        )
    return f"{made_on(made)}; {of_runs(record.rows[0].repeats)}."


def made_on(made: Mapping[str, Any]) -> str:
    """The provenance of a record: GPU, driver, toolkit, date and commit."""
    return (
        f"{made['card']}: driver {made['driver']}, CUDA {made['toolkit']}, {made['date']}, "
        f"commit {str(made['commit'])[:9]}"
    )


def of_runs(repeats: int) -> str:
    """A phrase on the number of runs per figure."""
    return f"medians of {repeats}" if repeats > 1 else "one run each"


def _notes(record: Measured) -> list[str]:
    gpu = experiments.find(record.lecture).gpu
    gpu = f"hardware {gpu}" if gpu.startswith("not named") else gpu
    theirs = [f"Theirs: {gpu}."] if gpu and not record.printed else []
    return [missing_note(record), provenance_note(record), *theirs]


def _ratio_note(pairs: Sequence[tuple[Row, float | None]]) -> list[str]:
    """A sentence on the last rung's speedup over the first."""
    (first, their_first), (last, their_last) = pairs[0], pairs[-1]
    if not their_first or not their_last:
        return []
    if first.source == "lecture":
        return [f"{last.label} over {first.label}: {their_first / their_last:.2f}x."]
    mine, lecture = first.median_us / last.median_us, their_first / their_last
    return [
        f"{last.label} over {first.label}: {mine:.2f}x on the {card_model(first.device)}, "
        f"{lecture:.2f}x in the lecture."
    ]


def _grid(
    title: str, pairs: Sequence[tuple[Row, float | None]], unit: str, across: Callable[[Row], str]
) -> Table:
    """A table with a row per kernel and a column per value of `across`.

    If the rows are not the lecture's own, each column has ours and the lecture's figure.
    """
    columns = list(dict.fromkeys(across(row) for row, _ in pairs))
    labels = list(dict.fromkeys(row.label for row, _ in pairs))
    ours = {(row.label, across(row)): in_unit(row, unit) for row, _ in pairs}
    theirs = {(row.label, across(row)): v for row, v in pairs if v and row.source != "lecture"}
    sides = (ours, theirs) if theirs else (ours,)
    head = ["", *(text for c in columns for text in (c, "theirs")[: len(sides)])]

    def cell(side: dict[Any, float], at: Any) -> str:
        """A figure as text. The lectures' figures have two decimals."""
        as_printed = side is theirs or pairs[0][0].source == "lecture"
        return f"{side[at]:.2f}" if as_printed and at in side else _figure(side.get(at))

    body = [
        [label, *(cell(side, (label, c)) for c in columns for side in sides)] for label in labels
    ]
    return Table(f"{title} ({unit})", head, body)


def _warp_execution(record: Measured) -> list[Table]:
    tables = []
    pairs = list(zip(record.rows, record.theirs, strict=True))
    for block in dict.fromkeys(row.block for row in record.rows):
        here = [pair for pair in pairs if pair[0].block == block]
        made = _grid(f"M = {block} threads per block", here, "ms", lambda row: count(row.n))
        largest = [pair for pair in here if pair[0].n == here[-1][0].n]
        tables.append(Table(made.title, made.head, made.rows, _ratio_note(largest)))
    return tables


_LADDER = ("ms", "GB/s", "speedup", "step", "% of peak")


def _their_ladder() -> dict[str, list[str]]:
    """The rows of the lab's own table. The steps are computed from its times."""
    lecture = experiments.sources()["warp_level_lab"]
    rows = lecture["rows"]
    body = {}
    for before, row in zip([rows[0], *rows], rows, strict=False):
        step = before["kernel_ms"] / row["kernel_ms"]
        shares = [v for lab, v in lecture["percent_of_peak"].items() if lab in row["name"]]
        figures = f"{row['kernel_ms']:.3f} {row['gb_s']:.2f} {row['speedup']:.2f} {step:.2f}"
        body[row["name"]] = [*figures.split(), str(shares[0]) if shares else ""]
    return body


def _ladder(rows: Sequence[Row]) -> list[list[str]]:
    """The cells: time, rate, speedup over the first and over the previous rung."""
    body = []
    for before, row in zip([rows[0], *rows], rows, strict=False):
        times = (row.median_us / 1e3, row.gb_s, rows[0].median_us / row.median_us)
        step, share = before.median_us / row.median_us, row.percent_of_peak
        body.append(
            [f"{times[0]:.4g}", f"{times[1]:.2f}", f"{times[2]:.2f}", f"{step:.2f}",
             "" if share is None else f"{share:.1f}"]
        )  # fmt: skip
    return body


def _lab(record: Measured) -> list[Table]:
    first = record.rows[0]
    theirs, head = _their_ladder(), ["", *_LADDER]
    body: list[list[str]] = [[]] * len(record.rows)
    if not record.printed:
        body, head = _ladder(record.rows), [*head, f"theirs: {_LADDER[0]}", *_LADDER[1:]]
    rows = [[row.label, *cells, *theirs[row.label]]
            for row, cells in zip(record.rows, body, strict=True)]  # fmt: skip
    title = f"{count(first.n)} int32, {first.block} threads per block"
    notes = _ratio_note(list(zip(record.rows, record.theirs, strict=True)))
    return [Table(title, head, rows, notes)]


def _plain_grid(across: str, title: str) -> Callable[[Measured], list[Table]]:
    def made(record: Measured) -> list[Table]:
        pairs = list(zip(record.rows, record.theirs, strict=True))
        unit = experiments.find(record.lecture).unit
        return [_grid(title, pairs, unit, lambda row: str(getattr(row, across)))]

    return made


def _trapezoid(record: Measured) -> list[Table]:
    """The table of times, errors of the integral, and numbers of different values in 8 runs."""
    loop, their_loop = record.rows[0], record.theirs[0] or 1.0
    title = f"{loop.n} float64 samples"
    theirs = [
        ["" if t is None else f"{t:.2f}", "" if t is None else _figure(their_loop / t)]
        for t in record.theirs
    ]
    if record.printed:
        rows = [[row.label, *cells] for row, cells in zip(record.rows, theirs, strict=True)]
        return [Table(title, ["", "s", "speedup"], rows)]
    calls = [row.facts.get("call_us") for row in record.rows]
    shown = any(calls)  # the times of whole calls, host part included, if recorded
    head = ["", "us", *["whole call, us"] * shown, "speedup", "value", "off by",
            "values in 8 runs", "theirs: s", "speedup"]  # fmt: skip
    rows = []
    for row, call, cells in zip(record.rows, calls, theirs, strict=True):
        us, *value = _integral(record, row)
        speedup = _figure(loop.median_us / row.median_us)
        rows.append([row.label, us, *[_figure(call)] * shown, speedup, *value, *cells])
    return [Table(title, head, rows)]


def _integral(record: Measured, row: Row) -> list[str]:
    """The cells of a row. Of several values, the one with the largest error is shown."""
    exact = float(experiments.sources()["trapezoid_lecture"]["value"])
    values = row.facts["values"]
    worst = max(values, key=lambda value: math.inf if math.isnan(value) else abs(value - exact))
    kinds = len({str(value) for value in values})
    return [_figure(row.median_us), f"{worst:.12f}", f"{abs(worst - exact):.1e}", str(kinds)]


def _rungs(record: Measured) -> list[Table]:
    pairs = [(row, None) for row in record.rows]
    title = "Every rung, float32, by number of elements"
    return [_grid(title, pairs, "GB/s", lambda row: count(row.n))]


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


def _profile(record: Measured) -> list[Table]:
    lecture = experiments.sources()["seven_kernels_report"]
    head = ["", *(name for _, name in _COUNTERS)]
    ours = [[row.label, *(_counter(row.facts.get(k), k) for k, _ in _COUNTERS)]
            for row in record.rows]  # fmt: skip
    order = [lecture["metrics"].index(key) for key, _ in _COUNTERS]
    theirs = [
        [label, *(_counter(figures[at], k) for at, (k, _) in zip(order, _COUNTERS, strict=True))]
        for label, figures in lecture["kernels"].items()
    ]
    tables = [] if record.printed else [Table(short_device(record), head, ours)]
    return [*tables, Table(lecture["gpu"], head, theirs)]


_SHOWN: dict[str, Callable[[Measured], list[Table]]] = {
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
    """A lecture's tables, with notes on the provenance of our figures."""

    title: str
    tables: Sequence[Table]
    notes: Sequence[str]

    def __str__(self) -> str:
        parts: list[Any] = [self.title, *self.tables, "\n".join(self.notes)]
        return "\n\n".join(str(part) for part in parts)

    def _repr_html_(self) -> str:
        notes = "".join(f"<div><small>{html.escape(note)}</small></div>" for note in self.notes)
        return "".join(table._repr_html_() for table in self.tables) + notes


_NO_CARD = "No GPU ran here, and emulated times say nothing about one: the figures are an H100's."


def of_h100(name: str) -> Tables:
    """The tables of an experiment for a machine without a GPU."""
    found = show(experiments.on_h100(name))
    return dataclasses.replace(found, notes=[_NO_CARD, *found.notes])


def show(record: Measured) -> Tables:
    """A record's tables in its lecture's layout, beside the lecture's own figures.

    Emulated times stand beside no GPU's: an H100's record is shown instead.
    """
    if record.emulated:
        return of_h100(record.lecture)
    experiment = experiments.find(record.lecture)
    title = f"{experiment.name}: {experiment.about}"
    notes = [note for note in _notes(record) if note]
    return Tables(title, _SHOWN[record.lecture](record), notes)
