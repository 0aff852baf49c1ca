"""Charts of measurements, as the notebooks draw them; they need matplotlib (``[plot]``).

Each function takes what `gpureduce.benchmark` yields or a `gpureduce.lectures.Record`, and returns
the matplotlib Figure. A rung has the same colour in every chart, and its line bears its name. Times
of an emulated GPU are never drawn beside real ones: that raises ValueError.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from gpureduce import _registry, lectures
from gpureduce.lecture_tables import provenance_note, short_device
from gpureduce.lectures import Record

# Paul Tol's "muted" colours, told apart by colour-blind readers, in the order of the lectures'
# nine rungs; the rungs after them go through the colours again, with dashed lines.
_COLOURS = ("#CC6677", "#332288", "#117733", "#88CCEE", "#882255", "#DDAA33", "#44AA99", "#AA4499",
            "#999933")  # fmt: skip
_STYLES = ("-", "--", ":")
_HATCHES = {"-": "", "--": "///", ":": "..."}  # of bars, where lines have styles
_MARKERS = "osD^vPX*h"
_NO_RUNG = {"cub": ("#777777", "--"), "numpy": ("#AAAAAA", "-."), "cpu": ("#444444", "-."),
            "auto": ("#000000", ":"), "fast": ("#000000", "-"),
            "exact": ("#0077BB", "-")}  # fmt: skip
_INK, _FAINT = "#222222", "#999999"


def _pyplot() -> Any:
    try:
        return importlib.import_module("matplotlib.pyplot")
    except ImportError as error:
        raise ImportError(
            "gpureduce.plot needs matplotlib: pip install 'gpureduce[plot]'"
        ) from error


def _look(strategy: str) -> dict[str, Any]:
    """The colour, line and marker that a rung has in every chart."""
    rungs = [s.name for s in _registry.strategies() if s.name not in _NO_RUNG]
    order = ("interleaved_mod", "interleaved_idx", "sequential", "unroll_tail", "unroll_warp",
             "first_add", "first_add_unroll_warp", "unroll_full", "cascade")  # fmt: skip
    names = [*order, *(name for name in rungs if name not in order)]
    if strategy not in names:
        ink, style = _NO_RUNG.get(strategy, (_INK, "-"))
        return {"color": ink, "linestyle": style, "marker": "."}
    at = names.index(strategy)
    return {
        "color": _COLOURS[at % len(_COLOURS)],
        "linestyle": _STYLES[min(at // len(_COLOURS), len(_STYLES) - 1)],
        "marker": _MARKERS[at % len(_MARKERS)],
    }


def colour(strategy: str) -> str:
    """The colour of a rung, the same in every chart."""
    return str(_look(_registry.find(strategy).name)["color"])


def _rows(results: Record | Iterable[Any]) -> list[Any]:
    rows = list(results.rows) if isinstance(results, Record) else list(results)
    if not rows:
        raise ValueError("there is nothing to draw")
    _one_clock([row.source for row in rows])
    return rows


def _one_clock(sources: Iterable[str]) -> None:
    found = set(sources)
    if "emulator" in found and len(found) > 1:
        raise ValueError(
            "emulated times and real ones do not go into one chart: an emulated GPU's tell nothing "
            "about a card"
        )


def _note(results: Any, rows: Sequence[Any]) -> str:
    """Where the times are from, for the chart's foot."""
    if isinstance(results, Record):
        return provenance_note(results)
    if rows[0].source == "emulator":
        return "An emulated GPU on this machine: its times tell nothing about a card."
    devices = ", ".join(dict.fromkeys(row.device for row in rows))
    return f"{devices}; medians of {rows[0].repeats}."


def _figure(width: float = 8.0, height: float = 4.5, panels: int = 1, **how: Any) -> Any:
    plt = _pyplot()
    figure, axes = plt.subplots(1, panels, figsize=(width, height), squeeze=False,
                                layout="constrained", **how)  # fmt: skip
    plt.close(figure)  # a notebook shows what a cell returns, once
    for ax in axes[0]:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(True, color="#dddddd", linewidth=0.6)
        ax.set_axisbelow(True)
    return figure, axes[0]


def _foot(figure: Any, text: str) -> None:
    figure.supxlabel(text, fontsize=8, color="#555555", x=0.01, ha="left")


