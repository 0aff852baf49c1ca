"""The steps of a replay: recorded on the traced emulator, and read from there."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from gpureduce import _emulator_traced as traced
from gpureduce.core import dtypes, registry, running_on_device
from gpureduce.core.dtypes import Array
from gpureduce.core.groups import Segments
from gpureduce.core.plan import Plan, launch_of
from gpureduce.core.schedule import Schedule
from gpureduce.emulator.counts import NAMES
from gpureduce.emulator.provenance import BEFORE, Parts, Tracer
from gpureduce.text import ones

MOST_STEPS = traced.recorder_limits()[2]
MOST_N = 2**14
BARRIERS = ("__syncthreads", "cluster.sync", "grid.sync")
ACCESSES = ("load", "store", "atomic")
KINDS = {"read": "load", "write": "store", "update": "atomic", "atomic": "atomic"}
_FAULT = re.compile(
    r"line (\d+): thread (\d+)(?: of block (\d+))? (?:(read|write|update)s (\w+)\[(-?\d+)\])?"
)
FIXED = "fixed"  # integers of 64 bits, in units of 2^-32
TYPES = {"ticket": "uint32"}  # of arrays that do not hold sums, by name
KEY_TYPES = {"key": "uint32", "word": FIXED}
_GAP = 2**32  # bytes, between arrays in global memory

_DType = np.dtype[Any]
_Access = tuple[int, int, int, str, str]  # block, thread, line, kind, element as in "shared[12]"
_LANE = [
    ("address", "u8"), ("offset", "i8"), ("value", "u8", 2), ("result", "u8"),
    ("array", "u4"), ("owner", "u4"),
]  # fmt: skip
_HEAD = ["launch", "block", "warp", "kind", "mask", "bytes", "place"]
_STEP = np.dtype([
    *((name, "u4") for name in _HEAD), ("counts", "u4", len(NAMES)), ("line", "i4"),
    ("names", "u8", 2), ("lane", _LANE, 32),
], align=True)  # fmt: skip


class Recording(NamedTuple):
    """One run of a kernel on the traced emulator, as the C side gives it: see steps.h."""

    bits: bytes  # the accumulator
    fault: str  # empty if no launch failed
    table: Array  # the steps
    places: list[tuple[str, str | None, int]]  # the kind of each step, its file and line
    arrays: list[tuple[str | None, int, int, int, int, int, int]]
    launches: list[tuple[int, int]]


@dataclass(frozen=True)
class Memory:
    """An array that a kernel accesses, in global or in shared memory.

    `base` tells arrays of global memory apart, and is no address: two names of one array in two
    launches have the same one. `dtype` is that of an element, and `element` its bytes.
    """

    name: str
    space: str
    launch: int
    base: int
    count: int
    dtype: str
    element: int


@dataclass(frozen=True)
class Step:
    """What a warp does at once: an access to memory, a collective, a barrier, or the end of lanes.

    Its attributes are the fields of a step in the JSON, which docs/replay.md describes. Empty: not
    for this kind of step. A None in `parts` or `result_parts`: these elements are not known.
    """

    launch: int
    block: int
    warp: int
    kind: str
    file: str
    line: int
    lanes: tuple[int, ...]
    array: int | None = None
    offsets: tuple[int, ...] = ()
    bytes: int = 0
    owner: tuple[int, ...] = ()
    values: tuple[Any, ...] = ()
    results: tuple[Any, ...] = ()
    sources: tuple[int, ...] = ()
    parts: tuple[int | None, ...] = ()
    result_parts: tuple[int | None, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def is_late(self) -> bool:
        """Whether its counts are of an instruction to which other lanes have come before."""
        lanes = sum(count for name, count in self.counts.items() if name.endswith("_lanes"))
        return lanes > len(self.lanes)


@dataclass(frozen=True)
class ReplayData:
    """One run of a kernel, step by step, as data: the base of `Replay`."""

    strategy: str
    n: int
    dtype: str
    block: int
    schedule: str
    value: Any
    expected: Any
    bound: Any  # a float
    fault: str
    elements: tuple[Any, ...]
    segment_ids: tuple[int, ...]
    launches: tuple[tuple[int, int], ...]
    arrays: tuple[Memory, ...]
    steps: tuple[Step, ...]
    parts: tuple[Parts, ...]
    unknown: int | None
    texts: dict[str, tuple[str, ...]]
    start: int = 0
    marks: tuple[int, int] | None = None
    race: str = ""

    @property
    def counters(self) -> dict[str, int]:
        """The counters of `explain`, over all launches."""
        return {name: sum(step.counts.get(name, 0) for step in self.steps) for name in NAMES}

    @property
    def is_right(self) -> bool:
        """Whether the right sum came out: exactly, or within the bound of rounding. nan is nan."""
        return not self.fault and not self.wrong

    @property
    def wrong(self) -> list[tuple[Any, Any, float]]:
        """The sums that are wrong: the value, the right one, and the bound."""
        each = self.value, self.expected, self.bound
        every = [*zip(*each, strict=True)] if self.segment_ids else [each]
        return [
            (value, right, bound) for value, right, bound in every
            if value != right and (value == value or right == right)
            and not (bound and abs(float(value) - float(right)) <= bound)
        ]  # fmt: skip


def accesses(steps: Sequence[Step], arrays: Sequence[Memory]) -> defaultdict[_Access, list[int]]:
    """The steps by block, thread, line, kind, and the element that the thread accesses."""
    found = defaultdict[_Access, list[int]](list)
    for number, step in enumerate(steps):
        for lane, offset in zip(step.lanes, step.offsets, strict=False):
            array, thread = arrays[step.array or 0], 32 * step.warp + lane
            element = f"{array.name}[{offset // array.element}]" if array.count > 1 else array.name
            found[step.block, thread, step.line, step.kind, element].append(number)
    return found


def end_at_fault(steps: list[Step], arrays: Sequence[Memory], fault: str, file: str) -> int:
    """Removes the steps behind the failing one, and returns its number.

    The emulator checks an index of a static array before the access: that one is added here. A
    fault before all accesses is shown as the end of its lane.
    """
    while steps and steps[-1].kind == "end":
        steps.pop()
    if found := _FAULT.match(fault):
        *places, verb, name, index = found.groups()
        line, thread, block = (int(place or 0) for place in places)
        access = block, thread, line, KINDS.get(verb, ""), f"{name}[{index}]"
        if known := accesses(steps, arrays)[access]:
            return known[-1]
        own = [i for i, one in enumerate(arrays) if (one.name, one.space) == (name, "shared")]
        kind, more = "end", dict[str, Any]()
        if own:
            kind, size = KINDS[verb], arrays[own[-1]].element
            more = {"array": own[-1], "offsets": (int(index) * size,), "bytes": size,
                    "values": ("?",), "parts": (None,)}  # fmt: skip
        if own or not steps:
            steps.append(Step(0, block, thread // 32, kind, file, line, (thread % 32,), **more))
    return len(steps) - 1


def record(
    strategy: registry.Strategy, arrays: Sequence[Array], wanted: Any, block: int, grid: int | None,
    schedule: Schedule, segments: Segments | None = None,
) -> Iterator[Recording]:  # fmt: skip
    """Runs a sum of each array and keeps its steps."""
    conversion = dtypes.convert_for(arrays[0].dtype, wanted, strategy.pair)
    plan = Plan(strategy, conversion, *launch_of(strategy, block, grid, None))
    for array in arrays:
        kept = list[Any]()
        bits, fault = running_on_device.last_sum(
            traced, "replay", plan, array, schedule, kept, segments
        )
        steps, places, memory, launches = kept[0]
        table, sizes = np.frombuffer(steps, _STEP), np.frombuffer(launches, "u4, u4").tolist()
        if len(table) > MOST_STEPS:
            n = len(array)
            raise ValueError(
                f"{strategy.name} takes more than {MOST_STEPS:,} steps for n={n:,} with blocks of "
                f"{block}, or never ends: use fewer blocks{f', or n={n // 8:,}' * (n > 7)}"
            )
        yield Recording(bits, fault, table, places, memory, sizes)


def read(
    runs: Sequence[Recording], elements: Sequence[Array], sums: _DType, types: Mapping[str, str]
) -> tuple[list[Step], list[Memory], list[Parts], int | None]:
    """The steps of the first run, the arrays, and the sets of elements that values contain.

    The sets come from the other runs, which have other elements, up to the first step that differs.
    The last result is the first step that passes on a value whose elements are not known. `types`
    are those of arrays of the first launch that do not hold sums.
    """
    shown, tracer, alike = runs[0], Tracer(elements), _alike([run.table for run in runs])
    arrays, steps = _memories(shown, sums, types), []
    masks = ["__ballot_sync", "__match_any_sync", *["__shfl_sync"] * ("key" in types)]  # and keys
    for i, (launch, block, warp, _, mask, size, _) in enumerate(shown.table[_HEAD].tolist()):
        lanes, (kind, file, line) = tuple(ones(mask)), shown.places[i]
        tables = [run.table["lane"] for run in (runs if i < alike else runs[:1])]
        every = np.stack([table[i, list(lanes)] for table in tables])
        mine, array, more = every[0], None, dict[str, Any]()
        if kind in (*ACCESSES, "copy"):
            rows, owner = mine["array"].tolist(), tuple(mine["owner"].tolist())
            array = arrays[rows[0]]
            offsets = zip(mine["offset"].tolist(), rows, strict=True)
            more = {
                "array": rows[0], "bytes": size,
                "offsets": tuple([at + arrays[row].base - array.base for at, row in offsets]),
                "owner": owner if array.space == "shared" and set(owner) != {block} else (),
            }  # fmt: skip
        if kind in ACCESSES or (kind.startswith("__") and kind not in (*BARRIERS, "__syncwarp")):
            dtype = np.dtype("u4") if kind in masks else sums
            if array:  # its dtype, unless the access has another size
                dtype = _dtype(array.dtype) if size % array.element == 0 else _bits_of(size)
            values, results = (_words(every[name], size, dtype) for name in ("value", "result"))
            if array and array.dtype == FIXED:
                values, results = values * 2.0**-32, results * 2.0**-32
            more["values"] = _by_lane(values[0])
            if kind not in ("load", "store"):
                more["results"] = _by_lane(results[0])
            if kind.startswith("__shfl"):
                more["sources"] = tuple(mine["value"][:, 1].tolist())
            if i < alike:
                threads = [(launch, block, warp, lane) for lane in lanes]
                is_key = array is not None and array.name == "key" and "key" in types
                what = "a segment id" if is_key else BEFORE
                more |= tracer.follow(kind, threads, values, results, what)
        elif kind == "copy":
            more["sources"] = tuple(mine["value"][0].tolist())
        counts = zip(NAMES, shown.table["counts"][i].tolist(), strict=True)
        more["counts"] = {name: count for name, count in counts if count}
        steps.append(Step(launch, block, warp, kind, file or "", line, lanes, **more))
    passed = [one.result_parts if one.kind == "atomic" else one.parts for one in steps]
    unknown = (i for i, one in enumerate(steps)
               if i >= alike or (one.kind != "load" and None in passed[i]))  # fmt: skip
    return steps, arrays, [*tracer.parts], next(unknown, None)


def _alike(tables: Sequence[Array]) -> int:
    """How many steps of all runs are the same, but for the values; 0 if there is one run only."""
    rows = [np.column_stack([*(t[name] for name in _HEAD), t["lane"]["offset"]]) for t in tables]
    n = min(map(len, rows))
    same = [(one[:n] == rows[0][:n]).all(axis=1) for one in rows[1:]]
    return int(np.argmin(np.append(np.all(same, axis=0), False))) if same else 0


def _memories(run: Recording, sums: _DType, types: Mapping[str, str]) -> list[Memory]:
    """The arrays, with bases that are the same in each run."""
    found, seen = list[Memory](), dict[int, int]()
    for name, launch, is_shared, base, size, address, element in run.arrays:
        own = types.get(name or "", sums.name) if launch == 0 else sums.name
        dtype = _dtype(own)
        if element % dtype.itemsize:  # else also vectors and structures, and a sum with its mark
            dtype = _bits_of(element)
            own = dtype.name
        if not is_shared:  # `address`: of the allocation
            base += seen.setdefault(address, len(seen)) * _GAP + _GAP // 2 - address
        space, count = "shared" if is_shared else "global", max(size // dtype.itemsize, 1)
        found.append(Memory(name or "shared", space, launch, base, count, own, dtype.itemsize))
    return found


def _dtype(name: str) -> _DType:
    return np.dtype("i8") if name == FIXED else dtypes.named(name)


def _bits_of(size: int) -> _DType:
    return np.dtype(f"u{size}" if size in (1, 2, 4, 8) else "u1")


def _words(raw: Array, size: int, dtype: _DType) -> Array:
    """The numbers in the first bytes of each lane's value, by run, lane and word."""
    whole = np.ascontiguousarray(raw).view(np.uint8).reshape(*raw.shape[:2], -1)
    return np.ascontiguousarray(whole[..., : size or dtype.itemsize]).view(dtype)


def _by_lane(numbers: Array) -> tuple[Any, ...]:
    """For each lane a number, or a tuple of several."""
    return tuple([row[0] if len(row) == 1 else tuple(row) for row in numbers.tolist()])
