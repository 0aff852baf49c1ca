"""Counts of kernels' operations, as plain data. Other modules turn them into text and pictures."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from gpureduce import _emulator_traced

COUNTERS = (
    "shared_load_instructions",
    "shared_load_wavefronts",
    "shared_load_conflicts",
    "shared_load_lanes",
    "shared_store_instructions",
    "shared_store_wavefronts",
    "shared_store_conflicts",
    "shared_store_lanes",
    "global_load_requests",
    "global_load_sectors",
    "global_load_bytes_used",
    "global_store_requests",
    "global_store_sectors",
    "block_barriers",
    "warp_barriers",
    "shuffles",
    "atomics",
    "fences",
)

NAMES: tuple[str, ...] = _emulator_traced.counter_names()
DETAILS = tuple(name for name in NAMES if name not in COUNTERS)

_SECTOR_BYTES = 32


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


@dataclass(frozen=True)
class Counted:
    """The counts of a launch, of a line of the source, or of a step.

    `counters` are integers for the whole grid. Instructions and requests are per warp, and count if
    at least one lane is active. Wavefronts are the passes that shared memory needs to serve them;
    conflicts are the wavefronts above the least possible number. Sectors have 32 bytes.
    `block_barriers` counts each barrier once per block, `atomics` counts each lane.
    `warp_barriers`, `shuffles` and `fences` are warp instructions. `details` has further counters.
    """

    counters: dict[str, int]
    details: dict[str, int] = field(repr=False)

    def _of(self, *names: str) -> int:
        return sum(self.counters.get(name, self.details.get(name, 0)) for name in names)

    @property
    def memory_instructions(self) -> int:
        """Warp instructions that access shared or global memory."""
        return self._of(
            "shared_load_instructions",
            "shared_store_instructions",
            "global_load_requests",
            "global_store_requests",
        )

    @property
    def active_lanes(self) -> float | None:
        """Mean active lanes, of 32, per memory instruction of a warp. Below 32: divergence."""
        lanes = ("shared_load_lanes", "shared_store_lanes", "global_load_lanes")
        return _share(self._of(*lanes, "global_store_lanes"), self.memory_instructions)

    @property
    def wavefronts(self) -> int:
        """Wavefronts of shared memory: the passes that its loads and stores take."""
        return self._of("shared_load_wavefronts", "shared_store_wavefronts")

    @property
    def conflicts(self) -> int:
        """Extra wavefronts of shared memory, caused by bank conflicts."""
        return self._of("shared_load_conflicts", "shared_store_conflicts")

    @property
    def conflicts_per_access(self) -> float | None:
        """Extra wavefronts per warp instruction on shared memory."""
        instructions = ("shared_load_instructions", "shared_store_instructions")
        return _share(self.conflicts, self._of(*instructions))

    @property
    def sectors(self) -> int:
        """Sectors of global memory that loads and stores access."""
        return self._of("global_load_sectors", "global_store_sectors")

    @property
    def bytes_moved(self) -> int:
        """Bytes of these sectors."""
        return _SECTOR_BYTES * self.sectors

    @property
    def bytes_used(self) -> int:
        """Bytes of the global memory sectors that a lane loads or stores."""
        return self._of("global_load_bytes_used", "global_store_bytes_used")

    @property
    def bytes_used_share(self) -> float | None:
        """Bytes used divided by bytes moved. 1 is perfectly coalesced."""
        return _share(self.bytes_used, self.bytes_moved)


def split(numbers: Sequence[int]) -> dict[str, dict[str, int]]:
    counts = dict(zip(NAMES, numbers, strict=True))
    return {
        "counters": {name: counts[name] for name in COUNTERS},
        "details": {name: counts[name] for name in DETAILS},
    }


@dataclass(frozen=True)
class Access:
    """One warp instruction on shared memory, with the offset of each lane in bytes."""

    offsets: tuple[int | None, ...]
    size: int
    wavefronts: int
    ideal: int
    store: bool


@dataclass(frozen=True)
class Line(Counted):
    """The counts of one line of the source. `access` is its worst shared memory access."""

    file: str = ""
    line: int = 0
    text: str = ""
    access: Access | None = field(default=None, repr=False)

    @property
    def place(self) -> str:
        """File and line, briefly."""
        return f"{Path(self.file).name}:{self.line}" if self.file else "(line unknown)"


@dataclass(frozen=True)
class Step(Counted):
    """The counts between two barriers.

    `barrier` is the number of block barriers before the step. `sync` is the number of warp barriers
    and shuffles since the last of them. `lanes` has a mask of active lanes for each warp of the
    first block. A barrier counts in the step that it ends, a shuffle in the step that it begins.
    """

    barrier: int = 0
    sync: int = 0
    lanes: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """`3` after three block barriers, `3.2` two warp barriers or shuffles later."""
        return f"{self.barrier}.{self.sync}" if self.sync else str(self.barrier)


@dataclass(frozen=True)
class KernelCounts(Counted):
    """One launch: its size, its lines and its steps. `ran` of its blocks (or clusters) ran."""

    n: int = 0
    block: int = 0
    grid: int = 0
    sampled: bool = False
    ran: int = 0
    lines: tuple[Line, ...] = field(default=(), repr=False)
    steps: tuple[Step, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class Contention:
    """The atomics that go to one kind of memory, and how many of them meet.

    `most` is the number of atomics to the address that has most of them, and `addresses` how many
    addresses there are. Those of shared memory count once per block. Lanes of one instruction
    that go to one address take turns: `turns` is their sum over all instructions.
    """

    atomics: int
    addresses: int
    most: int
    turns: int


@dataclass(frozen=True)
class StrategyCounts(Counted):
    """The base of `explain.Explanation`: its data, without its texts and pictures."""

    strategy: str = ""
    lesson: str = ""
    n: int = 0
    dtype: str = ""
    input_dtype: str = ""
    kernels: tuple[KernelCounts, ...] = field(default=(), repr=False)
    contention: dict[str, Contention] = field(default_factory=dict)
    segments: int = 0
    shape: tuple[int, int] | None = None
    axis: int | None = None

    @property
    def size(self) -> str:
        """The size of the input as text: a number of elements, or rows and columns."""
        if self.contention:
            return f"n = {self.n:,} by {self.segments:,} keys:"
        if self.shape is None:
            return f"n = {self.n:,}"
        return f"{self.shape[0]:,} rows of {self.shape[1]:,} columns along axis {self.axis}:"

    @property
    def counted(self) -> str:
        """Which launches are counted, in words."""
        return "all launches" if self.shape is None else "the first launch"

    @property
    def block(self) -> int:
        """Threads per block."""
        return self.kernels[0].block

    @property
    def grid(self) -> int:
        """Blocks of the first launch."""
        return self.kernels[0].grid

    @property
    def sampled(self) -> bool:
        """Whether sampled blocks were counted for others with the same work; False: all ran."""
        return any(kernel.sampled for kernel in self.kernels)

    @property
    def lines(self) -> tuple[Line, ...]:
        """The first launch by lines of the source."""
        return self.kernels[0].lines

    @property
    def steps(self) -> tuple[Step, ...]:
        """The first launch by steps."""
        return self.kernels[0].steps

    @cached_property
    def total(self) -> dict[str, int]:
        """The counters of all launches together."""
        return {name: sum(k.counters[name] for k in self.kernels) for name in COUNTERS}

    @property
    def worst_line(self) -> Line | None:
        """The line with the most bank conflicts, or without conflicts, the most wavefronts."""
        shared = [line for line in self.lines if line.access]
        key = operator.attrgetter("conflicts", "wavefronts")
        return max(shared, key=key) if shared else None

    def as_dict(self) -> dict[str, Any]:
        """All of it as plain values, for JSON."""
        first = _fields(self, "strategy", "n", "dtype", "input_dtype")
        kernels = [_kernel_dict(kernel) for kernel in self.kernels]
        contention = {place: vars(one) for place, one in self.contention.items()}
        last = _fields(self, "sampled", "counters") | {"contention": contention}
        return {**first, "kernels": kernels, **last}


def _fields(of: object, *names: str) -> dict[str, Any]:
    return {name: getattr(of, name) for name in names}


def _kernel_dict(kernel: KernelCounts) -> dict[str, Any]:
    return {
        **_fields(kernel, "n", "block", "grid", "sampled", "counters", "details"),
        "lines": [_fields(line, "file", "line", "text", "counters") for line in kernel.lines],
        "steps": [_fields(step, "name", "lanes", "counters") for step in kernel.steps],
    }


@dataclass(frozen=True)
class Change:
    """One counter of two strategies."""

    name: str
    before: int
    after: int

    @property
    def factor(self) -> float | None:
        """The first count divided by the second; None if the second is 0."""
        return self.before / self.after if self.after else None


@dataclass(frozen=True)
class CountsPair:
    """The counts of two strategies for the same input."""

    before: StrategyCounts
    after: StrategyCounts

    @property
    def changes(self) -> tuple[Change, ...]:
        """The counters that differ, those that fell most first."""
        pairs = [Change(n, self.before.total[n], self.after.total[n]) for n in COUNTERS]
        changed = [pair for pair in pairs if pair.before != pair.after]
        return tuple(sorted(changed, key=lambda c: (c.after + 1) / (c.before + 1)))

    @property
    def fell(self) -> tuple[Change, ...]:
        """The counters that became less, those that fell most first."""
        return tuple(c for c in self.changes if c.after < c.before)

    @property
    def rose(self) -> tuple[Change, ...]:
        """The counters that became more."""
        return tuple(c for c in self.changes if c.after > c.before)

    @property
    def lesson(self) -> str:
        """The second strategy's lesson."""
        return self.after.lesson

    def as_dict(self) -> dict[str, Any]:
        """All of it as plain values, for JSON."""
        return {
            "before": self.before.as_dict(),
            "after": self.after.as_dict(),
            "lesson": self.lesson,
            "changes": [vars(change) | {"factor": change.factor} for change in self.changes],
        }
