"""Charts of sums along axes: from a record of ``gpureduce bench --axis``, and of counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpureduce.bench.suites import axis as by_axis
from gpureduce.emulator.explain import Explanation
from gpureduce.lectures import axes
from gpureduce.lectures.tables import made_on
from gpureduce.plot.layout import COLOURS, INK, MARKERS, NO_RUNG, foot, label_ends, log_scale, page
from gpureduce.plot.panels import panels
from gpureduce.text import count

_OURS = ("fast", "exact")
_TITLES = {1: "each row (axis 1)", 0: "each column (axis 0)"}


def _look(name: str, others: Sequence[str]) -> dict[str, Any]:
    """The look of a line: ours as in all charts, another library by its place."""
    if name in _OURS:
        ink, style = NO_RUNG[name]
        return {"color": ink, "linestyle": style, "marker": ".", "zorder": 3}
    at = others.index(name)
    return {"color": COLOURS[at % len(COLOURS)], "marker": MARKERS[at % len(MARKERS)]}


def axis_speeds(
    path: str | Path = axes.PATH, names: Sequence[str] | None = None, title: str = ""
) -> Any:
    """GB/s of sums of rows, and of columns, by the number of columns: a line for each library.

    Shows the float32 matrices of a record, which have about as many elements each. A dashed line is
    a copy of the matrix. `names` are the calls to show, all by default.

    >>> from gpureduce import plot
    >>> figure = plot.axis_speeds("notebooks/data/axis_h100.json", ["fast", "CuPy"])
    """
    record = axes.load(path)
    speeds = {axis: by_axis.speeds(record["rows"], axis) for axis in _TITLES}
    wanted = list(speeds[1]) if names is None else list(names)
    shown = [name for name in wanted if name in speeds[1]]
    if not shown:
        raise ValueError(f"{path}: it has no matrices of all shapes by {', '.join(wanted)}")
    others = [name for name in speeds[1] if name not in _OURS]
    figure, panel = page(11, 4.8, 2, sharey=True)
    # Some calls add up rows only.
    copy = by_axis.copy_gb_s(record["rows"])
    lines = {a: {n: of_axis[n] for n in shown if n in of_axis} for a, of_axis in speeds.items()}
    for ax, (axis, of_axis) in zip(panel, lines.items(), strict=True):
        _draw(ax, of_axis, others, copy)
        ax.set_title(_TITLES[axis], loc="left", fontsize=10)
    panel[0].set_ylabel("GB/s of matrix and sums")
    log_scale(panel[0])
    for ax, of_axis in zip(panel, lines.values(), strict=True):
        looks = [(name, line, _look(name, others)["color"]) for name, line in of_axis.items()]
        label_ends(ax, [(max(line), line[max(line)], name, ink) for name, line, ink in looks])
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    dashed = "Dashed: a copy of the matrix. " if copy else ""
    return foot(figure, f"{dashed}{made_on(record)}; all in one run, the L2 cache flushed.")


def _draw(
    ax: Any, lines: Mapping[str, Mapping[int, float]], others: Sequence[str], copy: float | None
) -> None:
    for name, line in lines.items():
        at = sorted(line)
        ax.plot(at, [line[c] for c in at], **_look(name, others), linewidth=1.8, markersize=5)
    if copy:
        ax.axhline(copy, color=INK, linewidth=1, linestyle=(0, (6, 3)), zorder=1)
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter(lambda value, _: count(value))
    ax.set_xlabel("columns (fewer rows to the right)")


def axis_counts(explained: Mapping[str, Explanation], title: str = "") -> Any:
    """The counts of `gpureduce.explain` that tell kernels for sums along an axis apart.

    >>> from gpureduce import plot
    >>> from gpureduce.lectures import axes
    >>> figure = plot.axis_counts(axes.counted(["row_thread", "row_lanes"], (512, 64)))
    """

    def per_load(one: Explanation, count: int) -> float:
        return count / one.counters["global_load_requests"]

    every = list(explained.values())
    table: dict[str, list[float]] = {
        "blocks": [one.grid for one in every],
        "lanes per load": [per_load(one, one.details["global_load_lanes"]) for one in every],
        "loads of a warp": [one.counters["global_load_requests"] for one in every],
        "sectors per load": [per_load(one, one.counters["global_load_sectors"]) for one in every],
        "sectors": [one.counters["global_load_sectors"] for one in every],
    }
    return panels(
        {name: {"": values} for name, values in table.items()}, list(explained), title,
        "Counted on the emulator, whose card has 4 multiprocessors. First launch. No times.",
        list(explained),
    )  # fmt: skip
