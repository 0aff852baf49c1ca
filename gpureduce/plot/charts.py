"""Charts of measurements, as the notebooks draw them; they need matplotlib (``[plot]``).

Each function takes the rows of `gpureduce.benchmark` or a `gpureduce.lectures.Record`, and returns
the matplotlib Figure. A rung has the same colour in every chart, and its line is labelled. A chart
with both emulated and real times raises ValueError.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpureduce.core import registry
from gpureduce.lectures import experiments
from gpureduce.lectures.records import Record, printed
from gpureduce.lectures.tables import short_device
from gpureduce.plot.layout import (
    FAINT,
    HATCHES,
    INK,
    NO_RUNG,
    foot,
    label_ends,
    log_scale,
    look,
    looks_of,
    note_on,
    page,
    three_digits,
)
from gpureduce.text import count, counted


def colour(strategy: str) -> str:
    """The colour of a rung, the same in every chart.

    >>> from gpureduce import lectures, plot
    >>> plot.colour("sequential") == plot.colour("reduce2")
    True
    """
    return str(look(registry.find(strategy).name)["color"])


def _rows(results: Record | Iterable[Any]) -> list[Any]:
    rows = list(results.rows) if isinstance(results, Record) else list(results)
    if not rows:
        raise ValueError(
            "there are no rows to draw: gpureduce.benchmark yields its rows only once, so keep "
            "them in a list"
        )
    if not all(hasattr(row, "source") for row in rows):
        raise TypeError(
            "a chart takes a record of `gpureduce bench`, or rows of gpureduce.benchmark, not a "
            f"list of {type(rows[0]).__name__}"
        )
    _one_clock([row.source for row in rows])
    return rows


def _one_clock(sources: Iterable[str]) -> None:
    found = set(sources)
    if "emulator" in found and len(found) > 1:
        raise ValueError(
            "emulated and measured times cannot share a chart: emulated times say nothing about "
            "the speed of a GPU"
        )


def _titled(title: str, rows: Sequence[Any]) -> str:
    """The title, marked if the times are emulated."""
    return f"{title} (emulated)" if title and rows[0].source == "emulator" else title


def _named(rows: Sequence[Any], per: str) -> dict[str, list[Any]]:
    """The rows of each line, by the line's label."""
    unit = {"block": " threads", "grid": " blocks"}.get(per, "")
    lines: dict[str, list[Any]] = {}
    for row in rows:
        name = _rung_name(row) if per == "strategy" else f"{getattr(row, per)}{unit}"
        lines.setdefault(name, []).append(row)
    return lines


def _rung_name(row: Any) -> str:
    """The strategy's name in its lecture if it is an alias, else its own name."""
    label = getattr(row, "label", row.strategy)
    if not registry.is_known(row.strategy):  # a kernel of yours
        return str(label)
    return label if label in registry.find(row.strategy).aliases else str(row.strategy)


def _ceilings(ax: Any, peak: float | None, ceiling: float | None) -> None:
    left = ax.get_xlim()[0]
    white = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
    for value, name, style, up in (
        (peak, "theoretical peak", (0, (6, 3)), 5),
        (ceiling, "read ceiling", "-", -5),
    ):
        if value:
            ax.axhline(value, color=INK, linewidth=1, linestyle=style, zorder=1)
            ax.annotate(f"{name}: {three_digits(value)} GB/s", (left, value), (4, up),
                        textcoords="offset points", fontsize=8.5, color=INK, bbox=white,
                        va="bottom" if up > 0 else "top")  # fmt: skip
    if peak:
        ax.set_ylim(top=1.6 * peak)