def _count(n: float) -> str:
    """1024 as 1 Ki."""
    for unit, name in ((2**30, " Gi"), (2**20, " Mi"), (2**10, " Ki")):
        if n >= unit:
            return f"{n / unit:g}{name}"
    return f"{n:g}"


def _si(value: float) -> str:
    """A figure of three digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _label_ends(ax: Any, ends: Sequence[tuple[float, float, str, str]]) -> None:
    """Names each line at its right end, pushed apart where ends lie close: (x, y, text, colour)."""
    ax.figure.draw_without_rendering()  # so that places on the screen are known
    axes_of = (ax.transData + ax.transAxes.inverted()).transform
    height = 13.5 * ax.figure.dpi / 72 / ax.bbox.height
    order = sorted(ends, key=lambda end: axes_of(end[:2])[1])
    places = [axes_of(end[:2])[1] for end in order]
    for i in range(1, len(places)):
        places[i] = max(places[i], places[i - 1] + height)
    most = 1.0
    for i in reversed(range(len(places))):
        places[i] = min(places[i], most)
        most = places[i] - height
    for (x, y, text, ink), place in zip(order, places, strict=True):
        ax.annotate(
            text, (x, y), (1.03, place), textcoords="axes fraction", color=ink, fontsize=9,
            va="center", annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": ink, "linewidth": 0.6, "alpha": 0.6,
                        "shrinkA": 0, "shrinkB": 2, "relpos": (0, 0.5)},
        )  # fmt: skip


def _named(rows: Sequence[Any]) -> dict[str, list[Any]]:
    """The rows of each line, by the name it bears: the strategy's."""
    lines: dict[str, list[Any]] = {}
    for row in rows:
        lines.setdefault(row.strategy, []).append(row)
    return lines


def _ceilings(ax: Any, peak: float | None, ceiling: float | None) -> None:
    left = ax.get_xlim()[0]
    for value, name in ((peak, "peak on paper"), (ceiling, "read ceiling")):
        if value:
            ax.axhline(value, color=_INK, linewidth=1, linestyle=(0, (6, 3)) if name[0] == "p"
                       else "-")  # fmt: skip
            over = "bottom" if name[0] == "p" else "top"
            ax.annotate(f" {name}: {_si(value)} GB/s", (left, value), fontsize=8.5, va=over,
                        color=_INK)  # fmt: skip


def bandwidth(
    results: Record | Iterable[Any],
    x: str = "n",
    ceiling: float | None = None,
    title: str = "",
) -> Any:
    """GB/s by size, or by ``x="block"`` or ``"grid"``: a line for each strategy.

    By size both axes are logarithmic, and the card's peak on paper is drawn. `ceiling` is the
    fastest that the memory can be read, as measured, in GB/s.
    """
    rows = _rows(results)
    figure, (ax,) = _figure(8, 5)
    _draw_lines(ax, rows, x, ceiling)
    ax.set_title(title, loc="left", fontsize=11)
    _foot(figure, _note(results, rows))
    return figure


def _draw_lines(
    ax: Any, rows: Sequence[Any], x: str, ceiling: float | None = None,
    figure_of: Callable[[Any], float] = lambda row: float(row.gb_s),
) -> None:  # fmt: skip
    ends = []
    for name, line in _named(rows).items():
        line = sorted(line, key=lambda row: getattr(row, x))
        at, y = [getattr(row, x) for row in line], [figure_of(row) for row in line]
        ax.plot(at, y, **_look(name), linewidth=1.8, markersize=5)
        ends.append((at[-1], y[-1], name, _look(name)["color"]))
    ax.set_xscale("log", base=2)
    values = sorted({getattr(row, x) for row in rows})
    ax.set_xticks(values, [_count(v) if x == "n" else str(v) for v in values], fontsize=9)
    ax.minorticks_off()
    names = {"n": "elements", "block": "threads per block", "grid": "blocks"}
    ax.set_xlabel(names.get(x, x))
    ax.set_ylabel("GB/s of input")
    if x == "n":
        _log_scale(ax)
        peaks = [row.peak_gb_s for row in rows if row.peak_gb_s]
        _ceilings(ax, peaks[0] if peaks else None, ceiling)
    else:
        ax.set_ylim(bottom=0)
    _label_ends(ax, ends)


