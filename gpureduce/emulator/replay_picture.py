"""One step of a replay as a picture, for slides; and all of them as a film."""

from __future__ import annotations

import colorsys
import textwrap
from typing import Any

from gpureduce.emulator import picture, replay_text
from gpureduce.emulator.picture import EMPTY, FAINT, INK, Page, Picture
from gpureduce.emulator.provenance import NOTHING
from gpureduce.emulator.replay_steps import ACCESSES, BARRIERS, ReplayData, Step

_LEFT, _CELL = 66.0, 21.0
_MOST_ROWS = 12
_MASKED = "#b7791f"  # as on the page; of a dark scheme below
_VERBS = {"load": picture.ACTIVE, "store": picture.ALARM, "atomic": picture.ATOMIC}
_FRAMES = {"executing": INK, "waiting at a barrier": picture.GOOD, "masked off": _MASKED}
_Held = tuple[Any, int | None]  # a value, and the number of its parts
_Cell = tuple[float, _Held, str | None, str]  # the column, the value, its frame, its title


def draw(shown: ReplayData, number: int) -> Picture:
    """The lanes of the step's block, its shared memory, and the step in words."""
    step, page = shown.steps[number], Page()
    page.picture.dark[_MASKED] = "#ecc94b"
    page.heading(f"{shown.strategy}: step {number + 1} of {len(shown.steps)}")
    for row in textwrap.wrap(replay_text.sentence(shown, step), 100):
        page.say(8, 10, row, size=12)
        page.y += 16
    registers: dict[tuple[int, int], _Held] = {}  # of the block, by warp and lane
    words: dict[int | None, _Held] = {}  # of its shared memory, by byte
    for one in (one for one in shown.steps[: number + 1] if one.launch == step.launch):
        values, parts = one.results, one.result_parts
        if not values or one.sources:  # in a shuffle, lanes show what they pass
            values, parts = one.values, one.parts
        held = [*zip(values, parts or (None,) * len(values), strict=True)]
        if one.block == step.block and one.kind != "atomic":
            registers |= zip([(one.warp, lane) for lane in one.lanes], held, strict=False)
        words |= zip(_bytes(shown, one, step.block), held, strict=False)
    warps = range(-(-shown.launches[step.launch][1] // 32))
    lanes = [_lanes(shown, number, warp, registers) for warp in warps]
    _draw_rows(page, shown, "lane", lanes, step.warp - 3, 8)
    colours = [(colour, name) for name, colour in _FRAMES.items()]
    page.legend(_LEFT, [*colours, (FAINT, "struck out: ended")])
    now = dict.fromkeys(_bytes(shown, step, step.block), _VERBS.get(step.kind))
    rows: dict[int, list[_Cell]] = {}  # of 128 bytes
    for byte in sorted(byte for byte in words if byte is not None):
        cell = byte % 128 / 4, words[byte], now.get(byte), f"shared memory, byte {byte}"
        rows.setdefault(byte // 128, []).append(cell)
    if rows:
        at = next(([*rows].index(byte // 128) for byte in now if byte is not None), 0)
        _draw_rows(page, shown, "bank", [*rows.values()], at - _MOST_ROWS // 2, _MOST_ROWS)
    return page.done()


def _bytes(shown: ReplayData, step: Step, block: int) -> list[int | None]:
    """For each lane, the byte that it accesses in a block's shared memory, or None."""
    array, owners = shown.arrays[step.array or 0], step.owner or (step.block,) * len(step.lanes)
    if step.kind not in ACCESSES or array.space != "shared":
        return []
    pairs = zip(step.offsets, owners, strict=True)
    return [array.base + offset if owner == block else None for offset, owner in pairs]


def _draw_rows(
    page: Page, shown: ReplayData, column: str, rows: list[list[_Cell]], first: int, most: int
) -> None:
    """Rows of values, from `first` on. The hue says where in the input their elements lie."""
    page.y += 8
    page.say(_LEFT - 8, 8, column, size=9, fill=FAINT, anchor="end")
    for i in range(0, 32, 4):
        page.say(_LEFT + (i + 0.5) * _CELL, 8, f"{i}", size=9, fill=FAINT, anchor="middle")
    page.y += 14
    first = max(min(first, len(rows) - most), 0)
    for number, row in enumerate(rows[first : first + most], first):
        if column == "lane":
            page.say(_LEFT - 8, 13, f"warp {number}", size=9, fill=FAINT, anchor="end")
        for at, (value, parts), frame, title in row:
            x, text = _LEFT + at * _CELL, "" if isinstance(value, tuple) else f"{value}"
            if frame:
                page.box(x - 1, -1, _CELL + 1, 20, frame, title)
            page.box(x + 1, 1, _CELL - 3, 16, _hue(page, shown, parts), title)
            if text and len(text) <= 4:
                page.say(x + _CELL / 2, 13, text, size=10 - len(text) * 0.7, anchor="middle")
            if title.endswith("ended"):
                page.box(x + 1, 8, _CELL - 3, 2, FAINT, title)
        page.y += 21


def _hue(page: Page, shown: ReplayData, number: int | None) -> str:
    parts = NOTHING if number is None else shown.parts[number]
    if not parts:
        return EMPTY
    total = sum(many * first + step * many * (many - 1) / 2 for first, step, many in parts.runs())
    hue = 0.8 * (total / len(parts)) / max(shown.n - 1, 1)
    fill, dark = (
        "#" + bytes(round(255 * part) for part in colorsys.hls_to_rgb(hue, *shade)).hex()
        for shade in ((0.68, 0.72), (0.3, 0.58))
    )
    page.picture.dark[fill] = dark
    return fill


def _lanes(
    shown: ReplayData, number: int, warp: int, held: dict[tuple[int, int], _Held]
) -> list[_Cell]:
    """The lanes of a warp, and what each of them does at a step."""
    now, usual = shown.steps[number], "not started"
    states: dict[int, str] = {}
    for i, step in enumerate(shown.steps):
        if (step.launch, step.block, step.warp) != (now.launch, now.block, warp):
            continue
        if i > number:
            if usual == "ready" and step.kind in BARRIERS:
                states = dict.fromkeys(step.lanes, "waiting at a barrier") | states
            break
        usual = "masked off" if warp == now.warp and now.kind not in BARRIERS else "ready"
        if step.kind == "end":
            states |= dict.fromkeys(step.lanes, "ended")
    states |= dict.fromkeys(now.lanes if warp == now.warp else (), "executing")
    cells: list[_Cell] = []
    for lane in range(min(32, shown.launches[now.launch][1] - 32 * warp)):
        state = states.get(lane, usual)
        title = f"lane {lane} of warp {warp}, {state}"
        cells.append((lane, held.get((warp, lane), ("", None)), _FRAMES.get(state), title))
    return cells
