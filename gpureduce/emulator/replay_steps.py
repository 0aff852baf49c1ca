"""The steps of a replay, as plain data: recorded on the traced emulator, and read from there."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from gpureduce import _emulator_traced as traced
from gpureduce.core import devices, dtypes, registry
from gpureduce.core.plan import Plan
from gpureduce.core.schedule import Schedule
from gpureduce.emulator.counts import NAMES
from gpureduce.errors import CudaError

MOST_STEPS = 2**14
MOST_N = 2**14
_GAP, _ALIGNMENT = 2**20, 256  # bytes, of arrays of global memory
KINDS: tuple[str, ...] = tuple(traced.step_names())
BARRIERS = ("__syncthreads", "cluster.sync", "grid.sync")
ACCESSES = ("load", "store", "atomic")

_Array = np.ndarray[Any, np.dtype[Any]]
_LANE = [
    ("address", "u8"), ("offset", "u8"), ("value", "u8", 2), ("result", "u8"),
    ("array", "u4"), ("owner", "u4"),
]  # fmt: skip
_ROOM = {"value": 16, "result": 8}  # bytes
_HEAD = ("launch", "block", "warp", "kind", "mask", "bytes", "place")
_STEP = np.dtype(
    [(name, "u4") for name in _HEAD]
    + [("counts", "u4", len(NAMES) + (len(NAMES) + 1) % 2), ("lane", _LANE, 32)]
)


@dataclass(frozen=True)
class Recording:
    """One run of a kernel on the traced emulator, as the C side gives it.

    `fault` says why a launch failed, and is empty if none did. `bits` is the accumulator. The steps
    are compressed: most lanes of a short step are zeros.
    """

    bits: bytes
    fault: str
    has_more: bool
    steps: bytes
    places: list[tuple[str | None, int]]
    arrays: list[tuple[str | None, bool, int, int, int, int]]
    launches: list[tuple[int, int]]

    def table(self) -> _Array:
        """The steps as a structured array."""
        return np.frombuffer(zlib.decompress(self.steps), _STEP)


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

    def is_input(self, name: str) -> bool:
        """Whether it has the elements; `name` is that of the parameter."""
        return self.name == name and self.launch == 0 and self.space == "global"


@dataclass(frozen=True)
class Step:
    """What a warp does at once: an access to memory, a collective, a barrier, or the end of lanes.

    Attributes
    ----------
    launch, block, warp
        Where: the launch, the block of its grid, the warp of the block, each from 0.
    kind
        ``"load"``, ``"store"``, ``"atomic"``, ``"fence"``, ``"copy"``, ``"end"``, or the name of a
        barrier or a collective, such as ``"__syncthreads"`` and ``"__shfl_down_sync"``.
    file, line
        Where the kernel's text has it; line 0 where that is not known.
    lanes
        The lanes that take part.
    array
        The number of the array in `Replay.arrays`; None unless the step accesses memory.
    offsets, bytes
        By lane: the place in the array, in bytes; and how many bytes each lane accesses.
    owner
        The block whose shared memory it is, by lane; empty for the step's own block.
    values, results
        By lane: what it loads, stores, or gives to a collective. What an atomic leaves in memory,
        or what a lane gets from a collective; else empty.
    sources
        The lane that each lane reads in a shuffle. Of a copy: the place in the source array, in
        bytes, and the number of that array.
    parts, result_parts
        By lane: the number in `Replay.parts` of the elements that the value and the result contain;
        None where that is not known. Empty for steps without sums.
    counts
        What the step adds to the counters of `explain`. Lanes may come to one instruction at
        different times, in several steps: the last one has the counts.
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


def precision(dtype: np.dtype[Any]) -> int:
    """Integers up to 2 to this power are exact."""
    if dtype.kind in "iu":
        return 8 * dtype.itemsize - (dtype.kind == "i")
    return {2: 11, 4: 24, 8: 53}[dtype.itemsize] if dtype.kind == "f" else 8  # bfloat16