def _log_scale(ax: Any) -> None:
    """A logarithmic y axis with plain numbers, more of them where it spans little."""
    ticker = importlib.import_module("matplotlib.ticker")
    ax.set_yscale("log")
    low, high = ax.get_ylim()
    subs = (1, 2, 5) if high / low < 1e3 else (1,)
    ax.yaxis.set_major_locator(ticker.LogLocator(subs=subs, numticks=20))
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    ax.yaxis.set_minor_formatter(ticker.NullFormatter())


def speedup(results: Record | Iterable[Any], title: str = "") -> Any:
    """How many times faster than the first each one is, as bars that tell time and rate.

    Each row needs a bar of its own: of a record with several sizes or blocks, take
    ``record.only(n=..., block=...)``.
    """
    rows = _rows(results)
    names = [getattr(row, "label", row.strategy) for row in rows]
    if len(set(names)) < len(names):
        raise ValueError("several rows bear one name: choose one size and block, as by only()")
    figure, (ax,) = _figure(8, 0.9 + 0.42 * len(rows))
    _draw_bars(ax, rows, names)
    ax.set_title(title, loc="left", fontsize=11)
    _foot(figure, _note(results, rows))
    return figure


def _draw_bars(ax: Any, rows: Sequence[Any], names: Sequence[str]) -> None:
    times = [rows[0].median_us / row.median_us for row in rows]
    at = range(len(rows))
    looks = [_look(row.strategy) for row in rows]
    ax.barh(at, times, color=[look["color"] for look in looks], height=0.7, edgecolor="white",
            hatch=["" if row.strategy in _NO_RUNG else _HATCHES[look["linestyle"]]
                   for row, look in zip(rows, looks, strict=True)], linewidth=0)  # fmt: skip
    for i, (row, value) in enumerate(zip(rows, times, strict=True)):
        rate = f", {_si(row.gb_s)} GB/s" if row.nbytes else ""
        ax.annotate(f" {value:.2f}x   {_time(row.median_us)}{rate}", (value, i), va="center",
                    fontsize=9)  # fmt: skip
    ax.set_yticks(at, names, fontsize=9)
    ax.set_xlim(0, max(times) * 1.5)
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.grid(False, axis="y")
    ax.set_xlabel(f"times as fast as {names[0]}")


def _time(us: float) -> str:
    return f"{us / 1e3:.3g} ms" if us >= 1000 else f"{us:.3g} us"


def heatmap(
    results: Record | Iterable[Any],
    rows: str = "block",
    columns: str = "grid",
    title: str = "",
) -> Any:
    """The time at each pair of `rows` and `columns`, in microseconds; darker is slower.

    A record with the lecture's own figures has them in a second panel.
    """
    found = _rows(results)
    panels: list[tuple[str, list[float]]] = [("", [row.median_us for row in found])]
    if isinstance(results, Record):
        panels = [(short_device(results), panels[0][1])]
        theirs = results.theirs
        if not results.emulated and None not in theirs:
            gpu = lectures.find(results.lecture).gpu.split(" (")[0]
            panels.append((f"the lecture's {gpu}", [float(t or 0) for t in theirs]))
    figure, axes = _figure(5.0 * len(panels) if len(panels) > 1 else 6.0, 3.6, len(panels))
    for ax, (name, values) in zip(axes, panels, strict=True):
        cells = {(getattr(row, rows), getattr(row, columns)): v
                 for row, v in zip(found, values, strict=True)}  # fmt: skip
        _draw_cells(ax, cells, (rows, columns))
        ax.set_title(name or title, loc="left", fontsize=11)
    if title and len(panels) > 1:
        figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    _foot(figure, _note(results, found))
    return figure


_AXES = {"block": "threads per block", "grid": "blocks", "n": "elements"}


