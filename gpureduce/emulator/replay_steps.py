"""The steps of a replay, as plain data: recorded on the traced emulator, and read from there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, TypeVar

import numpy as np

from gpureduce import _emulator_traced as traced
from gpureduce.core import dtypes, exact, registry, running_on_device
from gpureduce.core.plan import Plan
from gpureduce.core.schedule import Schedule
from gpureduce.emulator.counts import NAMES
from gpureduce.errors import CudaError

MOST_STEPS = traced.recorder_limits()[2]
MOST_N = 2**14
BARRIERS = ("__syncthreads", "cluster.sync", "grid.sync")
ACCESSES = ("load", "store", "atomic")
_KINDS = {"read": "load", "write": "store", "update": "atomic", "atomic": "atomic"}
_FAULT = re.compile(
    r"line (\d+): thread (\d+)(?: of block (\d+))? (?:(read|write|update)s (\w+)\[(-?\d+)\])?"
)
_GAP = 2**32  # bytes, between arrays in global memory

_Array = np.ndarray[Any, np.dtype[Any]]
_LANE = [
    ("address", "u8"), ("offset", "i8"), ("value", "u8", 2), ("result", "u8"),
    ("array", "u4"), ("owner", "u4"),
]  # fmt: skip
_HEAD = ("launch", "block", "warp", "kind", "mask", "bytes", "place")
_STEP = np.dtype(
    [*((name, "u4") for name in _HEAD), ("counts", "u4", len(NAMES)), ("lane", _LANE, 32)],
    align=True,
)


@dataclass(frozen=True)
class Recording:
    """One run of a kernel on the traced emulator, as the C side gives it: see steps.h.

    `fault` is empty if no launch failed. `bits` is the accumulator. `table` has a step more than
    MOST_STEPS if the kernel makes more.
    """

    bits: bytes
    fault: str
    table: _Array
    kinds: list[str]
    places: list[tuple[str | None, int]]
    arrays: list[tuple[str | None, int, int, int, int, int, int]]
    launches: list[tuple[int, int]]


@dataclass(frozen=True)
class Memory:
    """An array that a kernel accesses, in global or in shared memory.

    `base` tells arrays of global memory apart, and is no address: two names of one array in two
    launches have the same one. `dtype` is that of an element.
    """

    name: str
    space: str
    launch: int
    base: int
    count: int
    dtype: str

    @cached_property
    def element(self) -> int:
        """The bytes of an element."""
        return dtypes.named(self.dtype).itemsize


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


BEFORE, CONSTANT = "what was in memory before", "a constant"


@dataclass(frozen=True)
class Parts:
    """The elements of a sum, as bits: all of them, and those that are in it twice or more.

    `foreign` tells what else is in it. `total`, `size` and `terms` are the sum of the elements, of
    their magnitudes, and their number, with repetitions.
    """

    once: int = 0
    twice: int = 0
    foreign: str = ""
    total: float = field(default=0, compare=False)
    size: float = field(default=0, compare=False)
    terms: int = field(default=0, compare=False)

    def __add__(self, other: Parts) -> Parts:
        return Parts(
            self.once | other.once, self.twice | other.twice | (self.once & other.once),
            self.foreign or other.foreign, self.total + other.total, self.size + other.size,
            self.terms + other.terms,
        )  # fmt: skip

    def is_sum(self, number: Any, dtype: np.dtype[Any]) -> bool:
        """Whether a number is the sum: modulo its width, or within the error bound of floats."""
        if dtype.kind in "iub":
            return bool((number - self.total) % 2 ** (8 * dtype.itemsize) == 0)
        bound = self.terms * 2.0 ** (1 - precision(dtype)) * self.size
        is_same = number == self.total or (number != number and self.total != self.total)
        return is_same or abs(number - self.total) <= bound

    def __hash__(self) -> int:
        """Python's hash of integers has few values for powers of two."""
        return hash((self.once.bit_length(), self.once % 1000003, self.twice % 1000003))

    def __len__(self) -> int:
        return self.once.bit_count()

    def runs(self) -> list[tuple[int, int, int]]:
        """The elements as (first, step, count)."""
        return _runs(self.once)

    def repeated(self) -> list[tuple[int, int, int]]:
        """The elements that are in the sum more than once."""
        return _runs(self.twice)


NOTHING = Parts()