def bandwidth(
    results: Record | Iterable[Any],
    x: str = "n",
    ceiling: float | None = None,
    title: str = "",
    per: str = "strategy",
) -> Any:
    """GB/s by size, or by ``x="block"`` or ``"grid"``: a line for each strategy, or ``per="grid"``.

    By size both axes are logarithmic, and the card's theoretical peak is drawn. `ceiling` is the
    fastest that the memory can be read, as measured, in GB/s.

    >>> from gpureduce import lectures, plot
    >>> figure = plot.bandwidth(lectures.printed("block_sweep"), x="block")
    """
    rows = _rows(results)
    figure, (ax,) = page(8, 5)
    _draw_lines(ax, rows, x, ceiling, per)
    ax.set_title(_titled(title, rows), loc="left", fontsize=11)
    return foot(figure, note_on(results, rows))


def times(results: Record | Iterable[Any], title: str = "") -> Any:
    """Microseconds by size, from zero: shows the fixed cost of a sum.

    >>> from gpureduce import lectures, plot
    >>> figure = plot.times(lectures.recorded("rungs", "notebooks/data"))
    """
    rows = _rows(results)
    figure, (ax,) = page(8, 4.5)
    _draw_lines(ax, rows, "n", value="median_us")
    ax.set_title(_titled(title, rows), loc="left", fontsize=11)
    return foot(figure, note_on(results, rows))


_QUANTITIES = {"gb_s": "GB/s of input", "median_us": "microseconds"}


def _draw_lines(
    ax: Any, rows: Sequence[Any], x: str, ceiling: float | None = None, per: str = "strategy",
    value: str = "gb_s",
) -> None:  # fmt: skip
    ends = []
    named = _named(rows, per)
    looks = looks_of(named)
    for name, line in named.items():
        line = sorted(line, key=lambda row: getattr(row, x))
        at, y = [getattr(row, x) for row in line], [getattr(row, value) for row in line]
        ax.plot(at, y, **looks[name], linewidth=1.8, markersize=5)
        ends.append((at[-1], y[-1], name, looks[name]["color"]))
    ax.set_xscale("log", base=2)
    values = sorted({getattr(row, x) for row in rows})
    ax.set_xticks(values, [count(v) if x == "n" else str(v) for v in values], fontsize=9)
    ax.minorticks_off()
    names = {"n": "elements", "block": "threads per block", "grid": "blocks"}
    ax.set_xlabel(names.get(x, x))
    ax.set_ylabel(_QUANTITIES[value])
    if x == "n" and value == "gb_s":
        log_scale(ax)
        peaks = [row.peak_gb_s for row in rows if row.peak_gb_s]
        if rows[0].source != "emulator":
            _ceilings(ax, peaks[0] if peaks else None, ceiling)
    else:
        ax.set_ylim(0, 1.06 * max(getattr(row, value) for row in rows))
        ax.yaxis.set_major_formatter(lambda tick, _: f"{tick:,g}")
    label_ends(ax, ends)


def speedup(results: Record | Iterable[Any], title: str = "") -> Any:
    """The speedup of each row over the first, as bars labelled with time and rate.

    Each row is a bar. For a record with several sizes or blocks, pass
    ``record.only(n=..., block=...)``.

    >>> from gpureduce import lectures, plot
    >>> figure = plot.speedup(lectures.printed("lab"), title="Five kernels")
    """
    rows = _rows(results)
    names = [getattr(row, "label", row.strategy) for row in rows]
    if len(set(names)) < len(names):
        raise ValueError(
            "several rows have one name: choose rows of one size and block; record.only(n=..., "
            "block=...) does for a record"
        )
    figure, (ax,) = page(8, 0.9 + 0.42 * len(rows))
    _draw_bars(ax, rows, names)
    ax.set_title(_titled(title, rows), loc="left", fontsize=11)
    return foot(figure, note_on(results, rows))


