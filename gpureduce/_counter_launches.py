"""What ncu counted, as records keep it: enough to judge it again without the card.

Of the machine code only what counters or reasons are about, and what a warp came by.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import astuple, replace
from typing import Any

from gpureduce._counter_rows import place_of
from gpureduce._hardware_counters import BESIDE, METRICS, Case, Instruction, Seen

_TOLD = re.compile(r"LD(?!C)|ST|ATOM|RED|CREDUX|BAR\.|UCGABAR|WARPSYNC|NOP|SHFL|VOTE|MEMBAR|FENCE")


def in_short(seen: Seen) -> Seen:
    """The launch with that part of its machine code."""
    told = [one for one in seen.code if one.issued and _TOLD.match(one.opcode)]
    return replace(seen, code=[replace(one, text=one.text.strip()) for one in told])


def as_values(launches: Sequence[Seen]) -> dict[str, Any]:
    """Launches as plain values: instructions are listed once, and counted launch by launch."""
    names = [*METRICS, *BESIDE]
    listed: dict[tuple[str, str], int] = {}
    rows = []
    for seen in launches:
        code = []
        for one in seen.code:
            key = (one.place.key if one.place else "", one.text)
            code.append(
                [listed.setdefault(key, len(listed)), one.issued, one.lanes, one.wavefronts]
            )
        rows.append([*astuple(seen.case), [seen.counters[name] for name in names], code])
    return {"counters": names, "instructions": [list(key) for key in listed], "launches": rows}


def of_values(values: dict[str, Any], sources: dict[str, str]) -> tuple[Seen, ...]:
    """The launches again."""

    def code_of(rows: Iterable[Sequence[int]]) -> list[Instruction]:
        listed = values["instructions"]
        return [
            Instruction(listed[at][1], issued, lanes, wavefronts, place_of(listed[at][0], sources))
            for at, issued, lanes, wavefronts in rows
        ]

    return tuple(
        Seen(Case(*case), dict(zip(values["counters"], counts, strict=True)), code_of(code))
        for *case, counts, code in values["launches"]
    )