def _runs(bits: int) -> list[tuple[int, int, int]]:
    places = np.flatnonzero(
        np.unpackbits(np.frombuffer(bits.to_bytes(bits.bit_length() // 8 + 1, "little"), np.uint8),
                      bitorder="little")
    ).tolist()  # fmt: skip
    runs: list[tuple[int, int, int]] = []
    while places:
        if len(places) == 1:
            return [*runs, (places[0], 1, 1)]
        step, count = places[1] - places[0], 2
        while count < len(places) and places[count] - places[count - 1] == step:
            count += 1
        if count == 2 and len(places) > 2 and step > 1:  # the second may begin a longer run
            count, step = 1, 1
        runs.append((places[0], step, count))
        places = places[count:]
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
        total = dict.fromkeys(NAMES, 0)
        for step in self.steps:
            for name, count in step.counts.items():
                total[name] += count
        return total

    @property
    def is_right(self) -> bool:
        """Whether the right sum came out: exactly, or within the bound of rounding. nan is nan."""
        if self.fault:
            return False
        value, expected = self.value, self.expected
        is_same = value == expected or (value != value and expected != expected)
        return bool(is_same or (self.bound and abs(float(value) - float(expected)) <= self.bound))


def record(
    strategy: registry.Strategy, array: _Array, wanted: Any, block: int, grid: int,
    schedule: Schedule,
) -> Recording:  # fmt: skip
    """Runs a sum once and keeps its steps."""
    finish = strategy.finishes[0] if len(strategy.finishes) == 1 else None
    plan = Plan(
        strategy, dtypes.convert_for(array.dtype, wanted, strategy.pair), block, grid, finish
    )
    launch = plan.launch(devices.choose_device("emulator"), schedule)
    kept: list[Any] = []
    bits, fault = b"", ""
    traced.free_scratch()  # another run may have left a ticket drawn
    try:
        bits = bytes(traced.replay_sum(array, launch, MOST_STEPS, kept)[0])
    except CudaError as error:
        fault = str(error)
    except MemoryError:
        if not (kept and kept[0][0]):
            raise
    finally:
        traced.free_scratch()
    has_more, table, *rest = kept[0]
    return Recording(bits, fault, has_more, zlib.compress(table, 1), *rest)


def _type_of(
    memory: tuple[Any, ...], types: tuple[np.dtype[Any], np.dtype[Any]], is_in: bool
) -> str:
    """The dtype of an array's elements: of the input, of the sums, or unsigned integers."""
    size = memory[5]
    own = types[0] if is_in else types[1]
    if size % own.itemsize == 0:  # also vectors, structures of sums, a sum and its mark
        return own.name
    return f"uint{8 * size}" if size in (1, 2, 4, 8) else "uint8"


def memories(
    run: Recording, types: tuple[np.dtype[Any], np.dtype[Any]], input_name: str
) -> list[Memory]:
    """The arrays of a run."""
    bases = _bases([(row[3], row[3] + max(row[4], 1)) for row in run.arrays if not row[1]])
    found = []
    for row in run.arrays:
        name, shared, launch, base, size, element = row
        is_in = name == input_name and launch == 0
        kind = "uint32" if element == 4 and name == "ticket" else _type_of(row, types, is_in)
        count = max(size // dtypes.named(kind).itemsize, 1)
        found.append(
            Memory(name or "memory", "shared" if shared else "global", launch,
                   base if shared else bases[base], count, kind)
        )  # fmt: skip
    return found


def _bases(ranges: list[tuple[int, int]]) -> dict[int, int]:
    """New places for ranges of addresses, which each run has elsewhere: in the given order, with
    gaps. Ranges that overlap still do.
    """
    groups: list[list[int]] = []
    for begin, end in sorted(ranges):
        if groups and begin < groups[-1][1]:
            groups[-1][1] = max(groups[-1][1], end)
        else:
            groups.append([begin, end])
    moved: dict[int, int] = {}
    bases, free = {}, 0
    for base, _ in ranges:
        begin, end = next(group for group in groups if group[0] <= base < group[1])
        if begin not in moved:
            moved[begin] = free + begin % _ALIGNMENT
            free += ((end - begin) // _GAP + 2) * _GAP
        bases[base] = moved[begin] + base - begin
    return bases


class Reader:
    """Reads values out of a run's steps, by the type of what a step accesses."""

    def __init__(self, run: Recording, arrays: list[Memory], sum_type: np.dtype[Any]) -> None:
        self.table = run.table()
        self.arrays = arrays
        self.sum_type = sum_type
        self.heads: dict[str, list[int]] = {name: self.table[name].tolist() for name in _HEAD}
        self.lanes = [_lanes(mask) for mask in self.heads["mask"]]
        self.kinds = [KINDS[kind] for kind in self.heads["kind"]]
        self._views: dict[tuple[str, str], _Array] = {}

    def array_of(self, step: int) -> int | None:
        """The array that a step accesses. If lanes access several: the one of the first lane."""
        if self.kinds[step] not in (*ACCESSES, "copy") or not self.lanes[step]:
            return None
        return int(self.table["lane"]["array"][step, self.lanes[step][0]])

    def _view(self, what: str, kind: str) -> _Array:
        if (what, kind) not in self._views:
            raw = np.ascontiguousarray(self.table["lane"][what])
            dtype = dtypes.named(kind)
            self._views[what, kind] = raw.view(np.uint8).reshape(len(raw), 32, -1).view(dtype)
        return self._views[what, kind]

    def elements(self, step: int, what: str) -> _Array:
        """What each of 32 lanes has as its value or result: an array of (lanes, elements)."""
        array, kind = self.array_of(step), self.sum_type.name
        size = self.heads["bytes"][step]
        if array is not None:
            kind = self.arrays[array].dtype
            if size % dtypes.named(kind).itemsize:
                kind = f"uint{8 * size}" if size in (1, 2, 4, 8) else "uint8"
        elif self.kinds[step] in ("__ballot_sync", "__match_any_sync"):
            kind = "uint32"
        count = max(min(size, _ROOM[what]) // dtypes.named(kind).itemsize, 1)
        return self._view(what, kind)[step, :, :count]

    def values(self, step: int, what: str) -> tuple[Any, ...]:
        """By lane that takes part: a number, or a tuple of several."""
        rows = self.elements(step, what).tolist()
        if len(rows[0]) == 1:
            return tuple([rows[lane][0] for lane in self.lanes[step]])
        return tuple([tuple(rows[lane]) for lane in self.lanes[step]])


def is_collective(kind: str) -> bool:
    """Whether lanes of a warp give each other values."""
    return kind.startswith("__") and kind not in (*BARRIERS, "__syncwarp")


@lru_cache(1024)
def _lanes(mask: int) -> tuple[int, ...]:
    return tuple(lane for lane in range(32) if mask >> lane & 1)


def steps(reader: Reader, places: list[tuple[str | None, int]]) -> Iterator[Step]:
    """The steps without what the values contain."""
    table, heads = reader.table, reader.heads
    counts = table["counts"][:, : len(NAMES)]
    offsets, owners = table["lane"]["offset"], table["lane"]["owner"]
    sources = table["lane"]["value"]
    for number, (kind, lanes) in enumerate(zip(reader.kinds, reader.lanes, strict=True)):
        array = reader.array_of(number)
        file, line = (None, 0) if kind == "end" else places[heads["place"][number]]
        block = heads["block"][number]
        more: dict[str, Any] = {}
        if array is not None:
            index = list(lanes)
            owner = tuple(owners[number, index].tolist())
            is_far = reader.arrays[array].space == "shared" and any(o != block for o in owner)
            more = {
                "array": array,
                "bytes": heads["bytes"][number],
                "offsets": tuple(offsets[number, index].tolist()),
                "owner": owner if is_far else (),
            }
        if kind in ACCESSES or is_collective(kind):
            more["values"] = reader.values(number, "value")
            if kind not in ("load", "store"):
                more["results"] = reader.values(number, "result")
            if kind.startswith("__shfl"):
                more["sources"] = tuple(sources[number, list(lanes), 1].tolist())
        elif kind == "copy":
            more["sources"] = tuple(sources[number, lanes[0]].tolist())
        (added,) = np.nonzero(counts[number])
        yield Step(
            heads["launch"][number], block, heads["warp"][number], kind, file or "", line, lanes,
            counts={NAMES[c]: int(counts[number, c]) for c in added}, **more,
        )  # fmt: skip
