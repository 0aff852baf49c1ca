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
from gpureduce.emulator.replay_steps import ACCESSES, BARRIERS, NOTHING, ReplayData, Step

_LEFT, _CELL = 66.0, 21.0
_MOST_ROWS = 12
_MASKED = "#b7791f"  # as on the page; of a dark scheme below
_VERBS = {"load": picture.ACTIVE, "store": picture.ALARM, "atomic": picture.ATOMIC}
_RINGS = {"executing": INK, "waiting at a barrier": picture.GOOD, "masked off": _MASKED}


_Values = dict[tuple[int, ...], tuple[Any, int | None]]


def held(shown: ReplayData, last: int) -> tuple[_Values, _Values]:
    """What registers and words hold after some steps: a value, and the number of its parts."""
    registers: _Values = {}
    words: _Values = {}
    for step in shown.steps[: last + 1]:
        after = step.results or step.values
        parts = step.result_parts or step.parts or (None,) * len(after)
        for i, held in enumerate(zip(after, parts, strict=True)):
            if step.kind != "atomic":
                registers[step.launch, step.block, step.warp, step.lanes[i]] = held
            if step.kind in ACCESSES:
                words[_word(shown, step, i)] = held
    return registers, words


def _word(shown: ReplayData, step: Step, i: int) -> tuple[int, ...]:
    """The word that a lane accesses, by its place in memory."""
    array, owner = shown.arrays[step.array or 0], step.owner[i] if step.owner else step.block
    scope = (step.launch, owner) if array.space == "shared" else (-1, -1)
    return *scope, array.base + step.offsets[i]


def draw(shown: ReplayData, number: int) -> Picture:
    """The lanes of the step's block, its shared memory, and the step in words."""
    step, page = shown.steps[number], Page()
    page.picture.dark[_MASKED] = "#ecc94b"
    registers, words = held(shown, number)
    page.heading(f"{shown.strategy}: step {number + 1} of {len(shown.steps)}")
    for row in textwrap.wrap(replay_text.sentence(shown, step), 100):
        page.say(8, 10, row, size=12)
        page.y += 16
    _draw_lanes(page, shown, number, registers)
    _draw_shared(page, shown, step, words)
    return page.done()


def _colour(page: Page, shown: ReplayData, held: tuple[Any, int | None] | None) -> str:
    """The hue says where in the input the elements of a value lie."""
    parts = NOTHING if held is None or held[1] is None else shown.parts[held[1]]
    if not len(parts):
        return EMPTY
    total = sum(many * first + step * many * (many - 1) / 2 for first, step, many in parts.runs())
    hue = 0.8 * (total / len(parts)) / max(shown.n - 1, 1)
    light, dark = (
        "#" + bytes(round(255 * part) for part in colorsys.hls_to_rgb(hue, *shade)).hex()
        for shade in ((0.68, 0.72), (0.3, 0.58))
    )
    page.picture.dark[light] = dark
    return light


def _cell(page: Page, shown: ReplayData, x: float, held: Any, ring: str | None, title: str) -> None:
    if ring:
        page.box(x - 1, -1, _CELL + 1, 20, ring, title)
    page.box(x + 1, 1, _CELL - 3, 16, _colour(page, shown, held), title)
    text = "" if held is None or isinstance(held[0], tuple) else f"{held[0]}"
    if text and len(text) <= 4:
        page.say(x + _CELL / 2, 13, text, size=10 - len(text) * 0.7, anchor="middle")


def _columns(page: Page, name: str) -> None:
    page.y += 8
    page.say(_LEFT - 8, 8, name, size=9, fill=FAINT, anchor="end")
    for lane in range(0, 32, 4):
        page.say(_LEFT + (lane + 0.5) * _CELL, 8, f"{lane}", size=9, fill=FAINT, anchor="middle")
    page.y += 14


def _draw_lanes(page: Page, shown: ReplayData, number: int, held: _Values) -> None:
    step = shown.steps[number]
    threads = shown.launches[step.launch][1]
    _columns(page, "lane")
    first = max(min(step.warp - 3, -(-threads // 32) - 8), 0)
    for warp in range(first, min(-(-threads // 32), first + 8)):
        page.say(_LEFT - 8, 13, f"warp {warp}", size=9, fill=FAINT, anchor="end")
        state = _states(shown, number, warp)
        for lane in range(min(32, threads - 32 * warp)):
            x, title = _LEFT + lane * _CELL, f"lane {lane} of warp {warp}, {state[lane]}"
            own = held.get((step.launch, step.block, warp, lane))
            _cell(page, shown, x, own, _RINGS.get(state[lane]), title)
            if state[lane] == "ended":
                page.box(x + 1, 8, _CELL - 3, 2, FAINT, title)
        page.y += 21
    colours = [(colour, name) for name, colour in _RINGS.items()]
    page.legend(_LEFT, [*colours, (FAINT, "struck out: ended")])


def _states(shown: ReplayData, number: int, warp: int) -> dict[int, str]:
    """What each lane of a warp does at a step."""
    step = shown.steps[number]
    own = [
        (i, one) for i, one in enumerate(shown.steps)
        if (one.launch, one.block, one.warp) == (step.launch, step.block, warp)
    ]  # fmt: skip
    before = [one for i, one in own if i <= number]
    after = next((one for i, one in own if i > number), None)
    is_masking = warp == step.warp and step.kind not in BARRIERS
    usual = ("masked off" if is_masking else "ready") if before else "not started"
    states = dict.fromkeys(range(32), usual)
    if usual == "ready" and after and after.kind in BARRIERS:
        states |= dict.fromkeys(after.lanes, "waiting at a barrier")
    for one in before:
        if one.kind == "end":
            states |= dict.fromkeys(one.lanes, "ended")
    return states | dict.fromkeys(step.lanes if warp == step.warp else (), "executing")


def _draw_shared(page: Page, shown: ReplayData, step: Step, words: _Values) -> None:
    own = {key[2]: what for key, what in words.items() if key[:2] == (step.launch, step.block)}
    rows = sorted({byte // 128 for byte in own})
    if not rows:
        return
    _columns(page, "bank")
    now = {}
    if step.kind in ACCESSES and shown.arrays[step.array or 0].space == "shared":
        now = {_word(shown, step, i)[2]: _VERBS[step.kind] for i in range(len(step.lanes))}
    at = next((rows.index(byte // 128) for byte in now if byte // 128 in rows), 0)
    first = max(min(at - _MOST_ROWS // 2, len(rows) - _MOST_ROWS), 0)
    for row in rows[first : first + _MOST_ROWS]:
        for byte in sorted(byte for byte in own if byte // 128 == row):
            x = _LEFT + byte % 128 / 4 * _CELL
            _cell(page, shown, x, own[byte], now.get(byte), f"shared memory, byte {byte}")
        page.y += 21


def film(pictures: Sequence[Picture], path: Path, seconds: float) -> None:
    """Writes an animated GIF."""
    height = max(one.height for one in pictures)
    files = [picture.drawn(replace(one, height=height), "png", dpi=100) for one in pictures]
    import PIL.Image  # comes with matplotlib, which has drawn these

    first, *rest = (PIL.Image.open(io.BytesIO(one)).convert("RGB") for one in files)
    first.save(path, save_all=True, append_images=rest, duration=1000 * seconds, loop=0)
