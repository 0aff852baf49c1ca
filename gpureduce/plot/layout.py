"""Common parts of all charts: rung colours, figures, labels at the ends of lines, numbers."""

from __future__ import annotations

import importlib
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gpureduce.core import registry
from gpureduce.lectures.records import Record
from gpureduce.lectures.tables import missing_note, of_runs, provenance_note

# Paul Tol's "muted" colours, which colour-blind readers can distinguish, in the order of the
# lectures' nine rungs. Later rungs reuse the colours, with dashed lines.
COLOURS = ("#CC6677", "#332288", "#117733", "#88CCEE", "#882255", "#DDAA33", "#44AA99", "#AA4499",
            "#999933")  # fmt: skip
STYLES = ("-", "--", ":")
HATCHES = {"-": "", "--": "///", ":": "..."}  # hatches of bars, by the style of lines
MARKERS = "osD^vPX*h"
NO_RUNG = {"cub": ("#777777", "--"), "numpy": ("#AAAAAA", "-."), "cpu": ("#444444", "-."),
            "auto": ("#000000", ":"), "fast": ("#000000", "-"),
            "exact": ("#0077BB", "-")}  # fmt: skip
INK, FAINT, WARNING = "#222222", "#999999", "#A03020"


def pyplot() -> Any:
    """matplotlib.pyplot, or an error that says how to get it."""
    try:
        return importlib.import_module("matplotlib.pyplot")
    except ImportError as error:
        raise ImportError(
            "gpureduce.plot needs matplotlib: pip install 'gpureduce[plot]'"
        ) from error


def look(strategy: str) -> dict[str, Any]:
    """The colour, line and marker that a rung has in every chart."""
    rungs = [s.name for s in registry.strategies() if s.name not in NO_RUNG]
    order = ("interleaved_mod", "interleaved_idx", "sequential", "unroll_tail", "unroll_warp",
             "first_add", "first_add_unroll_warp", "unroll_full", "cascade")  # fmt: skip
    names = [*order, *(name for name in rungs if name not in order)]
    if strategy not in names:
        ink, style = NO_RUNG.get(strategy, (INK, "-"))
        return {"color": ink, "linestyle": style, "marker": "."}
    at = names.index(strategy)
    return {
        "color": COLOURS[at % len(COLOURS)],
        "linestyle": STYLES[min(at // len(COLOURS), len(STYLES) - 1)],
        "marker": MARKERS[at % len(MARKERS)],
    }


def looks_of(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The look of each line: fixed for strategies, by position for other lines."""
    known = {name for s in registry.strategies() for name in (s.name, *s.aliases)}
    return {
        name: look(registry.find(name).name)
        if name in known
        else {"color": COLOURS[i % len(COLOURS)], "marker": MARKERS[i % len(MARKERS)]}
        for i, name in enumerate(names)
    }


def page(width: float = 8.0, height: float = 4.5, panels: int = 1, **how: Any) -> Any:
    """A figure with panels side by side; the axes come as a list."""
    plt = pyplot()
    figure, axes = plt.subplots(1, panels, figsize=(width, height), squeeze=False,
                                layout="constrained", **how)  # fmt: skip
    plt.close(figure)  # otherwise a notebook would show the figure twice
    for ax in axes[0]:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(True, color="#dddddd", linewidth=0.6)
        ax.set_axisbelow(True)
    return figure, axes[0]


def foot(figure: Any, text: str) -> Any:
    """The figure with a note on the source of its numbers, highlighted if that is no GPU."""
    warns = "not recorded yet" in text or "emulated" in text.lower()
    ink = WARNING if warns else "#555555"
    lines = textwrap.fill(text, round(figure.get_figwidth() * 15))
    figure.supxlabel(lines, fontsize=8, color=ink, x=0.01, ha="left")
    return figure


def three_digits(value: float) -> str:
    """A number with three significant digits, or more if it is 1000 or larger."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def bar_axis(ax: Any, title: str, most: float, form: Callable[[float], str]) -> None:
    """The x axis and the title of a panel of horizontal bars."""
    ax.set_title(title, loc="left", fontsize=9.5)
    ax.set_xlim(0, most)
    ax.xaxis.set_major_locator(importlib.import_module("matplotlib.ticker").MaxNLocator(3))
    ax.xaxis.set_major_formatter(lambda value, _: form(value))
    ax.tick_params(axis="x", labelsize=8)
    ax.grid(False, axis="y")


def label_ends(ax: Any, ends: Sequence[tuple[float, float, str, str]]) -> None:
    """Labels each line at its right end: (x, y, text, colour). Moves apart labels that overlap."""
    ax.figure.draw_without_rendering()  # computes positions on the screen
    axes_of = (ax.transData + ax.transAxes.inverted()).transform
    height = 13.5 * ax.figure.dpi / 72 / ax.bbox.height
    order = sorted(ends, key=lambda end: axes_of(end[:2])[1])
    places = _apart([axes_of(end[:2])[1] for end in order], height)
    for (x, y, text, ink), place in zip(order, places, strict=True):
        ax.annotate(
            text, (x, y), (1.03, place), textcoords="axes fraction", color=ink, fontsize=9,
            va="center", annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": ink, "linewidth": 0.6, "alpha": 0.6,
                        "shrinkA": 0, "shrinkB": 2, "relpos": (0, 0.5)},
        )  # fmt: skip


def _apart(wanted: Sequence[float], height: float) -> list[float]:
    """Positions at least `height` apart, as near to the wanted ones as possible, none above 1.

    Labels that would overlap form a pool around their mean.
    """
    pools: list[tuple[float, int]] = []  # mean lowest position, number of labels
    for at, want in enumerate(wanted):
        mean, many = want - at * height, 1
        while pools and pools[-1][0] > mean:
            before, more = pools.pop()
            mean, many = (mean * many + before * more) / (many + more), many + more
        pools.append((mean, many))
    lowest = [mean for mean, many in pools for _ in range(many)]
    highest = 1.0 - (len(wanted) - 1) * height
    return [min(low, highest) + at * height for at, low in enumerate(lowest)]


def log_scale(ax: Any) -> None:
    """Sets a logarithmic y axis with plain numbers. A short range gets more ticks."""
    ticker = importlib.import_module("matplotlib.ticker")
    ax.set_yscale("log")
    low, high = ax.get_ylim()
    subs = (1, 1.5, 2, 3, 5, 7) if high / low < 12 else (1, 2, 5) if high / low < 1e3 else (1,)
    ax.yaxis.set_major_locator(ticker.LogLocator(subs=subs, numticks=20))
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    ax.yaxis.set_minor_formatter(ticker.NullFormatter())


def short(value: float) -> str:
    """12,300,000 as 12.3M."""
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= unit:
            return f"{value / (1e3 if name == 'k' else unit):.3g}{name}"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def note_on(results: Any, rows: Sequence[Any]) -> str:
    """The source of the times, for the note below a chart."""
    if isinstance(results, Record):
        return "  ".join(filter(None, (missing_note(results), provenance_note(results))))
    if rows[0].source == "emulator":
        return "An emulated GPU on this machine: its times tell nothing about a card."
    devices = ", ".join(dict.fromkeys(row.device for row in rows))
    return f"{devices}; {of_runs(rows[0].repeats)}."
