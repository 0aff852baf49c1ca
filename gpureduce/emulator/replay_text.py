"""A replay in words: a sentence for each step, which the page shows below its picture."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

from gpureduce.emulator.replay_steps import BARRIERS, ReplayData, Step
from gpureduce.text import counted, ones, plural, ranges


def summary(shown: ReplayData) -> str:
    """What the replay shows, and the sum."""
    blocks, threads = shown.launches[0]
    head = (
        f"{shown.strategy}: {counted(shown.n, 'element')}, {counted(blocks, 'block')} of "
        f"{threads} threads, {counted(len(shown.launches), 'launch')}, "
        f"{counted(len(shown.steps), 'step')}."
    )
    if shown.fault:
        return f"{head} It failed: {shown.fault}"
    for value, right, bound in shown.wrong[:1]:
        within = f", within {bound:.1g}," if bound else ""
        which = "A" if shown.segment_ids else "The"
        return f"{head} {which} sum came out as {value}; {right}{within} is right."
    if shown.segment_ids:
        how = "right within the rounding of floats" if any(shown.bound) else "exactly right"
        return f"{head} The sums of {counted(len(shown.value), 'segment')} are {how}."
    how = "exactly right"
    if shown.bound:
        how = (
            f"right within the rounding of floats: at most {shown.bound:.1g} from {shown.expected}"
        )
    return f"{head} The sum is {shown.value}, {how}."


def sentence(shown: ReplayData, step: Step) -> str:
    """One step in words."""
    blocks, threads = shown.launches[step.launch]
    warp = f" of warp {step.warp}" if threads > 32 else ""
    block = f" of block {step.block}" if blocks > 1 else ""
    s, es, their = ("s", "es", "its") if len(step.lanes) == 1 else ("", "", "their")
    does = {
        "load": f"read{s}", "store": f"write{s}", "atomic": f"update{s}",
        "copy": f"start{s} a copy of {step.bytes:,} bytes to", "end": f"end{s}",
        "fence": f"wait{s} until {their} stores are seen by others",
        "__reduce_add_sync": f"add{s} up a value of each by {step.kind}()",
        **dict.fromkeys((*BARRIERS, "__syncwarp"), f"pass{es} {step.kind}()"),
    }.get(step.kind, f"exchange{s} values by {step.kind}()")  # fmt: skip
    where = _where(shown, step) if step.offsets else _received(step)
    text = f"{_lanes(step.lanes)}{warp}{block} {does}{where}{_cost(step)}."
    return f"Line {step.line}: {text}" if step.line else text[0].upper() + text[1:]


def _received(step: Step) -> str:
    """Who gets whose value in a shuffle."""
    if step.kind == "__ballot_sync":
        holds = [*ones(step.results[0])]
        return f": the condition holds for {_lanes(holds) if holds else 'no lane'}"
    pairs = [*zip(step.lanes, step.sources, strict=False)]
    got = [(lane, source) for lane, source in pairs if lane != source and source in step.lanes]
    absent = [(lane, source) for lane, source in pairs if source not in step.lanes]
    masks, senders = {lane ^ source for lane, source in got}, {source for _, source in got}
    text = ""
    if len(senders) == 1 or len({lane - source for lane, source in got}) == 1:
        lanes, sources = map(_lanes, zip(*got, strict=True))
        get, value = "get" + "s" * (len(got) == 1), "value" + "s" * (len(senders) > 1)
        text = f": {lanes} {get} the {value} of {sources}"
    elif len(masks) == 1:
        text = f": lane i gets the value of lane i ^ {masks.pop()}"
    elif got:
        some = ", ".join(f"lane {lane} gets that of lane {source}" for lane, source in got[:3])
        text = f": {some} and so on"
    if absent:
        lanes, sources = map(_lanes, zip(*absent, strict=True))
        read, take = ("reads", "takes") if len(absent) == 1 else ("read", "take")
        text += f"; {lanes} {read} {sources}, which {take} no part: CUDA leaves the value undefined"
    return text


def _lanes(lanes: Iterable[int], noun: str = "lane") -> str:
    found = sorted({*lanes})
    if len(found) > 2:
        return f"{noun}s {ranges(found, ' to ', math.inf)}"
    return f"{plural(len(found), noun)} {' and '.join(map(str, found))}"


def _where(shown: ReplayData, step: Step) -> str:
    array = shown.arrays[step.array or 0]
    each = max(step.bytes // array.element, 1) if step.kind != "copy" else 1
    numbers = [offset // array.element for offset in step.offsets]
    distinct = sorted({number + i for number in numbers for i in range(each)})
    far = f" of {_lanes(step.owner, 'block')}" if step.owner else ""
    return f" {array.name}[{ranges(distinct, '..', math.inf)}]{far}"


def _cost(step: Step) -> str:
    """What the access costs, if that is counted."""
    counts, late = step.counts, "; with the lanes before" if step.is_late else ""
    if waves := counts.get(f"shared_{step.kind}_wavefronts", 0):
        least = waves - counts.get(f"shared_{step.kind}_conflicts", 0)
        conflict = f", {waves} wavefronts where {least} would do" if waves > least else ""
        return f"{late}{conflict or ', no conflict'}"
    if sectors := counts.get(f"global_{step.kind}_sectors", 0):
        share = counts.get(f"global_{step.kind}_bytes_used", 0) / (32 * sectors)
        used = "all used" if share == 1 else f"{share:.0%} of them used"
        return f"{late}, {counted(sectors, 'sector')} of 32 bytes, {used}"
    most = max(Counter(step.offsets).values()) if step.kind == "atomic" else 0
    if most > 1:
        some = f", up to {most} lanes at one address" if most < len(step.lanes) else ""
        return f"{some}, one after another"
    return ""
