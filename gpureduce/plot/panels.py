"""Bar charts in panels side by side, for the profiler's metrics and the counts of `explain`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpureduce.bench import record as records
from gpureduce.bench.libraries import LOAD_ONLY
from gpureduce.bench.ratios import MIB, ratios
from gpureduce.bench.runner import Row
from gpureduce.bench.suites import exact
from gpureduce.emulator.explain import Explanation
from gpureduce.lectures.records import Record, printed
from gpureduce.lectures.tables import made_on, short_device
from gpureduce.plot.layout import (
    COLOURS,
    FAINT,
    INK,
    MARKERS,
    bar_axis,
    foot,
    label_ends,
    look,
    note_on,
    page,
    short,
)
from gpureduce.text import size_text


def panels(
    table: Mapping[str, Mapping[str, Sequence[float]]], labels: Sequence[str], title: str = "",
    note: str = "", strategies: Sequence[str] = (),
) -> Any:  # fmt: skip
    """Bars in a panel for each quantity: ``{"duration, us": {"H100": [...], "2080 Ti": [...]}}``.

    `labels` name the bars, from top to bottom; `strategies` colour those of the first series.

    >>> from gpureduce import plot
    >>> figure = plot.panels({"us": {"H100": [2.0, 1.0]}}, labels=["before", "after"])
    """
    figure, axes = page(min(2.3 * len(table) + 1.6, 10.2), 0.55 * len(labels) + 1.4, len(table),
                           sharey=True)  # fmt: skip
    for ax, (quantity, series) in zip(axes, table.items(), strict=True):
        thick = 0.8 / len(series)
        for i, values in enumerate(series.values()):
            at = [k + (i - (len(series) - 1) / 2) * thick for k in range(len(labels))]
            inks = [look(s)["color"] for s in strategies] if strategies and not i else FAINT
            ax.barh(at, values, height=thick * 0.9, color=inks)
            for y, value in zip(at, values, strict=True):
                ax.annotate(f" {short(value)}", (value, y), va="center", fontsize=7.5)
        most = max(v for values in series.values() for v in values) or 1
        bar_axis(ax, quantity, 1.35 * most, short)
    axes[0].set_yticks(range(len(labels)), labels, fontsize=9)
    axes[0].set_ylim(len(labels) - 0.45, -0.55)
    names = list(next(iter(table.values())))
    if len(names) > 1:
        note = f"In colour: {names[0]}; in grey: {', '.join(names[1:])}. {note}"
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    return foot(figure, note)


_PROFILED = {
    "duration, us": "duration_us",
    "instructions": "executed_instructions",
    "compute, %": "compute_sm_pct",
    "memory, %": "memory_pct",
    "DRAM, %": "dram_throughput_pct",
    "occupancy, %": "achieved_occupancy_pct",
}


def _profiled(report: Record, key: str) -> dict[str, list[float]]:
    """A metric of the profiler for each kernel: on the recorded GPU, and in the lecture."""
    theirs = printed(report.lecture).only(label=tuple(row.label for row in report.rows))
    records = {short_device(record): record for record in (report, theirs)}
    return {name: [row.facts[key] for row in record.rows] for name, record in records.items()}


def profile(report: Record, title: str = "") -> Any:
    """The profiler's metrics of each kernel, beside those in the lecture.

    >>> from gpureduce import lectures, plot
    >>> figure = plot.profile(lectures.recorded("profile", "notebooks/data"))
    """
    table = {name: _profiled(report, key) for name, key in _PROFILED.items()}
    labels = [row.label for row in report.rows]
    return panels(table, labels, title, note_on(report, report.rows),
                  [row.strategy for row in report.rows])  # fmt: skip


_COUNTS: Mapping[str, Callable[[Any], float]] = {
    "lanes per access": lambda e: e.active_lanes or 0.0,
    "bank conflicts": lambda e: e.conflicts,
    "shared wavefronts": lambda e: e.wavefronts,
    "block barriers": lambda e: e.counters["block_barriers"],
    "global sectors": lambda e: e.counters["global_load_sectors"],
}


def counts(explained: Sequence[Explanation], labels: Sequence[str], title: str = "") -> Any:
    """The counts of `gpureduce.explain` for several kernels, a panel for each count.

    >>> import gpureduce
    >>> from gpureduce import plot
    >>> names = ["interleaved_idx", "sequential"]
    >>> figure = plot.counts([gpureduce.explain(name, n=2**12) for name in names], names)
    """
    table = {name: {"": [count_of(e) for e in explained]} for name, count_of in _COUNTS.items()}
    return panels(table, labels, title,
                  "Counted on the emulator, first launch: the same on every machine. No times.",
                  [e.strategy for e in explained])  # fmt: skip


def why(report: Record, explained: Sequence[Explanation], title: str = "") -> Any:
    """Profiled time and instructions, and the counts of `explain`, relative to the first kernel.

    >>> import gpureduce
    >>> from gpureduce import lectures, plot
    >>> report = lectures.recorded("profile", "notebooks/data")
    >>> explained = [gpureduce.explain(row.strategy, n=2**12) for row in report.rows]
    >>> figure = plot.why(report, explained)
    """

    def relative(values: Sequence[float]) -> list[float]:
        return [value / values[0] for value in values]

    table = {
        name: {card: relative(values) for card, values in _profiled(report, key).items()}
        for name, key in (("time", "duration_us"), ("instructions", "executed_instructions"))
    }
    for name, values in (
        ("memory instructions", [e.memory_instructions for e in explained]),
        ("shared wavefronts", [e.wavefronts for e in explained]),
        ("global sectors", [e.counters["global_load_sectors"] for e in explained]),
    ):
        table[name] = {"counted": relative(values)}
    note = f"{note_on(report, report.rows)} The three panels on the right: counted on the emulator."
    return panels(table, [row.label for row in report.rows], title, note,
                  [row.strategy for row in report.rows])  # fmt: skip


def exact_cost(path: str | Path = "data/exact_h200.json", title: str = "") -> Any:
    """The bandwidth of `exact` beside that of rounded sums, by dtype and by kind of data.

    Shows the largest input of a record of ``python -m gpureduce.exact_bench``.

    >>> from gpureduce import plot
    >>> figure = plot.exact_cost("notebooks/data/exact_h200.json")
    """
    record = exact.load(Path(path))
    rows = exact.largest(record)
    if not rows:
        raise ValueError(f"{path}: it has no sums on a card to draw")
    nbytes = rows[0]["nbytes"]
    dtypes, kinds = (list(dict.fromkeys(row[key] for row in rows)) for key in ("dtype", "data"))
    figure, axes = page(10.2, 4.4, len(dtypes), sharey=True)
    names = [name for name in _SUMS if any(name == row["strategy"] for row in rows)]
    peak = rows[0].get("peak_gb_s") or max(row["gb_s"] for row in rows)
    thick = 0.84 / len(names)
    for ax, dtype in zip(axes, dtypes, strict=True):
        found = {(r["data"], r["strategy"]): r["gb_s"] for r in rows if r["dtype"] == dtype}
        for i, name in enumerate(names):
            places = [(k, (kind, name)) for k, kind in enumerate(kinds)]
            bars = [(k, found[place]) for k, place in places if place in found]
            at = [k + (i - (len(names) - 1) / 2) * thick for k, _ in bars]
            ax.barh(at, [value for _, value in bars], height=0.9 * thick, color=_SUMS[name])
            for y, (_, value) in zip(at, bars, strict=True):
                ax.annotate(f" {name}", (0, y), va="center", fontsize=7.5, color="white")
                ax.annotate(f" {value:,.0f}", (value, y), va="center", fontsize=7.5)
        bar_axis(ax, dtype, 1.25 * peak, "{:,.0f}".format)
        ax.set_xlabel("GB/s", fontsize=8.5)
    axes[0].set_yticks(range(len(kinds)), kinds, fontsize=9)
    axes[0].set_ylim(len(kinds) - 0.45, -0.55)
    figure.suptitle(title or f"{nbytes // MIB:,} MiB on a card", x=0.01, ha="left", fontsize=11)
    return foot(figure, f"{made_on(record)}; {exact.how_taken(names)}.")


def beside_cub(path: str | Path = "data/bench_h100.json", title: str = "") -> Any:
    """The speedups of `fast` and of `exact` over CUB's sum, by size, a line for each dtype.

    Shows one sum at a time, from a record of ``gpureduce bench --scoreboard``. A dashed line is the
    limit: a kernel that only loads the array.

    >>> from gpureduce import plot
    >>> figure = plot.beside_cub("notebooks/data/bench_h100.json")
    """
    record = records.load(path, "bench")
    found = {name: ratios(record["rows"], "apart", name, ["cub"]) for name in ("fast", "exact")}
    shown = [name for name in found if found[name]]
    if not shown:
        raise ValueError(f"{path}: it has no sums of fast or exact beside cub, one at a time")
    limit = ratios(record["rows"], "apart", LOAD_ONLY, ["cub"])
    figure, axes = page(8 if len(shown) == 1 else 11, 4.5, len(shown), sharey=True)
    drawn = [row["ratio"] for name in shown for row in [*found[name], *limit]]
    axes[0].set_ylim(min(0.8, 0.95 * min(drawn)), 1.05 * max(drawn))
    for ax, name in zip(axes, shown, strict=True):
        _draw_ratios(ax, found[name], limit)
        ax.set_title(f"`{name}`", loc="left", fontsize=10)
    axes[0].set_ylabel("times as fast as CUB")
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    note = f"{made_on(record)}; one sum at a time, all in one run, below 1 GiB in turns."
    return foot(figure, note)


def _draw_ratios(ax: Any, rows: Sequence[Row], limit: Sequence[Row]) -> None:
    """Draws a line for each dtype, and the limit for the first of them."""
    lines: dict[str, list[tuple[int, float]]] = {}
    for row in sorted(rows, key=lambda row: (row["dtype"], row["nbytes"])):
        lines.setdefault(row["dtype"], []).append((row["nbytes"], row["ratio"]))
    ends = []
    for i, (dtype, line) in enumerate(lines.items()):
        ink, marker = COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)]
        ax.plot(*zip(*line, strict=True), color=ink, marker=marker, linewidth=1.8, markersize=5)
        ends.append((*line[-1], f"{dtype}: {line[-1][1]:.2f}x", ink))
    for dtype in [row["dtype"] for row in limit if row["dtype"] in lines][:1]:
        line = sorted((row["nbytes"], row["ratio"]) for row in limit if row["dtype"] == dtype)
        ax.plot(*zip(*line, strict=True), color=INK, linewidth=1.2, linestyle="--")
        ends.append((*line[-1], f"limit, {dtype}: {line[-1][1]:.2f}x", INK))
    ax.axhline(1, color=INK, linewidth=1)
    ax.set_xscale("log", base=2)
    sizes = sorted({nbytes for line in lines.values() for nbytes, _ in line})
    kept = [a for a, b in itertools.pairwise(sizes) if b > 2 * a] + sizes[-1:]
    kept = kept if len(kept) < 8 else kept[::2]
    ax.set_xticks(kept, [f"{size_text(nbytes)}" for nbytes in kept], fontsize=8.5)
    ax.minorticks_off()
    ax.set_xlabel("size of the array")
    label_ends(ax, ends)


_SUMS = {"exact": look("exact")["color"], "fast": "#000000", "cub": look("cub")["color"],
         "cub_reproducible": "#AA7744"}  # fmt: skip
