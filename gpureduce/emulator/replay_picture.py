"""One step of a replay as a picture, for slides and films."""

from __future__ import annotations

import colorsys
import textwrap
from typing import Any

from gpureduce.emulator import picture, replay_text
from gpureduce.emulator.picture import EMPTY, FAINT, INK, Cell, Page, Picture
from gpureduce.emulator.provenance import NOTHING
from gpureduce.emulator.replay_steps import ACCESSES, BARRIERS, ReplayData, Step

_LEFT = 66.0
_MASKED = "#b7791f"  # as on the page; of a dark scheme below
_VERBS = {"load": picture.ACTIVE, "store": picture.ALARM, "atomic": picture.ATOMIC}
_FRAMES = {"executing": INK, "waiting at a barrier": picture.GOOD, "masked off": _MASKED}
_Held = tuple[Any, int | None]  # a value, and the number of its parts
_Row = tuple[str, list[Cell]]


def draw(shown: ReplayData, number: int) -> Picture:
    """The lanes of the step's block, its shared memory, and the step in words."""
    step, page = shown.steps[number], Page()
    page.picture.dark[_MASKED] = "#ecc94b"
    page.heading(f"{shown.strategy}: step {number + 1} of {len(shown.steps)}")
    for row in textwrap.wrap(replay_text.sentence(shown, step), 112):
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
    lanes = [(f"warp {warp}", _lanes(page, shown, number, warp, registers)) for warp in warps]
    page.grid(_LEFT, "lane", _near(lanes, step.warp, 8))
    colours = [(colour, name) for name, colour in _FRAMES.items()]
    page.legend(_LEFT, [*colours, (FAINT, "struck out: ended")])
    page.y += 8
    now = dict.fromkeys(_bytes(shown, step, step.block), _VERBS.get(step.kind, ""))
    rows: dict[int, list[Cell]] = {}  # of 128 bytes
    for byte in sorted(byte for byte in words if byte is not None):
        how = now.get(byte, ""), f"shared memory, byte {byte}"
        cell = _cell(page, shown, byte % 128 / 4, words[byte], *how)
        rows.setdefault(byte // 128, []).append(cell)
    if rows:
        at = next(([*rows].index(byte // 128) for byte in now if byte is not None), 0)
        page.grid(_LEFT, "bank", _near([("", row) for row in rows.values()], at, 12))
    return page.done()


def _near(rows: list[_Row], at: int, most: int) -> list[_Row]:
    """The rows around one of them, if there are too many."""
    first = max(min(at - most // 2, len(rows) - most), 0)
    return rows[first : first + most]


def _bytes(shown: ReplayData, step: Step, block: int) -> list[int | None]:
    """For each lane, the byte that it accesses in a block's shared memory, or None."""
    array, owners = shown.arrays[step.array or 0], step.owner or (step.block,) * len(step.lanes)
    if step.kind not in ACCESSES or array.space != "shared":
        return []
    pairs = zip(step.offsets, owners, strict=True)
    return [array.base + offset if owner == block else None for offset, owner in pairs]


def _cell(page: Page, shown: ReplayData, at: float, held: _Held, frame: str, title: str) -> Cell:
    """A value in a cell. The hue says where in the input its elements lie."""
    value, number = held
    text, fill = "" if isinstance(value, tuple) else f"{value}", EMPTY
    if parts := NOTHING if number is None else shown.parts[number]:
        total = sum(many * (first + step * (many - 1) / 2) for first, step, many in parts.runs())
        hue = 0.8 * (total / len(parts)) / max(shown.n - 1, 1)
        fill, dark = (
            "#" + bytes(round(255 * part) for part in colorsys.hls_to_rgb(hue, *shade)).hex()
            for shade in ((0.68, 0.72), (0.3, 0.58))
        )
        page.picture.dark[fill] = dark
    ended = title.endswith("ended")
    return Cell(at, fill, title, text * (len(text) <= 4), frame=frame, is_struck=ended)


def _lanes(
    page: Page, shown: ReplayData, number: int, warp: int, held: dict[tuple[int, int], _Held]
) -> list[Cell]:
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
    cells: list[Cell] = []
    for lane in range(min(32, shown.launches[now.launch][1] - 32 * warp)):
        state, value = states.get(lane, usual), held.get((warp, lane), ("", None))
        how = _FRAMES.get(state, ""), f"lane {lane} of warp {warp}, {state}"
        cells.append(_cell(page, shown, lane, value, *how))
    return cells