def _draw_bars(ax: Any, rows: Sequence[Any], names: Sequence[str]) -> None:
    times = [rows[0].median_us / row.median_us for row in rows]
    at = range(len(rows))
    looks = [look(row.strategy) for row in rows]
    ax.barh(at, times, color=[look["color"] for look in looks], height=0.7, edgecolor="white",
            hatch=["" if row.strategy in NO_RUNG else HATCHES[look["linestyle"]]
                   for row, look in zip(rows, looks, strict=True)], linewidth=0)  # fmt: skip
    for i, (row, value) in enumerate(zip(rows, times, strict=True)):
        rate = f", {three_digits(row.gb_s)} GB/s" if row.nbytes else ""
        ax.annotate(f" {value:.2f}x   {_time(row.median_us)}{rate}", (value, i), va="center",
                    fontsize=9)  # fmt: skip
    ax.set_yticks(at, names, fontsize=9)
    ax.set_xlim(0, max(times) * 1.5)
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.grid(False, axis="y")
    ax.set_xlabel(f"times as fast as {names[0]}")


def _time(us: float) -> str:
    return f"{us / 1e3:.3g} ms" if us >= 999.5 else f"{us:.3g} us"


def heatmap(
    results: Record | Iterable[Any],
    rows: str = "block",
    columns: str = "grid",
    title: str = "",
) -> Any:
    """The time at each pair of `rows` and `columns`, in microseconds; darker is slower.

    The colours show a cell's time relative to the fastest cell of its panel. For a record, a panel
    with the lecture's own figures precedes it, with the same colour scale.

    >>> from gpureduce import lectures, plot
    >>> figure = plot.heatmap(lectures.printed("block_grid"))
    """
    found = _rows(results)
    panels: list[tuple[str, list[float]]] = [("", [row.median_us for row in found])]
    notes = [note_on(results, found)]
    if isinstance(results, Record):
        panels = [(_panel_name(results), panels[0][1])]
        theirs = results.theirs
        if not results.emulated and not results.printed and None not in theirs:
            lecture = printed(results.lecture)
            panels.insert(0, (_panel_name(lecture), [float(t or 0) for t in theirs]))
            notes.insert(0, note_on(lecture, lecture.rows))
    figure, axes = page(5.0 * len(panels) if len(panels) > 1 else 6.0, 3.8, len(panels))
    most = max(max(values) / min(values) for _, values in panels)
    for ax, (name, values) in zip(axes, panels, strict=True):
        cells = {(getattr(row, rows), getattr(row, columns)): v
                 for row, v in zip(found, values, strict=True)}  # fmt: skip
        image = _draw_cells(ax, cells, (rows, columns), most)
        ax.set_title(f"{name or title or 'time'}, us", loc="left", fontsize=11)
    figure.colorbar(image, ax=list(axes), label="times as long as the quickest",
                    format="{x:.3g}")  # fmt: skip
    if title and panels[0][0]:
        figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    return foot(figure, " ".join(notes))


def _panel_name(record: Record) -> str:
    """The title of a panel: the device, and whether the figures are recorded or the lecture's."""
    if record.printed:
        gpu = experiments.lecture_card(record.lecture)
        return gpu if gpu.startswith("the lecture") else f"the lecture's {gpu}"
    return short_device(record) + ("" if record.emulated else ", recorded")


_AXES = {"block": "threads per block", "grid": "blocks", "n": "elements"}


def _draw_cells(
    ax: Any, cells: Mapping[tuple[Any, Any], float], names: tuple[str, str], most: float
) -> Any:
    """Draws microseconds in cells. The colour scale ends at `most` times the least of them."""
    down, across = (sorted({key[i] for key in cells}) for i in (0, 1))
    least = min(cells.values())
    table = [[cells.get((r, c), float("nan")) / least for c in across] for r in down]
    image = ax.imshow(table, cmap="cividis_r", aspect="auto", vmin=1, vmax=max(most, 1.01))
    for (r, c), value in cells.items():
        ink = "white" if value / least > (1 + most) / 2 else "black"
        ax.annotate(f"{value:,.1f}", (across.index(c), down.index(r)), ha="center", va="center",
                    color=ink, fontsize=9)  # fmt: skip
    ax.set_xticks(range(len(across)), [f"{v:,}" for v in across])
    ax.set_yticks(range(len(down)), [f"{v:,}" for v in down])
    ax.set_xlabel(_AXES.get(names[1], names[1]))
    ax.set_ylabel(_AXES.get(names[0], names[0]))
    ax.grid(False)
    return image


