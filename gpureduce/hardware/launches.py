"""The counters from ncu as records store them: enough to compare them again without the GPU.

Of the machine code, only issued instructions that counters or `reasons` use are kept.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import astuple, replace
from typing import Any, TypedDict

from gpureduce.core import json_files
from gpureduce.core.sources import Place
from gpureduce.hardware.counters import BESIDE, IN_ALL, METRICS, Case, Instruction, Seen
from gpureduce.hardware.rows import place_of

_COUNTED = re.compile(
    r"LD(?!C)|ST|ATOM|RED|CREDUX|BAR\.|UCGABAR|WARPSYNC|NOP|SHFL|VOTE|MEMBAR|FENCE"
)


def in_short(seen: Seen) -> Seen:
    """The launch with only the instructions that records keep."""
    counted = [one for one in seen.code if one.issued and _COUNTED.match(one.opcode)]
    return replace(seen, code=[replace(one, text=one.text.strip()) for one in counted])


def as_values(launches: Sequence[Seen]) -> dict[str, Any]:
    """Launches as plain values. Each instruction is listed once, with counts for each launch."""
    known = IN_ALL if all(name in one.counters for one in launches for name in IN_ALL) else ()
    names = [*METRICS, *BESIDE, *known]
    listed: dict[tuple[str, str], int] = {}
    rows = []
    for seen in launches:
        code = []
        for one in seen.code:
            key = (one.place.key if one.place else "", one.text)
            code.append(
                [listed.setdefault(key, len(listed)), one.issued, one.lanes, one.wavefronts]
            )
        *case, matrix_rows = astuple(seen.case)
        counts = [seen.counters[name] for name in names]
        rows.append([*case, counts, code, *([matrix_rows] if matrix_rows else [])])
    return {"counters": names, "instructions": [list(key) for key in listed], "launches": rows}


class Values(TypedDict):
    """The output of `as_values`."""

    counters: list[str]
    instructions: list[list[str]]
    launches: list[list[Any]]


_LAUNCH = ("strategy", "n", "block", "grid", "counters", "code", "rows")
_COUNTS = ("instruction", "issued", "lanes", "wavefronts")


def of_values(values: Values, sources: dict[str, str]) -> tuple[Seen, ...]:
    """The inverse of `as_values`. Raises ValueError for a wrong field."""
    if lacking := {*METRICS, *BESIDE}.difference(values["counters"]):
        raise ValueError(f"seen.counters lacks {', '.join(sorted(lacking))}")
    listed = []
    for i, pair in enumerate(values["instructions"]):
        if len(pair) != 2 or not pair[1].strip():
            raise ValueError(f"seen.instructions[{i}] must be a place and an instruction")
        listed.append((place_of(pair[0], sources), pair[1]))
    return tuple(
        _launch_of(launch, values["counters"], listed, f"seen.launches[{i}]")
        for i, launch in enumerate(values["launches"])
    )


def _launch_of(
    launch: Any, counters: Sequence[str], listed: Sequence[tuple[Place | None, str]], name: str
) -> Seen:
    fields = json_files.row_with_optional(_LAUNCH, launch, name)
    counts = json_files.row(counters, fields.pop("counters"), f"{name}.counters")
    code = []
    for i, one in enumerate(json_files.checked(fields.pop("code"), list[Any], f"{name}.code")):
        at = f"{name}.code[{i}]"
        row = json_files.checked(json_files.row(_COUNTS, one, at), dict[str, int], at)
        if not 0 <= row["instruction"] < len(listed):
            raise ValueError(f"{at}.instruction must be below {len(listed)}")
        place, text = listed[row.pop("instruction")]
        code.append(Instruction(text, place=place, **row))
    checked = json_files.checked(counts, dict[str, int], f"{name}.counters")
    return Seen(json_files.made(Case, fields, name), checked, code)
