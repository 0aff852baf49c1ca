"""Races as text for the terminal, and as pictures for notebooks: two threads, side by side."""

from __future__ import annotations

import html as _html
import io
import textwrap
from typing import Any

from gpureduce.emulator.race import FoundRaces, Place, Race, Side, deed, event, same, title

_TERMINAL = 80
_SHOWN = 3  # timelines in a report
_LISTED = 12  # pairs of lines in a report


def cited(place: Place) -> str:
    """Where it is and what stands there, on one line of a terminal if that is wide enough."""
    line = f"{place}    {place.text}".rstrip()
    return line if len(line) <= _TERMINAL else f"{place}\n    {place.text}"


def _wrapped(words: str, indent: str = "") -> str:
    return textwrap.fill(
        words, _TERMINAL, initial_indent=indent, subsequent_indent=indent or "  ",
        break_on_hyphens=False, break_long_words=False,
    )  # fmt: skip


def _race_text(race: Race) -> str:
    first, second = race.sides
    lines = [cited(first.place)]
    if second.place != first.place:
        lines.append(cited(second.place))
    told = [f"  missing: {race.missing}", _wrapped(f"{race}.", "  ")]
    return "\n".join([*lines, "", race.timeline, "", *told])


def _verdict(found: FoundRaces) -> str:
    orders = f"{len(found.schedules)} order{'s' * (len(found.schedules) != 1)} of threads"
    if not found:
        return f"{found.strategy}: no race in {orders} (n = {found.n}, {found.dtype})"
    kinds = [(len(found.races), "pair", " of lines that race")]
    kinds += [(len(found.barriers), "barrier", " reached by part of a block")]
    kinds += [(len(found.faults), "launch", " that could not end")]
    said = [
        f"{count} {noun}{'es' * (noun == 'launch' and count > 1) or 's' * (count > 1)}{rest}"
        for count, noun, rest in kinds
        if count
    ]
    return f"{found.strategy}: {', '.join(said)} (n = {found.n}, {found.dtype}, {orders})"


def _sums(found: FoundRaces) -> str:
    if not found.wrong:
        runs = len(found.schedules) - len(found.faults)
        return f"The sum came out right in {'all' if runs > 1 else 'the'} {runs} runs." * bool(runs)
    wrong = ", ".join(f"{name}: {value}" for name, value in found.wrong.items())
    return f"The sum is {found.expected}, and came out wrong in {len(found.wrong)} ({wrong})."


def text(found: FoundRaces) -> str:
    """The whole report, for a terminal."""
    parts = [_wrapped(_verdict(found))]
    if found:
        parts += [str(barrier) for barrier in found.barriers]
        parts += [_wrapped(f"{name}: {fault}") for name, fault in found.faults.items()]
        parts += [_race_text(race) for race in found.races[:_SHOWN]]
        rest = found.races[_SHOWN:]
        listed = [
            f"  {a.place.short} ({a.kind}), {b.place.short} ({b.kind}): missing {race.missing}"
            for race in rest[:_LISTED]
            for a, b in [race.sides]
        ]
        if len(rest) > _LISTED:
            listed.append(f"  ... and {len(rest) - _LISTED} more")
        parts += ["\n".join(["Also:", *listed])] if listed else []
    if found or found.wrong:
        parts.append(_wrapped(_sums(found)))
    return "\n\n".join(part for part in parts if part)


def html(found: FoundRaces) -> str:
    """The report for a notebook: the verdict, the worst race as a picture, the others as text."""
    escape = _html.escape
    parts = [f"<p><b>{escape(_verdict(found))}</b></p>"]
    if found.races:
        parts.append(_picture(found))
    for barrier in found.barriers:
        parts.append(f"<pre>{escape(str(barrier))}</pre>")
    for name, fault in found.faults.items():
        parts.append(f"<pre>{escape(name)}: {escape(fault)}</pre>")
    if found or found.wrong:
        parts.append(f"<p>{escape(_sums(found))}</p>")
    if found:
        parts.append(
            f"<details><summary>All of it</summary><pre>{escape(text(found))}</pre></details>"
        )
    return "\n".join(parts)