def compare(
    mine: Record | None, recorded: Record | None, lecture: str | None = None, title: str = ""
) -> Any:
    """One experiment on the lecture's hardware, on the recorded GPU, and on the reader's own.

    Gains of rungs can be compared across hardware, so the chart shows speedups over the first rung.
    An experiment that varies block or grid within a rung is drawn as lines, with a panel for each
    device. `mine` is None without a GPU. `recorded` is None without a record (or a substitute for
    it). `lecture` names the experiment if neither of them does.

    >>> from gpureduce import lectures, plot
    >>> figure = plot.compare(None, lectures.recorded("lab", "notebooks/data"))
    """
    records = [record for record in (recorded, mine) if record is not None]
    if not records:
        raise ValueError("compare needs a record: lectures.recorded(...) or lectures.run(...)")
    _one_clock(
        row.source for record in records for row in record.rows if row.source != "perf_counter"
    )
    name = lecture or records[0].lecture
    if any(record.lecture != name for record in records):
        raise ValueError(f"these are not all records of {name}")
    if experiments.find(name).source and not any(record.printed for record in records):
        records.insert(0, printed(name))
    first = records[0].rows
    if len({row.block for row in first if row.strategy == first[0].strategy}) > 2:
        return _compare_lines(records, title, mine)
    return _compare_gains(records, title, mine)


def _all_notes(records: Sequence[Record]) -> str:
    notes = [note_on(record, record.rows) for record in records]
    return "\n".join(note for note in notes if note)


def _compare_gains(records: Sequence[Record], title: str, mine: Record | None) -> Any:
    labels = {row.label for row in records[-1].rows}
    records = [
        r.only(label=tuple(labels)) if {row.label for row in r.rows} != labels else r
        for r in records
    ]
    blocks = list(dict.fromkeys(row.block for row in records[0].rows))
    blocks = blocks if len({r.strategy for r in records[0].rows}) * len(blocks) <= len(
        records[0].rows
    ) else [None]  # fmt: skip
    width = 4 * len(blocks) + 1.6 if len(blocks) > 1 else 8.0
    figure, axes = page(width, 4.3, len(blocks), sharey=True)
    for ax, block in zip(axes, blocks, strict=True):
        _draw_gains(ax, [r.only(block=block) if block else r for r in records], mine)
        if len(blocks) > 1:
            ax.set_title(f"{block} threads per block", loc="left", fontsize=10)
    axes[0].set_ylabel("times as fast as the first rung")
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    return foot(figure, _all_notes(records))


def _line_name(record: Record, yours: bool) -> str:
    whose = "" if record.printed else " (yours)" if yours else ", recorded"
    return short_device(record) + whose


_OURS = ("#0077BB", "#EE7733")


def _draw_gains(ax: Any, records: Sequence[Record], mine: Record | None) -> None:
    """Draws the speedups over the first rung, at the largest size of each record."""
    lines = []
    labels: list[str] = []
    for record in records:
        rows = record.largest.rows
        gains = [rows[0].median_us / row.median_us for row in rows]
        yours = mine is not None and record is records[-1]
        name = _line_name(record, yours)
        ink = FAINT if record.printed else _OURS[yours]
        lines.append((name, gains, ink, "s" if record.printed else "o"))
        labels = [row.label for row in rows]
    for _, gains, ink, marker in lines:
        ax.plot(range(len(gains)), gains, color=ink, marker=marker, linewidth=1.8)
    ax.set_xticks(range(len(labels)), [_wrapped(label) for label in labels], fontsize=8)
    ax.set_ylim(0, max(ax.get_ylim()[1], 1.08 * max(v for _, g, _, _ in lines for v in g)))
    label_ends(ax, [(len(g) - 1, g[-1], f"{name}: {g[-1]:.2f}x", ink) for name, g, ink, _ in lines])


