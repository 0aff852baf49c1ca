"""Races as text for the terminal, and as pictures: two threads, side by side."""

from __future__ import annotations

import html as _html
import textwrap

from gpureduce.emulator.picture import ACTIVE, ALARM, ATOMIC, FAINT, GOOD, WIDTH, Page, Picture
from gpureduce.emulator.race import FoundRaces, Place, Race, Side, deed, event, same, title
from gpureduce.text import counted

_TERMINAL = 80
_SHOWN = 3  # timelines in a report
_LISTED = 12  # pairs of lines in a report


def cited(place: Place) -> str:
    """The file, the line and its source, on one line of the terminal if there is room."""
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
    below = [f"  missing: {race.missing}", _wrapped(f"{race}.", "  ")]
    return "\n".join([*lines, "", race.timeline, "", *below])


def _orders(found: FoundRaces) -> str:
    return f"{counted(len(found.schedules), 'order')} of threads"


def _verdict(found: FoundRaces) -> str:
    orders = _orders(found)
    size = f"n = {found.n}, block = {found.block}, {found.dtype}"
    if not found:
        return f"{found.strategy}: no race in {orders} ({size})"
    kinds = [(len(found.races), "pair", " of lines that race")]
    kinds += [(len(found.barriers), "barrier", " reached by part of a block")]
    kinds += [(len(found.faults), "launch", " that failed")]
    said = [f"{counted(count, noun)}{rest}" for count, noun, rest in kinds if count]
    return f"{found.strategy}: {', '.join(said)} ({size}, {orders})"


def _sums(found: FoundRaces) -> str:
    seen = dict.fromkeys(
        (*found.wrong, *(order for race in found.races for order in race.schedules))
    )
    stops = "".join(f" In {name}, {found.stops[name]} until the others had ended."
                    for name in seen if len(seen) == 1 and name in found.stops)  # fmt: skip
    return _sums_of_runs(found) + stops


def _sums_of_runs(found: FoundRaces) -> str:
    if not found.wrong:
        runs = len(found.schedules) - len(found.faults)
        all_runs = f"all {runs} runs" if runs > 1 else "the one run"
        return f"The sum came out right in {all_runs}." * bool(runs)
    wrong = ", ".join(f"{name}: {value}" for name, value in found.wrong.items())
    return (
        f"The sum is {found.expected}, and came out wrong in {len(found.wrong)} of "
        f"{_orders(found)} ({wrong})."
    )


def text(found: FoundRaces) -> str:
    """The whole report, for a terminal."""
    parts = [_wrapped(_verdict(found))]
    if found:
        parts += [str(barrier) for barrier in found.barriers]
        parts += [
            "\n".join(
                _wrapped(line.lstrip(), line[: -len(line.lstrip())]) for line in said.splitlines()
            )
            for said in (f"{name}: {fault}" for name, fault in found.faults.items())
        ]
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
        parts.append(picture(found, 0).svg(inline=True))
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


def picture(found: FoundRaces, number: int) -> Picture:
    """One race: time runs to the right, a lane for each of the two threads."""
    if not found.races:
        raise ValueError(f"{found.strategy} has no race to show")
    if not 0 <= number < len(found.races):
        raise ValueError(f"race must be from 0 to {len(found.races) - 1}, not {number}")
    race, page = found.races[number], Page()
    page.heading(f"{found.strategy}: a race for {race.address}")
    page.y += 42
    for dy, side in zip(_LANES, race.sides, strict=True):
        _draw_lane(page, dy, race, side)
    _draw_barriers(page, race)
    _draw_gap(page, race.missing)
    page.y += 160
    return page.done()


_LANES = (0, 110)  # from the top
_LEFT, _RIGHT = 150.0, WIDTH - 16.0
_BEFORE, _FIRST, _GAP, _SECOND, _AFTER = 215.0, 390.0, 440.0, 490.0, 690.0
_COLOURS = {"read": ACTIVE, "write": ALARM, "atomic": ATOMIC, "end": ALARM}


def _draw_lane(page: Page, dy: float, race: Race, side: Side) -> None:
    page.box(_LEFT, dy - 1, _RIGHT - _LEFT, 2, FAINT, "time")
    page.say(_RIGHT, dy + 5, "\u25b6", size=14, fill=FAINT, anchor="middle")
    for row, name in enumerate(title(side).replace(" (", ", (").split(", ")):
        page.say(_LEFT - 12, dy - 8 + 15 * row, name, bold=True, anchor="end")
    first, colour = dy == _LANES[0], _COLOURS[side.kind]
    x = _FIRST if first else _SECOND
    words = [f"line {side.place.line}: {deed(race, side)}", side.place.text]
    page.box(x - 7, dy - 7, 14, 14, colour, words[0])
    for row, text in enumerate(words):
        page.say(x, dy + (-29 if first else 24) + 15 * row, text, fill=colour, anchor="middle")


def _draw_barriers(page: Page, race: Race) -> None:
    """A bar through both lanes where one barrier orders both; else a mark on each lane."""
    left, right = race.sides
    for x, a, b, edge in (
        (_BEFORE, left.before, right.before, "start"),
        (_AFTER, left.after, right.after, "end"),
    ):
        marks = [(-12.0, 134.0)] if same(a, b) else [(-12.0, 24.0), (98.0, 24.0)]
        for dy, height in marks:
            page.box(x - 3, dy, 6, height, GOOD, "a barrier, or the start or the end of the launch")
        below = [event(b, edge)]
        if not same(a, b):
            page.say(x, _LANES[0] + 28, event(a, edge), size=10, fill=GOOD, anchor="middle")
        elif event(a, edge) not in below:
            below.append(event(a, edge))
        for row, text in enumerate(below):
            page.say(x, _LANES[1] + 30 + 14 * row, text, size=10, fill=GOOD, anchor="middle")


def _draw_gap(page: Page, missing: str) -> None:
    """A dashed line between the two accesses."""
    for dy in range(4, 104, 10):
        page.box(_GAP - 1, dy, 2, 6, ALARM, "nothing orders the two accesses")
    page.say(_GAP + 10, 59, f"missing here: {missing}", size=12, fill=ALARM, bold=True)