@lru_cache
def precision(dtype: np.dtype[Any]) -> int:
    """Integers up to 2 to this power are exact."""
    return exact.FORMATS.get(dtype.name, (8 * dtype.itemsize - (dtype.kind == "i"), 0))[0]


def _runs(bits: int) -> list[tuple[int, int, int]]:
    digits = np.frombuffer(bits.to_bytes(bits.bit_length() // 8 + 1, "little"), np.uint8)
    places = np.flatnonzero(np.unpackbits(digits, bitorder="little")).tolist()
    runs: list[tuple[int, int, int]] = []
    at, count = 0, len(places)
    while at < count:
        step = places[at + 1] - places[at] if at + 1 < count else 1
        end = at + 1
        while end < count and places[end] - places[end - 1] == step:
            end += 1
        if end - at == 2 and step > 1:  # the second may begin a longer run
            step, end = 1, at + 1
        runs.append((places[at], step, end - at))
        at = end
    return runs


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
    bound: float
    fault: str
    elements: tuple[Any, ...]
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
        if self.fault:
            return False
        value, expected = self.value, self.expected
        is_same = value == expected or (value != value and expected != expected)
        return bool(is_same or (self.bound and abs(float(value) - float(expected)) <= self.bound))


Shown = TypeVar("Shown", bound=ReplayData)


def accesses(
    shown: ReplayData, block: int, thread: int, line: int, address: str, kind: str = ""
) -> Iterator[int]:
    """The steps in which a thread accesses an element, such as ``"shared[12]"``."""
    warp, lane = divmod(thread, 32)
    for number, step in enumerate(shown.steps):
        is_own = (step.block, step.warp, step.line) == (block, warp, line)
        is_own = is_own and _KINDS.get(kind, step.kind) == step.kind
        if is_own and lane in step.lanes and step.offsets:
            array = shown.arrays[step.array or 0]
            index = step.offsets[step.lanes.index(lane)] // array.element
            if address == (array.name if array.count == 1 else f"{array.name}[{index}]"):
                yield number


def at_fault(shown: Shown, file: str) -> Shown:
    """The replay that ends at the failing step, and opens there.

    The emulator checks an index of a static array before the access: that one is added here. A
    fault before all accesses is shown as the end of its lane.
    """
    found = _FAULT.match(shown.fault)
    last = max((i for i, step in enumerate(shown.steps) if step.kind != "end"), default=-1)
    shown = replace(shown, steps=shown.steps[: last + 1], start=last)
    if not found:
        return shown
    *places, verb, name, index = found.groups()
    line, thread, block = (int(place or 0) for place in places)
    known = [*accesses(shown, block, thread, line, f"{name}[{index}]")]
    shared = [i for i, one in enumerate(shown.arrays) if (one.name, one.space) == (name, "shared")]
    if known or (shown.steps and not shared):
        return replace(shown, start=max(known, default=last))
    step = Step(len(shown.launches) - 1, block, thread // 32, "end", file, line, (thread % 32,))
    if shared:
        size = shown.arrays[shared[-1]].element
        step = replace(
            step, kind=_KINDS[verb], array=shared[-1], offsets=(int(index) * size,), bytes=size,
            values=("?",), parts=(None,),
        )  # fmt: skip
    return replace(shown, steps=(*shown.steps, step), start=last + 1)


def record(
    strategy: registry.Strategy, array: _Array, wanted: Any, block: int, grid: int,
    schedule: Schedule,
) -> Recording:  # fmt: skip
    """Runs a sum once and keeps its steps."""
    finish = strategy.finishes[0] if len(strategy.finishes) == 1 else None
    plan = Plan(
        strategy, dtypes.convert_for(array.dtype, wanted, strategy.pair), block, grid, finish
    )
    kept: list[Any] = []
    bits, fault = b"", ""
    traced.free_scratch()  # another run may have left a ticket drawn
    try:
        bits = running_on_device.last_sum(traced, "replay", plan, array, schedule, kept)
    except CudaError as error:
        fault = str(error)
    except MemoryError:
        if not kept or len(kept[0][0]) <= MOST_STEPS * _STEP.itemsize:
            raise
    finally:
        traced.free_scratch()
    steps, kinds, places, arrays, launches = kept[0]
    table, pairs = np.frombuffer(steps, _STEP), np.frombuffer(launches, "u4").reshape(-1, 2)
    return Recording(bits, fault, table, kinds, places, arrays, [(a, b) for a, b in pairs.tolist()])


def read(
    run: Recording, elements: np.dtype[Any], sums: np.dtype[Any], input_name: str
) -> tuple[list[Step], list[Memory]]:
    """The steps of a run, without what the values contain, and the arrays that it accesses."""
    by_row = _memories(run, elements, sums, input_name)
    arrays, index = [*by_row.values()], {row: i for i, row in enumerate(by_row)}
    table, found = run.table, []
    heads = (table[name].tolist() for name in _HEAD)
    for i, (launch, block, warp, kind_number, mask, size, at) in enumerate(
        zip(*heads, strict=True)
    ):
        kind, lanes = run.kinds[kind_number], _lanes(mask)
        file, line = run.places[at]
        mine, counts = table["lane"][i, list(lanes)], table["counts"][i]
        more: dict[str, Any] = {}
        array: Memory | None = None
        if lanes and kind in (*ACCESSES, "copy"):
            rows, owner = mine["array"].tolist(), tuple(mine["owner"].tolist())
            array = by_row[rows[0]]
            offsets = zip(mine["offset"].tolist(), rows, strict=True)
            more = {
                "array": index[rows[0]], "bytes": size,
                "offsets": tuple([at + by_row[row].base - array.base for at, row in offsets]),
                "owner": owner if array.space == "shared" and set(owner) != {block} else (),
            }  # fmt: skip
        is_collective = kind.startswith("__") and kind not in (*BARRIERS, "__syncwarp")
        if kind in ACCESSES or is_collective:
            dtype = _dtype_of(kind, size, array, sums.name)
            size = size or dtypes.named(dtype).itemsize
            more["values"] = _numbers(mine["value"], size, dtype)
            if kind not in ("load", "store"):
                more["results"] = _numbers(mine["result"], size, dtype)
            if kind.startswith("__shfl"):
                more["sources"] = tuple(mine["value"][:, 1].tolist())
        elif kind == "copy":
            offset, row = mine["value"][0].tolist()
            more["sources"] = offset, index[row]
        counted = {NAMES[c]: int(counts[c]) for c in np.flatnonzero(counts)}
        found.append(
            Step(launch, block, warp, kind, file or "", line, lanes, counts=counted, **more)
        )
    return found, arrays


def _memories(
    run: Recording, elements: np.dtype[Any], sums: np.dtype[Any], input_name: str
) -> dict[int, Memory]:
    """The arrays by row of the recording, with bases that are the same in each run."""
    used = {*np.unique(run.table["lane"]["array"]).tolist()}
    found: dict[int, Memory] = {}
    seen: dict[int, int] = {}
    for row, (name, launch, is_shared, base, size, address, element) in enumerate(run.arrays):
        if is_shared and row not in used and f" {name}[" not in run.fault:
            continue
        own = elements if name == input_name and launch == 0 else sums
        # also vectors and structures of sums, and a sum with its mark
        is_own = element % own.itemsize == 0 and name != "ticket"
        kind = own.name if is_own else _bits_of(element)
        if not is_shared:  # `address`: of the allocation
            base += seen.setdefault(address, len(seen)) * _GAP + _GAP // 2 - address
        count = max(size // dtypes.named(kind).itemsize, 1)
        space = "shared" if is_shared else "global"
        found[row] = Memory(name or "shared", space, launch, base, count, kind)
    return found


@lru_cache(1024)
def _lanes(mask: int) -> tuple[int, ...]:
    return tuple(lane for lane in range(32) if mask >> lane & 1)


def _dtype_of(kind: str, size: int, array: Memory | None, sums: str) -> str:
    """The dtype of a step's values: that of the array, unless the access has another size."""
    if array is None:
        return "uint32" if kind in ("__ballot_sync", "__match_any_sync") else sums
    return array.dtype if size % array.element == 0 else _bits_of(size)


def _bits_of(size: int) -> str:
    return f"uint{8 * size}" if size in (1, 2, 4, 8) else "uint8"


def _numbers(raw: _Array, size: int, dtype: str) -> tuple[Any, ...]:
    """By lane: a number, or a tuple of several."""
    used = np.ascontiguousarray(raw).view(np.uint8).reshape(len(raw), -1)[:, :size]
    rows = np.ascontiguousarray(used).view(dtypes.named(dtype)).tolist()
    return tuple([row[0] if len(row) == 1 else tuple(row) for row in rows])