def _draw_cells(ax: Any, cells: Mapping[tuple[Any, Any], float], names: tuple[str, str]) -> None:
    down, across = (sorted({key[i] for key in cells}) for i in (0, 1))
    table = [[cells.get((r, c), float("nan")) for c in across] for r in down]
    values = list(cells.values())
    image = ax.imshow(table, cmap="cividis_r", aspect="auto")
    middle = (min(values) + max(values)) / 2
    for r, line in enumerate(table):
        for c, value in enumerate(line):
            ink = "white" if value > middle else "black"
            ax.annotate(f"{value:,.1f}", (c, r), ha="center", va="center", color=ink, fontsize=9)
    ax.set_xticks(range(len(across)), [f"{v:,}" for v in across])
    ax.set_yticks(range(len(down)), [f"{v:,}" for v in down])
    ax.set_xlabel(_AXES.get(names[1], names[1]))
    ax.set_ylabel(_AXES.get(names[0], names[0]))
    ax.grid(False)
    ax.figure.colorbar(image, ax=ax, label="microseconds")


def compare(
    mine: Record | None, recorded: Record | None, lecture: str | None = None, title: str = ""
) -> Any:
    """One experiment on the lecture's hardware, on the recorded card, and on the reader's own.

    What can be compared across hardware is how much each rung gains, so it is drawn as speedup over
    the first rung. An experiment that varies block or grid within a rung is drawn as lines, a panel
    for each device. `mine` is None where there is no GPU; `lecture` names the experiment where it
    is not plain from the records.
    """
    records = [record for record in (recorded, mine) if record is not None]
    if not records:
        raise ValueError("compare needs a record: lectures.load(...) or lectures.run(...)")
    _one_clock(
        row.source for record in records for row in record.rows if row.source != "perf_counter"
    )
    name = lecture or records[0].lecture
    if any(record.lecture != name for record in records):
        raise ValueError(f"these are not all records of {name}")
    first = records[0].rows
    if len({row.block for row in first if row.strategy == first[0].strategy}) > 2:
        return _compare_lines(records, title)
    return _compare_gains(records, title)


def _compare_gains(records: Sequence[Record], title: str) -> Any:
    blocks = list(dict.fromkeys(row.block for row in records[0].rows))
    blocks = blocks if len({r.strategy for r in records[0].rows}) * len(blocks) <= len(
        records[0].rows
    ) else [None]  # fmt: skip
    figure, axes = _figure(4 * len(blocks) + 1.6, 4.3, len(blocks), sharey=True)
    for ax, block in zip(axes, blocks, strict=True):
        _draw_gains(ax, [r.only(block=block) if block else r for r in records])
        if len(blocks) > 1:
            ax.set_title(f"{block} threads per block", loc="left", fontsize=10)
    axes[0].set_ylabel("times as fast as the first rung")
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    _foot(figure, provenance_note(records[0]))
    return figure


def _draw_gains(ax: Any, records: Sequence[Record]) -> None:
    """Of several sizes the largest counts."""
    lines = []
    for i, record in enumerate(records):
        most = max(row.n for row in record.rows)
        pairs = [(row, t) for row, t in zip(record.rows, record.theirs, strict=True)
                 if row.n == most]  # fmt: skip
        if i == 0:
            gpu = lectures.find(record.lecture).gpu.split(";")[0].split(" (")[0]
            gpu = "lecture" if gpu.startswith("not named") else gpu
            figures = [t for _, t in pairs if t]
            lines.append((gpu, [figures[0] / t for t in figures], _FAINT, "s"))
        name = short_device(record) + (" (yours)" if i else "")
        gains = [pairs[0][0].median_us / row.median_us for row, _ in pairs]
        lines.append((name, gains, ("#0077BB", "#EE7733")[i], "o"))
    labels = [row.label for row, _ in pairs]
    for _, gains, ink, marker in lines:
        ax.plot(range(len(gains)), gains, color=ink, marker=marker, linewidth=1.8)
    ax.set_xticks(range(len(labels)), [_wrapped(label) for label in labels], fontsize=8)
    ax.set_ylim(0, max(ax.get_ylim()[1], 1.08 * max(v for _, g, _, _ in lines for v in g)))
    _label_ends(
        ax, [(len(g) - 1, g[-1], f"{name}: {g[-1]:.2f}x", ink) for name, g, ink, _ in lines]
    )


def _wrapped(label: str) -> str:
    """A long label on several lines, without what stands in brackets."""
    words = label.partition(" (")[0].replace("_", "_ ").split()
    lines = [""]
    for word in words:
        if len(lines[-1]) + len(word) > 12:
            lines.append("")
        lines[-1] += word if word.endswith("_") else word + " "
    return "\n".join(line.strip() for line in lines if line.strip())