def _picture(found: FoundRaces) -> str:
    try:
        return svg(found, 0)
    except ImportError:
        return f"<pre>{_html.escape(_race_text(found.races[0]))}</pre>"


def svg(found: FoundRaces, number: int) -> str:
    """One race as SVG."""
    figure = plot(found, number)
    out = io.StringIO()
    figure.savefig(out, format="svg", bbox_inches="tight")
    return out.getvalue()[out.getvalue().index("<svg") :]


_COLOURS = {"read": "#2a6fbb", "write": "#c1272d", "atomic": "#7a4fa3", "end": "#c1272d"}
_CALM, _ALARM = "#5a6b5d", "#c1272d"


def plot(found: FoundRaces, number: int) -> Any:
    """One race as a matplotlib figure: time runs to the right, a lane for each thread."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("pictures need matplotlib: pip install 'gpureduce[plot]'") from error
    if not 0 <= number < len(found.races):
        raise ValueError(f"race must be from 0 to {len(found.races) - 1}, not {number}")
    race = found.races[number]
    figure, axes = plt.subplots(figsize=(9.0, 3.0), layout="constrained")
    plt.close(figure)  # a notebook shows what a cell returns, once
    axes.set(xlim=(-0.2, 1.06), ylim=(-0.75, 1.6))
    axes.axis("off")
    for height, side in zip((1, 0), race.sides, strict=True):
        _draw_lane(axes, height, race, side)
    _draw_barriers(axes, race)
    _draw_gap(axes, race)
    axes.set_title(f"{found.strategy}: a race for {race.address}", loc="left", fontweight="bold")
    return figure


def _draw_lane(axes: Any, height: float, race: Race, side: Side) -> None:
    axes.annotate(
        "", (1.04, height), (-0.02, height), arrowprops={"arrowstyle": "->", "color": "#888888"}
    )
    words = title(side).replace(", ", "\n").replace(" (", "\n(")
    axes.text(-0.04, height, words, fontsize=10, fontweight="bold", va="center", ha="right")
    at = 0.42 if height else 0.58
    axes.plot([at], [height], "o", markersize=13, color=_COLOURS[side.kind], zorder=3)
    below = height == 0
    words = f"line {side.place.line}: {deed(race, side)}"
    words += f"\n{side.place.text}" if side.place.text else ""
    axes.annotate(
        words, (at, height), (0, -14 if below else 14), textcoords="offset points", ha="center",
        va="top" if below else "bottom", fontsize=10, color=_COLOURS[side.kind],
    )  # fmt: skip


def _draw_barriers(axes: Any, race: Race) -> None:
    """One bar through both lanes where one barrier orders both, else a mark on each."""
    left, right = race.sides
    ends = ((0.1, left.before, right.before, "start"), (0.9, left.after, right.after, "end"))
    for at, a, b, edge in ends:
        if same(a, b):
            axes.plot([at, at], [-0.15, 1.15], linewidth=5, color=_CALM, solid_capstyle="round")
            words = dict.fromkeys((event(a, edge), event(b, edge)))
            axes.text(
                at, -0.25, "\n".join(words), ha="center", va="top", fontsize=9, color=_CALM
            )  # fmt: skip
            continue
        for height, place in ((1, a), (0, b)):
            axes.plot([at, at], [height - 0.1, height + 0.1], linewidth=5, color=_CALM)
            axes.text(
                at, height - 0.15, event(place, edge), ha="center", va="top", fontsize=9,
                color=_CALM,
            )  # fmt: skip


def _draw_gap(axes: Any, race: Race) -> None:
    """What is not there."""
    axes.plot([0.5, 0.5], [-0.12, 1.12], linewidth=2, linestyle=(0, (4, 4)), color=_ALARM)
    axes.text(
        0.515, 0.5, f"missing here: {race.missing}", ha="left", va="center", fontsize=11,
        color=_ALARM, fontweight="bold",
    )  # fmt: skip