def _wrapped(label: str) -> str:
    """A long label on several lines, without its part in brackets."""
    words = label.partition(" (")[0].replace("_", "_ ").split()
    lines = [""]
    for word in words:
        if len(lines[-1]) + len(word) > 12:
            lines.append("")
        lines[-1] += word if word.endswith("_") else word + " "
    return "\n".join(line.strip() for line in lines if line.strip())


def _compare_lines(records: Sequence[Record], title: str, mine: Record | None) -> Any:
    """Draws a panel for each record, with its own scale: only the shapes are compared."""
    width = 4.9 * len(records) if len(records) > 1 else 8.0
    figure, axes = page(width, 4.5, len(records))
    for ax, record in zip(axes, records, strict=True):
        _draw_lines(ax, record.rows, "block")
        name = f"{short_device(record)} (yours)" if record is mine else _panel_name(record)
        ax.set_title(name, loc="left", fontsize=10)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    return foot(figure, _all_notes(records))


def lines(
    series: Mapping[str, tuple[Sequence[float], Sequence[float]]], xlabel: str, ylabel: str,
    title: str = "", note: str = "",
) -> Any:  # fmt: skip
    """Lines on logarithmic axes, each with its name: ``{"runge": (points, errors)}``.

    A line with the name of a strategy has its colour. Zeros are left out: they have no logarithm.

    >>> from gpureduce import plot
    >>> figure = plot.lines({"error": ([10, 100], [1e-2, 1e-4])}, xlabel="points", ylabel="error")
    """
    figure, (ax,) = page(8, 4.5)
    ends = []
    looks = looks_of(series)
    for name, (x, y) in series.items():
        kept = [(a, b) for a, b in zip(x, y, strict=True) if b > 0]
        style = looks[name]
        ax.plot(*zip(*kept, strict=True), **style, linewidth=1.8, markersize=4)
        ends.append((*kept[-1], name, style["color"]))
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.xaxis.set_major_formatter(lambda value, _: count(value))
    ax.set_xlabel(xlabel)
    ax.set_ylabel(ylabel)
    ax.set_title(title, loc="left", fontsize=11)
    label_ends(ax, ends)
    return foot(figure, note)


def spread(
    values: Mapping[str, Sequence[float]], xlabel: str, title: str = "", note: str = ""
) -> Any:
    """A row of dots for each name, one dot per value: ``{"exact": [0.2, 0.2], ...}``.

    Equal values share a dot. A label beside each row gives the number of different values. The
    scale is linear up to 1 and logarithmic beyond.

    >>> from gpureduce import plot
    >>> figure = plot.spread({"exact": [0.2, 0.2], "cpu": [0.3, 1.4]}, xlabel="error, ulps")
    """
    figure, (ax,) = page(8, 0.42 * len(values) + 1.5)
    looks = looks_of(values)
    for i, (name, row) in enumerate(values.items()):
        ink = looks[name]["color"]
        ax.plot(row, [i] * len(row), "o", color=ink, alpha=0.55, markersize=8, markeredgewidth=0)
        kinds = len(set(row))
        label = f"{counted(kinds, 'value')} in {counted(len(row), 'run')}"
        ax.annotate(label, (1.02, i), xycoords=ax.get_yaxis_transform(),
                    va="center", fontsize=9, color=ink, annotation_clip=False)  # fmt: skip
    ax.axvline(0, color=INK, linewidth=1)
    most = max(abs(value) for row in values.values() for value in row)
    if most > 4:
        ax.set_xscale("symlog", linthresh=1, linscale=0.7, base=2)
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.set_yticks(range(len(values)), list(values), fontsize=9)
    ax.set_ylim(len(values) - 0.5, -0.5)
    ax.set_xlabel(xlabel)
    ax.set_title(title, loc="left", fontsize=11)
    return foot(figure, note)
