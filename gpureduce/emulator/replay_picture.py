"""One step of a replay as a picture, for slides; and all of them as a film."""

from __future__ import annotations

import colorsys
import io
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpureduce.emulator import picture, replay_text
from gpureduce.emulator.picture import EMPTY, FAINT, INK, Page, Picture
from gpureduce.emulator.replay_steps import ACCESSES, BARRIERS, ReplayData, Step

_LEFT, _CELL = 66.0, 21.0
_MOST_ROWS = 12
_MASKED = "#b7791f"  # as on the page; of a dark scheme below
_VERBS = {"load": picture.ACTIVE, "store": picture.ALARM, "atomic": picture.ATOMIC}
_RINGS = {"executing": INK, "waiting at a barrier": picture.GOOD, "masked off": _MASKED}
_Held = tuple[Any, int | None]  # a value, and the number of its parts


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
        values, parts = one.results or one.values, one.result_parts or one.parts
        held = [*zip(values, parts or (None,) * len(values), strict=True)]
        if one.block == step.block and one.kind != "atomic":
            registers |= zip([(one.warp, lane) for lane in one.lanes], held, strict=False)
        words |= zip(_bytes(shown, one, step.block), held, strict=False)
    _draw_lanes(page, shown, number, registers)
    _draw_shared(page, shown, step, {at: held for at, held in words.items() if at is not None})
    return page.done()


def _bytes(shown: ReplayData, step: Step, block: int) -> list[int | None]:
    """For each lane, the byte that it accesses in a block's shared memory, or None."""
    array, owners = shown.arrays[step.array or 0], step.owner or (step.block,) * len(step.lanes)
    if step.kind not in ACCESSES or array.space != "shared":
        return []
    pairs = zip(step.offsets, owners, strict=True)
    return [array.base + offset if owner == block else None for offset, owner in pairs]


def _cell(
    page: Page, shown: ReplayData, x: float, held: _Held | None, ring: str | None, title: str
) -> None:
    """A value. The hue says where in the input its elements lie."""
    fill, (value, number) = EMPTY, held or ("", None)
    if number is not None and len(parts := shown.parts[number]):
        runs = parts.runs()
        total = sum(many * first + step * many * (many - 1) / 2 for first, step, many in runs)
        hue = 0.8 * (total / len(parts)) / max(shown.n - 1, 1)
        fill, dark = (
            "#" + bytes(round(255 * part) for part in colorsys.hls_to_rgb(hue, *shade)).hex()
            for shade in ((0.68, 0.72), (0.3, 0.58))
        )
        page.picture.dark[fill] = dark
    if ring:
        page.box(x - 1, -1, _CELL + 1, 20, ring, title)
    page.box(x + 1, 1, _CELL - 3, 16, fill, title)
    text = "" if isinstance(value, tuple) else f"{value}"
    if text and len(text) <= 4:
        page.say(x + _CELL / 2, 13, text, size=10 - len(text) * 0.7, anchor="middle")


def _columns(page: Page, name: str) -> None:
    page.y += 8
    page.say(_LEFT - 8, 8, name, size=9, fill=FAINT, anchor="end")
    for lane in range(0, 32, 4):
        page.say(_LEFT + (lane + 0.5) * _CELL, 8, f"{lane}", size=9, fill=FAINT, anchor="middle")
    page.y += 14


def _draw_lanes(
    page: Page, shown: ReplayData, number: int, held: dict[tuple[int, int], _Held]
) -> None:
    step = shown.steps[number]
    threads = shown.launches[step.launch][1]
    warps = -(-threads // 32)
    first = max(min(step.warp - 3, warps - 8), 0)
    _columns(page, "lane")
    for warp in range(first, min(warps, first + 8)):
        page.say(_LEFT - 8, 13, f"warp {warp}", size=9, fill=FAINT, anchor="end")
        state = _states(shown, number, warp)
        for lane in range(min(32, threads - 32 * warp)):
            x, title = _LEFT + lane * _CELL, f"lane {lane} of warp {warp}, {state[lane]}"
            _cell(page, shown, x, held.get((warp, lane)), _RINGS.get(state[lane]), title)
            if state[lane] == "ended":
                page.box(x + 1, 8, _CELL - 3, 2, FAINT, title)
        page.y += 21
    colours = [(colour, name) for name, colour in _RINGS.items()]
    page.legend(_LEFT, [*colours, (FAINT, "struck out: ended")])


def _states(shown: ReplayData, number: int, warp: int) -> dict[int, str]:
    """What each lane of a warp does at a step."""
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
    return dict.fromkeys(range(32), usual) | states


def _draw_shared(page: Page, shown: ReplayData, step: Step, held: dict[int, _Held]) -> None:
    rows = sorted({byte // 128 for byte in held})
    if not rows:
        return
    _columns(page, "bank")
    now = dict.fromkeys(_bytes(shown, step, step.block), _VERBS.get(step.kind))
    at = next((rows.index(byte // 128) for byte in now if byte is not None), 0)
    first = max(min(at - _MOST_ROWS // 2, len(rows) - _MOST_ROWS), 0)
    for row in rows[first : first + _MOST_ROWS]:
        for byte in sorted(byte for byte in held if byte // 128 == row):
            x, title = _LEFT + byte % 128 / 4 * _CELL, f"shared memory, byte {byte}"
            _cell(page, shown, x, held[byte], now.get(byte), title)
        page.y += 21


def film(pictures: Sequence[Picture], path: Path, seconds: float) -> None:
    """Writes an animated GIF."""
    height = max(one.height for one in pictures)
    files = [picture.drawn(replace(one, height=height), "png", dpi=100) for one in pictures]
    import PIL.Image  # comes with matplotlib, which has drawn these

    first, *rest = (PIL.Image.open(io.BytesIO(one)).convert("RGB") for one in files)
    first.save(path, save_all=True, append_images=rest, duration=1000 * seconds, loop=0)