def _compare_lines(records: Sequence[Record], title: str) -> Any:
    """Panels with their own scales: the shape is what is compared."""
    figure, axes = _figure(4.9 * (len(records) + 1), 4.5, len(records) + 1)
    first = records[0]
    figures = dict(zip(map(id, first.rows), first.theirs, strict=True))
    gpu = lectures.find(first.lecture).gpu
    _draw_lines(axes[0], first.rows, "block", figure_of=lambda row: float(figures[id(row)] or 0))
    axes[0].set_title(f"the lecture's hardware, {gpu}", loc="left", fontsize=10)
    for ax, record in zip(axes[1:], records, strict=True):
        _draw_lines(ax, record.rows, "block")
        ax.set_title(short_device(record), loc="left", fontsize=10)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    _foot(figure, provenance_note(first))
    return figure


def panels(
    table: Mapping[str, Mapping[str, Sequence[float]]], labels: Sequence[str], title: str = "",
    note: str = "", strategies: Sequence[str] = (),
) -> Any:  # fmt: skip
    """Bars in a panel for each quantity: ``{"duration, us": {"H200": [...], "2080 Ti": [...]}}``.

    `labels` name the bars, from top to bottom; `strategies` colour those of the first series.
    """
    figure, axes = _figure(min(2.3 * len(table) + 1.6, 10.2), 0.55 * len(labels) + 1.4, len(table),
                           sharey=True)  # fmt: skip
    for ax, (quantity, series) in zip(axes, table.items(), strict=True):
        thick = 0.8 / len(series)
        for i, values in enumerate(series.values()):
            at = [k + (i - (len(series) - 1) / 2) * thick for k in range(len(labels))]
            inks = [_look(s)["color"] for s in strategies] if strategies and not i else _FAINT
            ax.barh(at, values, height=thick * 0.9, color=inks)
            for y, value in zip(at, values, strict=True):
                ax.annotate(f" {_short(value)}", (value, y), va="center", fontsize=7.5)
        ax.set_xlim(0, 1.35 * max(v for values in series.values() for v in values))
        ax.set_title(quantity, loc="left", fontsize=9.5)
        ax.xaxis.set_major_locator(importlib.import_module("matplotlib.ticker").MaxNLocator(3))
        ax.xaxis.set_major_formatter(lambda value, _: _short(value))
        ax.tick_params(axis="x", labelsize=8)
        ax.grid(False, axis="y")
    axes[0].set_yticks(range(len(labels)), labels, fontsize=9)
    axes[0].set_ylim(len(labels) - 0.45, -0.55)
    names = list(next(iter(table.values())))
    if len(names) > 1:
        note = f"In colour: {names[0]}; in grey: {', '.join(names[1:])}. {note}"
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    _foot(figure, note)
    return figure


def _short(value: float) -> str:
    """12,300,000 as 12.3M."""
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= unit:
            return f"{value / (1e3 if name == 'k' else unit):.3g}{name}"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def lines(
    series: Mapping[str, tuple[Sequence[float], Sequence[float]]], xlabel: str, ylabel: str,
    title: str = "", note: str = "",
) -> Any:  # fmt: skip
    """Lines on logarithmic axes, each with its name: ``{"runge": (points, errors)}``.

    Lines named as a strategy have its colour. Zeros, which have no logarithm, are left out.
    """
    figure, (ax,) = _figure(8, 4.5)
    ends = []
    names = {s.name for s in _registry.strategies()}
    for i, (name, (x, y)) in enumerate(series.items()):
        kept = [(a, b) for a, b in zip(x, y, strict=True) if b > 0]
        style = (
            _look(name) if name in names else {"color": _COLOURS[i % 9], "marker": _MARKERS[i % 9]}
        )
        ax.plot(*zip(*kept, strict=True), **style, linewidth=1.8, markersize=4)
        ends.append((*kept[-1], name, style["color"]))
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.xaxis.set_major_formatter(lambda value, _: _count(value))
    ax.set_xlabel(xlabel)
    ax.set_ylabel(ylabel)
    ax.set_title(title, loc="left", fontsize=11)
    _label_ends(ax, ends)
    _foot(figure, note)
    return figure
