"""Pictures of explanations."""

from __future__ import annotations

import textwrap
from typing import Any

from gpureduce.emulator.counts import Access, CountsPair, Line, StrategyCounts
from gpureduce.emulator.explain_text import factor, traffic, wavefront_table
from gpureduce.emulator.picture import (
    ACTIVE,
    ALARM,
    EMPTY,
    FAINT,
    GOOD,
    HALF,
    INK,
    PAPER,
    ROW,
    WIDTH,
    Cell,
    Page,
    Picture,
)
from gpureduce.text import counted, ones, runs, size_text

_MANY_STEPS = 24
_MANY_WARPS = 8


def draw(what: StrategyCounts) -> Picture:
    """Active lanes step by step, the worst bank conflict, and bytes moved against bytes used."""
    page = Page()
    _activity(page, what)
    worst = what.worst_line
    if worst and worst.access:
        _banks(page, worst, worst.access)
    _bytes(page, [what])
    return page.done()


def draw_comparison(both: CountsPair) -> Picture:
    """The counters that differ as pairs of bars, and the activity of both."""
    page = Page()
    _changes(page, both)
    for what in (both.before, both.after):
        _activity(page, what)
    _bytes(page, [both.before, both.after])
    return page.done()


def _activity(page: Page, what: StrategyCounts) -> None:
    steps = [step for step in what.steps[:_MANY_STEPS] if any(step.lanes)]
    warps = max((len(step.lanes) for step in steps), default=0)
    if not warps:
        return
    shown = min(warps, _MANY_WARPS)
    remark = (
        f"{what.strategy}, block 0: a column is a lane, a row what happens between two barriers"
    )
    if warps > shown:
        remark += f"; warps 0 to {shown - 1} of {warps}"
    page.heading("Active lanes, step by step", remark)
    left, right = 44.0, 190.0
    cell = min((WIDTH - left - right - shown * 6) / (shown * 32), 9.0)
    for warp in range(shown):
        x = left + warp * (32 * cell + 6)
        page.say(x + 16 * cell, 8, f"warp {warp}", size=9, fill=FAINT, anchor="middle")
    page.say(left - 8, 8, "step", size=9, fill=FAINT, anchor="end")
    page.y += 12
    for step in steps:
        page.say(left - 8, 12, step.name, size=10, anchor="end", fill=FAINT)
        for warp in range(shown):
            mask = step.lanes[warp] if warp < len(step.lanes) else 0
            x = left + warp * (32 * cell + 6)
            title = f"step {step.name}, warp {warp}: {mask.bit_count()} of 32 lanes active"
            page.box(x, 2, 32 * cell, ROW - 4, EMPTY, title)
            for first, _, count in runs(ones(mask), 1):
                page.box(x + first * cell, 2, count * cell, ROW - 4, ACTIVE, title)
        _remark(page, WIDTH - right + 4, step.conflicts, step)
        page.y += ROW
    if len(what.steps) > _MANY_STEPS:
        page.say(
            left,
            12,
            f"and {counted(len(what.steps) - _MANY_STEPS, 'more step')}",
            size=10,
            fill=FAINT,
        )
        page.y += ROW


def _remark(page: Page, x: float, conflicts: int, step: Any) -> None:
    active = sum(mask.bit_count() for mask in step.lanes)
    busy = sum(1 for mask in step.lanes if mask)
    page.say(x, 12, f"{counted(active, 'lane')}, {counted(busy, 'warp')}", size=10, fill=INK)
    if conflicts:
        share = step.conflicts / step.wavefronts
        page.say(WIDTH - 8, 12, f"{share:.0%} conflicts", size=10, fill=ALARM, anchor="end")


def _banks(page: Page, line: Line, access: Access) -> None:
    table = wavefront_table(access)
    fault = f"{counted(access.wavefronts, 'wavefront')} where {access.ideal} would do"
    verdict = fault if access.wavefronts > access.ideal else "no bank conflict"
    page.heading(
        f"Lanes and banks of shared memory: {verdict}",
        f"{line.place}   {line.text}",
    )
    left, rows = 88.0, []
    for number, row in enumerate(table):
        served = ALARM if number >= access.ideal else ACTIVE
        cells = [
            Cell(bank, EMPTY, f"bank {bank}: idle")
            if lane is None
            else Cell(bank, served, f"bank {bank}: lane {lane}", f"{lane}", PAPER)
            for bank, lane in enumerate(row)
        ]
        rows.append((f"wavefront {number + 1}", cells))
    page.grid(left, "bank", rows)
    page.say(
        left,
        12,
        "A number is the lane that a bank serves; red rows are what the conflict costs."
        if access.wavefronts > access.ideal
        else "A number is the lane that a bank serves.",
        size=10,
        fill=FAINT,
    )
    page.y += 14


def _bytes(page: Page, every: list[StrategyCounts]) -> None:
    rows = [
        (f"{what.strategy} {kind}" if len(every) > 1 else kind, used, moved)
        for what in every
        for kind, used, moved in traffic(what)
    ]
    if not rows:
        return
    page.heading("Global memory: bytes used of bytes moved")
    page.legend(8, ((GOOD, "used by a lane"), (HALF, "moved, but used by none")))
    left = 12.0 + 6.3 * max(len(name) for name, _, _ in rows)
    room = WIDTH - left - 230
    most = max(moved for _, _, moved in rows)
    for name, used, moved in rows:
        page.say(left - 8, 13, name, size=10, anchor="end")
        width = max(room * moved / most, 2)
        title = f"{used:,} of {moved:,} bytes"
        page.box(left, 2, width, ROW - 4, HALF, title)
        page.box(left, 2, max(width * used / moved, 1), ROW - 4, GOOD, title)
        text = f"{size_text(used)} of {size_text(moved)}, {used / moved:.0%} used"
        page.say(left + width + 8, 13, text, size=10)
        page.y += ROW


def _changes(page: Page, both: CountsPair) -> None:
    before, after = both.before, both.after
    page.heading(
        f"{before.strategy} → {after.strategy}",
        f"{both.lesson}  ({before.size.rstrip(':')}, {before.counted})",
    )
    page.legend(190, ((FAINT, before.strategy), (ACTIVE, after.strategy)))
    left, room = 190.0, WIDTH - 190.0 - 230
    for change in both.changes:
        most = max(change.before, change.after)
        page.say(left - 8, 17, change.name.replace("_", " "), size=10, anchor="end")
        for dy, count, fill in ((1, change.before, FAINT), (12, change.after, ACTIVE)):
            page.box(left, dy, max(room * count / most, min(count, 1)), 10, fill, f"{count:,}")
        worse = change.after > change.before
        text = f"{change.before:,} → {change.after:,}  {factor(change)}"
        page.say(left + room + 8, 17, text, size=10, fill=ALARM if worse else INK)
        page.y += 28
    if not both.changes:
        page.say(8, 12, "Nothing that is counted differs.", fill=FAINT)
        page.y += ROW
    same = [
        f"{name.replace('_', ' ')} {count:,}"
        for name, count in before.total.items()
        if count and count == after.total[name]
    ]
    for line in textwrap.wrap(f"The same in both: {', '.join(same)}.", 120) if same else ():
        page.say(8, 12, line, size=10, fill=FAINT)
        page.y += 15
